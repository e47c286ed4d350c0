"""The store of a run: a folder of records, on this machine or wherever fsspec reaches.

  runs/x/run.json                format, kind of the run (such as "job") and its conditions (run_conditions.py)
  runs/x/units/<unit id>.json    a unit is finished exactly when this record is there and sound
  runs/x/files/<number>-<words of the prompt>-<rest of the unit's name>.<name>

Each attempt writes files of its own, with the unit's hash and a token in their names; a local one then loses both, if
that name is free. The first record stays, and files that no record names are ignored, so there are no locks, and
processes may be killed.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.files import naming_errors
from galaxydit.pipelines.runs.run_conditions import FILES, PARTIAL, UNITS, RunConditions
from galaxydit.pipelines.runs.unit import Record, StoredFile, Unit, attempt_and_file, decode, encode

ATTEMPT = re.compile(r".+-(?P<hash>[0-9a-f]{16})\.[0-9a-f]{8}\.[a-z0-9_.]+")


class Store(RunConditions):
    """The records and files of one run."""

    def unit_ids(self) -> set[str]:
        """Ids of all records, sound or not."""
        ids = set()
        for name in self._list(UNITS):
            if name.endswith(".json") and not name.startswith("."):
                ids.add(name.removesuffix(".json"))
        return ids

    def read(self, unit_id: str) -> Record | None:
        """The record of a unit, if any. Raises GalaxyDiTError if it is damaged."""
        text = self._read(f"{UNITS}/{unit_id}.json")
        if text is None:
            return None
        return decode(text, unit_id)

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
        token = secrets.token_hex(4)
        files = dict[str, StoredFile]()
        attempt, _ = attempt_and_file(record.unit, record.data)
        try:
            for name, content in contents.items():
                path = f"{FILES}/{attempt}.{token}.{name}"
                files[name] = StoredFile(path, len(content), hashlib.sha256(content).hexdigest())
                with naming_errors(f"{self.root}/{path}"):
                    self._fs.pipe_file(f"{self._path}/{path}", content)  # it counts only once the record names it
                if self.is_local and self._renamed(path, _name_of(record, name)):
                    files[name] = replace(files[name], path=_name_of(record, name))
            written = replace(record, files=files)
            kept = self._settle(written)
            if kept is written:
                files = {}
                self._restore(written, contents)
            return kept
        finally:  # files that no record names, also after an exception, such as of a full disk
            self._remove(file.path for file in files.values())

    def _settle(self, written: Record) -> Record:
        """The record that a unit has from now on: `written`, or an earlier one that stays."""
        name = f"{UNITS}/{written.unit}.json"
        content = encode(written)
        first = self.read_sound(written.unit)
        if first is None and not self.is_local:
            if self._create(name, content):
                return written
            first = self.read_sound(written.unit)  # of a process that wrote at the same time
        if first is None or (written.is_done and not first.is_done):
            self._write(name, content)
            return written
        return first

    def _restore(self, record: Record, contents: Mapping[str, bytes]) -> None:
        """Write local files again that a process removed which had made the same unit just before (`tidy`)."""
        for name, file in record.files.items():
            if self.is_local and not Path(self.root, file.path).exists():
                self._write(file.path, contents[name])

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
            match = ATTEMPT.fullmatch(name)
            path = f"{FILES}/{name}"
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


def _name_of(record: Record, name: str) -> str:
    """The readable path of a record's file, if no other attempt or unit has it."""
    return f"{FILES}/{attempt_and_file(record.unit, record.data)[1]}.{name.removeprefix('video.')}"
