"""The conditions of a run: run.json, and run.2.json, run.3.json and so on, of which the newest counts.

Processes may extend a run at the same time. None replaces a file of another: each creates the next number, which only
one of them can, and the others begin again from its conditions. So there are no locks, and processes may be killed.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.files import split_digest, with_digest
from galaxydit.pipelines.runs.folder import Folder
from galaxydit.pipelines.runs.unit import FORMAT, flatten

HEADER = "run.json"
UNITS = "units"
FILES = "files"
LATER_HEADER = re.compile(r"run\.([1-9][0-9]*)\.json")
PARTIAL = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.json")
HEADER_KEYS = {"format", "kind", "conditions"}
SHOWN_DIFFERENCES = 12


class RunConditions(Folder):
    """The folder of a run, with what all of its units depend on."""

    def create(self, kind: str, conditions: Mapping[str, Any]) -> Self:
        """Begin a run in an empty folder, or join a run of equal kind and conditions; returns this object.

        Raises GalaxyDiTError, before anything is written, if the folder holds anything else.
        """

        def unchanged(before: Mapping[str, Any] | None) -> Mapping[str, Any]:
            if before is None:
                return conditions
            self.check_same(kind, before, conditions)
            return before

        self.revise(kind, unchanged)
        return self

    def revise(
        self, kind: str, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        """Set the conditions to `change(conditions)`, where None stands for an empty folder; returns the former ones.

        `change` is called again if another process has changed the conditions meanwhile.
        """
        folders = []
        if self.is_local:
            folders = [Path(self.root, folder) for folder in (UNITS, FILES)]
        if linked := next((path for path in folders if path.is_symlink()), None):
            raise refusal("out", str(linked), "a folder of its own, not a symbolic link", "take another --out")
        while True:
            number, before = self._current(kind)
            after = change(before)
            if before is not None and after == before:
                break
            header = {"format": FORMAT, "kind": kind, "conditions": after}
            if self._create(_header_name(number + 1), _encoded(header)):
                break
        for path in folders:
            path.mkdir(exist_ok=True)
        return before

    def header(self, kind: str) -> Mapping[str, Any]:
        """Content of the newest run.json.

        Raises GalaxyDiTError if it is missing, damaged, or of another kind or format.
        """
        return self._header(kind, self._newest())

    def conditions(self, kind: str) -> Mapping[str, Any] | None:
        """The conditions of the run in this folder, None if it is empty. Raises GalaxyDiTError for anything else."""
        return self._current(kind)[1]

    def _current(self, kind: str) -> tuple[int, Mapping[str, Any] | None]:
        """Number and conditions of the newest run.json, (0, None) if the folder is empty."""
        if self.is_local and Path(self.root).exists() and not Path(self.root).is_dir():
            raise refusal("out", self.root, "a folder", "take another --out")
        if self._read(HEADER) is None:
            names = [name for name in self._list("") if not PARTIAL.fullmatch(name)]
            if not names:
                return 0, None
            if HEADER not in names:  # another process may have begun a run just now
                raise GalaxyDiTError(
                    f"{self.root} holds {min(names)!r} but no {HEADER}, so it is neither empty nor a run of this "
                    "version of galaxydit; take a new --out"
                )
        number = self._newest()
        return number, self._header(kind, number)["conditions"]

    def _newest(self) -> int:
        """The number of the newest run.json; that without a number is the first."""
        newest = 1
        for name in self._list(""):
            if match := LATER_HEADER.fullmatch(name):
                newest = max(newest, int(match[1]))
        return newest

    def _header(self, kind: str, number: int) -> Mapping[str, Any]:
        name = _header_name(number)
        header = self._load(name)
        if header is None:
            raise GalaxyDiTError(
                f"{self.root} holds no {name}, so it is no run of this galaxydit; pass the --out of a run, and make "
                "runs of earlier versions again in a new folder"
            )
        if (header.get("format"), header.get("kind")) != (FORMAT, kind):
            held = f"a {header.get('kind')} in format {header.get('format')}: expected a {kind} in format {FORMAT}"
            raise GalaxyDiTError(f"{self.root}/{name} holds {held}; restore it, or take another folder")
        if not isinstance(header.get("conditions"), dict):
            raise self._damaged(name, "no conditions")
        if unknown := header.keys() - HEADER_KEYS:  # such as a damaged name of the digest
            raise self._damaged(name, f"{min(unknown)!r} is not known")
        return header

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write JSON with its digest to a file below the root, whole or not at all.

        Raises ValueError for infinities and nan.
        """
        self._write(name, _encoded(data))

    def bind(self, what: str, data: Mapping[str, Any]) -> None:
        """Write `data` to `<what>.json`, or raise GalaxyDiTError if it holds other data."""
        if self._read(f"{what}.json") is None and self._create(f"{what}.json", _encoded(data)):
            return
        self.check_same(what, self.bound(what), data)

    def bound(self, what: str) -> dict[str, Any]:
        """The data of `bind`. Raises GalaxyDiTError if they are missing or damaged."""
        data = self._load(f"{what}.json")
        if data is None:
            raise GalaxyDiTError(f"{self.root} holds no {what}.json; restore it, or take a new --out")
        return data

    def check_same(self, what: str, before: Any, now: Any) -> None:
        """Raise GalaxyDiTError with the differences of this run's data `before` from `now`."""
        if lines := differences(before, json.loads(json.dumps(now))):
            has_results = any(name.endswith(".json") for name in self._list(UNITS))
            cure = "It holds no results: delete it"
            if has_results:
                cure = "Take a new --out, or undo the change"
            raise GalaxyDiTError(f"{self.root} belongs to another {what}. Changed: {'; '.join(lines)}. {cure}")

    def _load(self, name: str) -> dict[str, Any] | None:
        """A JSON file's object without its digest, or None. Raises GalaxyDiTError if it is damaged."""
        text = self._read(name)
        if text is None:
            return None
        try:
            content, is_unchanged = split_digest({**json.loads(text)})
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(name, str(error)) from error
        if is_unchanged is False:
            raise self._damaged(name, "its content does not have the digest that it holds")
        return content

    def _damaged(self, name: str, problem: str) -> GalaxyDiTError:
        return GalaxyDiTError(f"{self.root}/{name} is damaged ({problem}); restore it, or take a new --out")


def _header_name(number: int) -> str:
    return HEADER if number == 1 else f"run.{number}.json"


def _encoded(data: Mapping[str, Any]) -> bytes:
    return json.dumps(with_digest(data), indent=1).encode() + b"\n"


def differences(old: Any, new: Any) -> list[str]:
    """Where two values of plain data differ, such as "settings.steps: 50 -> 30", in at most 13 lines."""
    before = dict(flatten(old))
    after = dict(flatten(new))
    names = []
    for name in before | after:
        if before.get(name, ...) != after.get(name, ...):
            names.append(name)
    lines = [f"{name}: {_shown(before, name)} -> {_shown(after, name)}" for name in names[:SHOWN_DIFFERENCES]]
    if len(names) > SHOWN_DIFFERENCES:
        lines.append(f"and {len(names) - SHOWN_DIFFERENCES} more")
    return lines


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "not there"
