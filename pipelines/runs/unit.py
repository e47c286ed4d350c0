"""A unit of work as plain data, the output of its maker, and its record: a JSON file that says it is done or failed.

A maker is the object that makes units. A worker is the process that runs a maker, or several processes that share each
video.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from galaxydit.errors import GalaxyDiTError

FORMAT: Literal[2] = 2  # version of the records and of the store


@dataclass(frozen=True)
class Unit:
    """One piece of work, such as one generation.

    Attributes:
        name: the readable beginning of the id; small letters, digits and "._+-".
        data: everything that the result depends on, ready for JSON.
        group: name of a group. One worker makes the units of a group, in their order, so that they can share what the
            worker keeps in memory. "" makes the unit a group of its own.
    """

    name: str
    data: Mapping[str, Any]
    group: str = ""

    @cached_property
    def id(self) -> str:
        """The name, a hyphen and the first 16 hexadecimal digits of the hash of `data`."""
        return f"{self.name}-{hash_of(self.data)[:16]}"


@dataclass(frozen=True)
class Output:
    """The result of a unit, ready for JSON, and the contents of its files by name, such as "video.mp4"."""

    result: Any
    files: Mapping[str, bytes] = field(default_factory=dict)


class PermanentError(Exception):
    """Raised by a maker for a unit that would fail at any other attempt, too."""


def _check_time(text: str) -> str:
    """The text unchanged. Raises ValueError unless it is an ISO 8601 time that converts to a Unix timestamp."""
    try:
        datetime.fromisoformat(text).timestamp()
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return text


@dataclass(frozen=True)
class StoredFile:
    """A file that belongs to a record: its path below the store's root, its size, and its SHA-256 in hexadecimal."""

    path: Annotated[str, Field(pattern=r"^files/[^/\\]+$")]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """The record of a finished unit, which is done or failed.

    Attributes:
        unit: the unit's id, also the name of the record's file.
        data: the unit's data.
        attempts: how often the worker that finished the unit attempted it, from 1.
        seconds: wall-clock time of the last attempt.
        worker: host and process id, such as "node7:4711".
        finished_at: UTC, ISO 8601.
        traceback: of the last attempt of a failed unit, else None.
        message: text of the PermanentError or GalaxyDiTError with which the unit failed; else None.
        result: `Output.result`, None for a failed unit.
        files: path, size and hash of each of the unit's files (`StoredFile`), by the name that the maker gave it.
        format: version of the record's format.
    """

    unit: str
    data: Mapping[str, Any]
    status: Literal["done", "failed"]
    attempts: int
    seconds: float
    worker: str
    finished_at: Annotated[str, AfterValidator(_check_time)]
    traceback: str | None = None
    message: str | None = None
    result: Any = None
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    format: Literal[2] = FORMAT

    @property
    def is_done(self) -> bool:
        """Whether the unit is done, not failed."""
        return self.status == "done"

    @property
    def reason(self) -> str:
        """Why the unit failed: its message, else the last line of its traceback; "" if it did not fail."""
        return self.message or (self.traceback or "").strip().rpartition("\n")[2]


_ADAPTER = TypeAdapter(Record)


def encode(record: Record) -> bytes:
    """The record as one line of JSON, for `decode`. Half a surrogate pair, which UTF-8 cannot hold, becomes "?"."""
    text = json.dumps(asdict(record), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"


def decode(text: bytes, unit: str) -> Record:
    """The record of the unit with id `unit`. Raises GalaxyDiTError if the text is damaged or of another unit."""
    try:
        record = _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise GalaxyDiTError(
            f"the record of {unit} is damaged: {place}: {first['msg']}; run again to make it"
        ) from error
    if record.unit != unit:
        raise GalaxyDiTError(f"the record of {unit} is damaged: it names the unit {record.unit}; run again to make it")
    if not unit.endswith(_hash_or_nothing(record.data)):
        raise GalaxyDiTError(f"the record of {unit} is damaged: data: of another unit; run again to make it")
    own = re.compile(rf"files/{re.escape(unit)}\.[0-9a-f]{{8}}\.[a-z0-9_.]+")
    for file in record.files.values():
        if not own.fullmatch(file.path):
            raise GalaxyDiTError(
                f"the record of {unit} is damaged: it names {file.path!r}, which is no file of this unit; run again to "
                "make it"
            )
    return record


def _hash_or_nothing(data: Any) -> str:
    """The first 16 digits of the hash of `data`, which end the id of a unit with these data.

    A line break, which ends no id, for data that cannot be hashed.
    """
    try:
        return hash_of(data)[:16]
    except (ValueError, RecursionError):
        return "\n"


def hash_of(data: Any) -> str:
    """SHA-256 of plain data, as hexadecimal digits. Raises ValueError for infinities and nan."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, allow_nan=False).encode()).hexdigest()
