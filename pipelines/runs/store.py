"""The store of a run: a folder of records, on this machine or wherever fsspec reaches.

  runs/x/run.json                format, kind of the run (such as "job") and its conditions
  runs/x/units/<unit id>.json    a unit is finished exactly when this record is there and sound
  runs/x/files/<number>-<words of the prompt>-<rest of the unit's name>.<name>

Each attempt writes files of its own, with the unit's hash and a token in their names; a local one then loses both, if
that name is free. The first record stays, and files that no record names are ignored, so there are no locks, and
processes may be killed.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.files import naming_errors
from galaxydit.pipelines.runs.folder import Folder
from galaxydit.pipelines.runs.unit import FORMAT, Record, StoredFile, Unit, attempt_and_file, decode, encode, flatten

HEADER, UNITS, FILES = "run.json", "units", "files"
PARTIAL = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.json")
ATTEMPT = re.compile(r".+-(?P<hash>[0-9a-f]{16})\.[0-9a-f]{8}\.[a-z0-9_.]+")
SHOWN_DIFFERENCES = 12


class Store(Folder):
    """The records and files of one run."""

    def create(self, kind: str, conditions: Mapping[str, Any]) -> "Store":
        """Begin a run in an empty folder, or join a run of equal kind and conditions; returns this store.

        Raises GalaxyDiTError, before anything is written, if the folder holds anything else.
        """
        folders = [Path(self.root, folder) for folder in (UNITS, FILES)] if self.is_local else []
        if linked := next((path for path in folders if path.is_symlink()), None):
            raise refusal("out", str(linked), "a folder of its own, not a symbolic link", "take another --out")
        if (before := self.conditions(kind)) is None:
            self.write_conditions(kind, conditions)
        else:
            self.check_same(kind, before, conditions)
        for path in folders:
            path.mkdir(exist_ok=True)
        return self

    def header(self, kind: str) -> Mapping[str, Any]:
        """Content of run.json. Raises GalaxyDiTError if it is missing, damaged, or of another kind or format."""
        header = self._load(HEADER)
        if header is None:
            raise GalaxyDiTError(
                f"{self.root} holds no {HEADER}, so it is no run of this galaxydit; pass the --out of a run, and make "
                "runs of earlier versions again in a new folder"
            )
        if (header.get("format"), header.get("kind")) != (FORMAT, kind):
            held = f"a {header.get('kind')} in format {header.get('format')}: expected a {kind} in format {FORMAT}"
            raise GalaxyDiTError(f"{self.root}/{HEADER} holds {held}; restore it, or take another folder")
        if not isinstance(header.get("conditions"), dict):
            raise GalaxyDiTError(f"{self.root}/{HEADER} is damaged (no conditions); restore it, or take a new --out")
        return header

    def conditions(self, kind: str) -> Mapping[str, Any] | None:
        """The conditions of the run in this folder, None if it is empty. Raises GalaxyDiTError for anything else."""
        if self.is_local and Path(self.root).exists() and not Path(self.root).is_dir():
            raise refusal("out", self.root, "a folder", "take another --out")
        if self._read(HEADER) is None:
            names = [name for name in self._list("") if not PARTIAL.fullmatch(name)]
            if not names:
                return None
            if HEADER not in names:  # another process may have begun a run just now
                raise GalaxyDiTError(
                    f"{self.root} holds {min(names)!r} but no {HEADER}, so it is neither empty nor a run of this "
                    "version of galaxydit; take a new --out"
                )
        conditions: Mapping[str, Any] = self.header(kind)["conditions"]
        return conditions

    def write_conditions(self, kind: str, conditions: Mapping[str, Any]) -> None:
        """Write run.json, for a new run or one that is extended."""
        self.write(HEADER, {"format": FORMAT, "kind": kind, "conditions": conditions})

    def write(self, name: str, data: Any) -> None:
        """Write JSON to a file below the root, whole or not at all. Raises ValueError for infinities and nan."""
        self._write(name, json.dumps(data, indent=1, allow_nan=False).encode() + b"\n")

    def bind(self, what: str, data: Mapping[str, Any]) -> None:
        """Write `data` to `<what>.json`, or raise GalaxyDiTError if it holds other data."""
        before = self._load(f"{what}.json")
        if before is None:
            self.write(f"{what}.json", data)
        else:
            self.check_same(what, before, data)

    def check_same(self, what: str, before: Any, now: Any) -> None:
        """Raise GalaxyDiTError with the differences of this store's data `before` from `now`."""
        if lines := differences(before, json.loads(json.dumps(now))):
            cure = "Take a new --out, or undo the change" if self.unit_ids() else "It holds no results: delete it"
            raise GalaxyDiTError(f"{self.root} belongs to another {what}. Changed: {'; '.join(lines)}. {cure}")

    def unit_ids(self) -> set[str]:
        """Ids of all records, sound or not."""
        names = self._list(UNITS)
        return {name.removesuffix(".json") for name in names if name.endswith(".json") and not name.startswith(".")}

    def read(self, unit_id: str) -> Record | None:
        """The record of a unit, if any. Raises GalaxyDiTError if it is damaged."""
        text = self._read(f"{UNITS}/{unit_id}.json")
        return None if text is None else decode(text, unit_id)

    def read_sound(self, unit_id: str) -> Record | None:
        """The record of a unit, None if it is missing or damaged."""
        with suppress(GalaxyDiTError):
            return self.read(unit_id)
        return None

    def survey(self, unit_ids: Sequence[str], *, wholly: bool = False) -> Iterator[tuple[str, Record | None, str]]:
        """Id, record (None if damaged) and damage ("" without) of each unit that has a record.

        Files are checked by size, and with `wholly` by SHA-256.
        """
        there = self.unit_ids()
        known = [unit_id for unit_id in unit_ids if unit_id in there]
        sizes = self._list(FILES, with_sizes=True)
        for unit_id, text in zip(known, self._read_many([f"{UNITS}/{name}.json" for name in known]), strict=True):
            if text is None:
                continue
            try:
                record = decode(text, unit_id)
            except GalaxyDiTError as error:
                yield unit_id, None, str(error)
            else:
                yield unit_id, record, self._damage(record, sizes, wholly)

    def commit(self, record: Record, contents: Mapping[str, bytes]) -> Record:
        """Write a unit's files, then its record; returns the record that it has now.

        An earlier record stays, unless it is damaged, or it failed and the new one is done.
        """
        token, files = secrets.token_hex(4), dict[str, StoredFile]()
        attempt, _ = attempt_and_file(record.unit, record.data)
        try:
            for name, content in contents.items():
                path = f"{FILES}/{attempt}.{token}.{name}"
                files[name] = StoredFile(path, len(content), hashlib.sha256(content).hexdigest())
                with naming_errors(f"{self.root}/{path}"):
                    self._fs.pipe_file(f"{self._path}/{path}", content)  # it counts only once the record names it
                if self.is_local and self._renamed(path, _name_of(record, name)):
                    files[name] = replace(files[name], path=_name_of(record, name))
            first = self.read_sound(record.unit)
            if first is None or (record.is_done and not first.is_done):
                first = replace(record, files=files)
                self._write(f"{UNITS}/{record.unit}.json", encode(first))
                files = {}
            return first
        finally:  # files that no record names, also after an exception, such as of a full disk
            self._remove(file.path for file in files.values())

    def _renamed(self, path: str, name: str) -> bool:
        """Rename a whole local file unless another attempt or unit has the name; whether it was renamed."""
        with suppress(OSError):
            Path(self.root, name).open("xb").close()
            with suppress(OSError):
                os.replace(Path(self.root, path), Path(self.root, name))
                return True
            Path(self.root, name).unlink()
        return False

    def discard(self, unit_id: str, record: Record | None) -> None:
        """Remove a record, None if damaged, and its files, so that the unit is made again."""
        files = record.files.values() if record is not None else ()
        self._remove([f"{UNITS}/{unit_id}.json", *(file.path for file in files)])

    def tidy(self, units: Sequence[Unit]) -> None:
        """Remove partial records and unnamed files, left by killed workers, of units that have a record."""
        ids = {unit.id for unit in units} & self.unit_ids()
        by_hash = {unit_id[-16:]: unit_id for unit_id in ids}
        for name in self._list(UNITS):
            if (match := PARTIAL.fullmatch(name)) and match["name"] in ids:
                self._remove([f"{UNITS}/{name}"])
        for name in (there := self._list(FILES)):
            match, path = ATTEMPT.fullmatch(name), f"{FILES}/{name}"
            if match is None or match["hash"] not in by_hash:
                continue
            if (record := self.read_sound(by_hash[match["hash"]])) is None:
                continue
            named = {file.path: _name_of(record, name) for name, file in record.files.items()}
            if path not in named:
                self._remove([path])
            elif named[path].removeprefix(f"{FILES}/") in there and not self._is_named(named[path]):
                self._remove([named[path]])  # of an attempt that was killed before its record

    def _is_named(self, path: str) -> bool:
        records = map(self.read_sound, self.unit_ids())
        return any(file.path == path for record in records if record is not None for file in record.files.values())

    def _damage(self, record: Record, sizes: Mapping[str, int], wholly: bool) -> str:
        for file in record.files.values():
            size = sizes.get(file.path.removeprefix(f"{FILES}/"))
            if size is None:
                return f"{file.path} is gone"
            if size != file.bytes:
                return f"{file.path} has {size} bytes instead of {file.bytes}"
            if wholly:
                with self._fs.open(f"{self._path}/{file.path}", "rb") as opened:
                    if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                        return f"{file.path} has another content than its record says"
        return ""

    def _load(self, name: str) -> dict[str, Any] | None:
        """A JSON file's object, or None. Raises GalaxyDiTError if it is damaged."""
        text = self._read(name)
        try:
            return None if text is None else {**json.loads(text)}
        except (ValueError, TypeError, RecursionError) as error:
            raise GalaxyDiTError(f"{self.root}/{name} is damaged ({error}); restore it, or take a new --out") from error


def _name_of(record: Record, name: str) -> str:
    """The readable path of a record's file, if no other attempt or unit has it."""
    return f"{FILES}/{attempt_and_file(record.unit, record.data)[1]}.{name.removeprefix('video.')}"


def differences(old: Any, new: Any) -> list[str]:
    """Where two values of plain data differ, such as "settings.steps: 50 -> 30", in at most 13 lines."""
    before, after = dict(flatten(old)), dict(flatten(new))
    names = [name for name in before | after if before.get(name, ...) != after.get(name, ...)]
    lines = [f"{name}: {_shown(before, name)} -> {_shown(after, name)}" for name in names[:SHOWN_DIFFERENCES]]
    return [*lines, f"and {len(names) - SHOWN_DIFFERENCES} more"] if len(names) > SHOWN_DIFFERENCES else lines


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "not there"
