"""The prompts of a calibration: read from a file, divided into recorded and held-out ones. Needs no torch."""

import csv
import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.errors import DataWarning, GalaxyDiTError, listed, refusal
from galaxydit.pipelines.inputs import EXAMPLE, IMAGES, VIDEOS
from galaxydit.policies.policy import FEW_STEPS
from galaxydit.validation import MOST_VALUES

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

WAN_TINY_PROMPTS = Path(__file__).parent / "prompts" / "wan-tiny.txt"
"""The captions that are reserved for the embedded model's calibration and tuning."""
PROMPTS = WAN_TINY_PROMPTS.with_name("default.txt")
"""Prompts for other models; `validate` has others."""
HELD_OUT = 8
READ_COLUMNS = ("prompt", *IMAGES, *VIDEOS)


def read_lines(path: Path, field: str = "prompts") -> list[str]:
    """The prompts of a file: its lines, the columns "prompt" and those of files of a CSV or TSV, or a list in JSON.

    Raises GalaxyDiTError, which names `field`, for other files.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal(field, str(path), "text in UTF-8", "save it as UTF-8") from error
    kind = path.suffix.lower()
    if kind in (".yaml", ".yml"):
        raise refusal(field, str(path), "lines of text, CSV, TSV or JSON", "write one prompt a line")
    # A table may have any ending, if its header has the column "prompt".
    header = re.split("[\t,;]", text.partition("\n")[0].lower())
    if kind in (".csv", ".tsv") or "prompt" in [cell.strip(' "\r') for cell in header]:
        return _of_table(field, path, text)
    if kind == ".json" or (text.lstrip().startswith("[") and _loaded(text) is not None):
        prompts = _loaded(text)
        if not isinstance(prompts, list):
            raise refusal(field, str(path), "a list in JSON", "write a list of prompts, or JSON lines as .jsonl")
        return [_of_json(field, path, prompt) for prompt in prompts]
    prompts = []
    for each in text.split("\n"):
        line = each.strip()
        if not line:
            continue
        if kind == ".jsonl":
            prompts.append(_of_json(field, path, _loaded(line), line))
        else:
            prompts.append(line)
    return prompts


def _loaded(text: str) -> Any:
    """The value that the JSON text holds; None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_json(field: str, path: Path, value: Any, line: str | None = None) -> str:
    """The prompt that a value of JSON holds. An object stays as it is written in `line`, if given."""
    if isinstance(value, dict):
        return line or json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str) or not value.strip():
        raise refusal(field, str(path), f"texts and objects, not {line or value!r}", f"write for example {EXAMPLE}")
    return value.strip()


def _of_table(field: str, path: Path, text: str) -> list[str]:
    """The prompts of a table: texts, or JSON objects if the row also names images or videos."""
    rows = _rows(field, path, text)
    _, header = next(rows, (1, []))
    columns = [name.strip().lower() for name in header]
    if "prompt" not in columns:
        raise refusal(field, str(path), f"a column prompt, not {header}", "name it in the first line")
    if twice := [name for name in READ_COLUMNS if columns.count(name) > 1]:
        raise refusal(field, str(path), f"one column {twice[0]}, not {header}", "rename or delete the others")
    prompts = []
    for line, row in rows:
        cells = {}
        for name, cell in zip(columns, row, strict=False):
            if cell.strip():
                cells[name] = cell.strip()
        # A separator within a text makes cells too many.
        if len(row) > len(columns) or (cells and "prompt" not in cells):
            what = f"a prompt and no more cells than columns in line {line}"
            raise refusal(field, str(path), what, "put quotes around texts with the separator")
        if not cells:
            continue
        inputs = {name: cells[name] for name in READ_COLUMNS if name in cells}
        if len(inputs) > 1:
            prompts.append(json.dumps(inputs, ensure_ascii=False))
        else:
            prompts.append(cells["prompt"])
    if unread := set(columns) - {*READ_COLUMNS}:
        said = f"galaxydit: {field}={str(path)!r}: the columns {', '.join(sorted(unread))} are not read"
        warnings.warn(said, DataWarning, stacklevel=3)
    return prompts


def _rows(field: str, path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a table that are not empty, each with the number of its first line."""
    header = text.partition("\n")[0]
    # Unless strict, a quote that is not closed takes in all rows below it.
    rows = csv.reader(io.StringIO(text), delimiter=max("\t,;", key=header.count), strict=True)
    line = 1
    try:
        for row in rows:
            if row:
                yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        cure = 'close the quotes around a text, write a quote inside as "", or shorten the text'
        raise refusal(field, str(path), f"a complete row from line {line} on ({error})", cure) from error


def read_prompts(path: Path, field: str = "prompts") -> list[str]:
    """The prompts of a file (`read_lines`), without repetitions. Raises GalaxyDiTError for a file without prompts."""
    prompts = list(dict.fromkeys(read_lines(path, field)))
    if not prompts:
        raise GalaxyDiTError(f"{field}={str(path)!r} holds no prompt; write one a line")
    return prompts


def default_prompts(pipe: "DiffusionPipeline") -> list[str]:
    """The prompts that come with the plugin: captions for the embedded model, 16 sentences for others."""
    from galaxydit.pipelines.published_models import WAN_TINY, own_settings

    is_embedded = own_settings(pipe) == WAN_TINY
    return read_prompts(WAN_TINY_PROMPTS if is_embedded else PROMPTS)


def split_prompts(prompts: Sequence[str], steps: int | None, verifies: bool) -> tuple[list[str], list[str]]:
    """The prompts to record and the held-out ones: the last 8, or the second half of fewer than 16.

    Raises GalaxyDiTError without prompts, for 8 steps or fewer, for over 1,000, and for a verification without a
    held-out prompt.
    """
    if steps is not None and steps <= FEW_STEPS:
        expected = f"more than {FEW_STEPS}, because shorter generations are never reused"
        raise refusal("steps", steps, expected, "pass more steps")
    if steps is not None and steps > MOST_VALUES:
        raise refusal("steps", steps, f"at most {MOST_VALUES}, the noise levels of a profile", "pass fewer steps")
    given = list(dict.fromkeys(listed("prompts", prompts)))
    if not given:
        raise refusal("prompts", given, "at least one", "pass a text")
    if verifies and len(given) < 2:
        raise refusal("prompts", given, "at least 2 for a verification", "pass more, or a smaller budget")
    cut = len(given) - min(HELD_OUT, len(given) // 2)
    return given[:cut], given[cut:]
