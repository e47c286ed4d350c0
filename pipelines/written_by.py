"""The mark in files of this program, by which commands replace no other file (`galaxydit.pipelines.own_files`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.files import replacing, with_digest, write_json

if TYPE_CHECKING:
    from PIL.PngImagePlugin import PngInfo

MARK = "Written by galaxydit"
HTML_MARK = f'<meta name="generator" content="{MARK}">'
MARKDOWN_MARK = f"<!-- {MARK} -->"
PNG_KEY = "Software"  # of a tEXt chunk (PNG specification, 11.3.3.2)


@dataclass(frozen=True)
class JsonKind:
    """What a JSON file holds, in its entries "kind" and "format"."""

    name: str
    format: int


COMPARISON = JsonKind("galaxydit compare", 1)
DEMO = JsonKind("galaxydit demo", 1)
DRAWN_NOISE = JsonKind("galaxydit drawn_noise", 1)
GPU = JsonKind("galaxydit gpu", 1)
LATENCY = JsonKind("galaxydit latency", 1)
RECORDING = JsonKind("galaxydit recording", 1)
VALIDATION = JsonKind("galaxydit validate", 1)


def write_own_json(path: Path, kind: JsonKind, data: Mapping[str, Any]) -> dict[str, Any]:
    """Write JSON atomically with its kind and digest; returns what is in the file. Raises ValueError for nan."""
    whole = {"kind": kind.name, "format": kind.format} | dict(data)
    written = with_digest(whole)
    write_json(path, written)
    return written


def write_html(path: Path, page: str) -> None:
    """Write a page, which has a `<head>`, atomically and with the mark."""
    with replacing(path) as partial:
        partial.write_text(page.replace("<head>", f"<head>{HTML_MARK}", 1), encoding="utf-8")


def write_markdown(path: Path, page: str) -> None:
    """Write a page atomically; its last line is the mark, which readers of the page do not see."""
    with replacing(path) as partial:
        partial.write_text(f"{page.rstrip()}\n\n{MARKDOWN_MARK}\n", encoding="utf-8")


def png_mark() -> "PngInfo":
    """The mark for the argument `pnginfo` of Pillow."""
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text(PNG_KEY, MARK)
    return info
