"""The repository's address, which stands in pyproject.toml alone, and links to its files."""

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
PICTURES = (".png", ".webp", ".gif", ".svg")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


@cache
def address() -> str:
    """Address of the repository, without a slash at its end."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"]).rstrip("/")


def with_address(text: str) -> str:
    """The text of a page with the address in the commands that install from the repository."""
    text = text.replace("git+ADDRESS", f"git+{address()}")
    return text.replace("ADDRESS is the address of this repository. ", "")


def relinked(text: str, page: str, new_target: Callable[[str], str]) -> str:
    """The text of a page with other targets for its relative links, code apart.

    Args:
        page: its path in the repository.
        new_target: takes a path in the repository, and returns the link's new target; "" keeps the link.
    """
    folder = PurePosixPath(page).parent

    def replaced(found: re.Match[str]) -> str:
        link = found[2]
        path, hash_sign, anchor = link.partition("#")
        if re.match(r"\w+:", link) or not path:
            return found[0]
        target = new_target(normpath(str(folder / path)))
        return f"{found[1]}{target}{hash_sign}{anchor}{found[3]}" if target else found[0]

    parts = FENCE.split(text)
    return "".join(part if part.lstrip().startswith("```") else LINK.sub(replaced, part) for part in parts)


def link_to_file(path: str, *, raw: bool = False) -> str:
    """Address of a file or folder of the repository; `raw` for pictures, whose bytes a page shows."""
    kind = "raw" if raw else "tree" if (ROOT / path).is_dir() else "blob"
    return f"{address()}/{kind}/main/{path}"


def index_description() -> str:
    """README.md for the page of a package index, where all links lead to the repository."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](#", "](README.md#")

    def new_target(path: str) -> str:
        return link_to_file(path, raw=path.endswith(PICTURES))

    return relinked(with_address(text), "README.md", new_target)
