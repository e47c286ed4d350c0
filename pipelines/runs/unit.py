"""A unit of work as plain data, the output of its maker, and its record: a JSON file that says it is done or failed."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from textwrap import shorten
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationError

from galaxydit.errors import GalaxyDiTError
from galaxydit.files import split_digest, with_digest

FORMAT: Literal[2] = 2  # version of the records and of the store


@dataclass(frozen=True)
class Unit:
    """One piece of work, such as one generation."""

    name: str  # readable beginning of the id: small letters, digits and "._+-"
    data: Mapping[str, Any]  # all that the result depends on, ready for JSON
    group: str = ""  # made in order on one worker, which keeps what they share; "" is a group of its own

    @cached_property
    def id(self) -> str:
        """The name, a hyphen and 16 hexadecimal digits of the hash of `data`."""
        return f"{self.name}-{hash_of(self.data)[:16]}"


@dataclass(frozen=True)
class Output:
    """The result of a unit, ready for JSON, and the contents of its files by name, such as "video.mp4"."""

    result: Any
    files: Mapping[str, bytes] = field(default_factory=dict)


def _check_time(text: str) -> str:
    """The text, an ISO 8601 time that converts to a Unix timestamp, else ValueError."""
    try:
        datetime.fromisoformat(text).timestamp()
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return text


@dataclass(frozen=True)
class StoredFile:
    """A file of a record: path below the store's root, size, and SHA-256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """The record of a finished unit."""

    unit: str
    data: Mapping[str, Any]
    status: Literal["done", "failed"]
    attempts: int  # from 1
    seconds: float  # wall-clock, of the last attempt
    worker: str  # host and process id, such as "node7:4711"
    finished_at: Annotated[str, AfterValidator(_check_time)]  # UTC
    traceback: str | None = None  # of the last attempt of a failed unit
    message: str | None = None  # of a GalaxyDiTError
    result: Any = None
    files: Mapping[str, StoredFile] = field(default_factory=dict)  # by the maker's names
    format: Literal[2] = FORMAT
    is_checked: bool = field(default=True, compare=False)  # False for one of an earlier version, without a digest

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    @property
    def reason(self) -> str:
        """Why the unit failed: its message, else the last line of its traceback."""
        return self.message or (self.traceback or "").strip().rpartition("\n")[2]


_ADAPTER = TypeAdapter(Record)
_STORED = {field.name for field in fields(Record)} - {"is_checked"}


def encode(record: Record) -> bytes:
    """The record with its digest as one line of JSON; half a surrogate pair becomes "?"."""
    data = asdict(record)
    content = with_digest({name: data[name] for name in data if name in _STORED})
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def decode(text: bytes, unit: str) -> Record:
    """The record of `unit`. Raises GalaxyDiTError if the text is damaged or of another unit."""
    try:
        record = _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise _damaged(unit, f"{place}: {first['msg']}") from error
    if record.unit != unit:
        raise _damaged(unit, f"it names the unit {record.unit}")
    digits = "no digits"
    with suppress(ValueError, RecursionError):  # nan and deep nesting have no hash
        digits = hash_of(record.data)[:16]
    if not unit.endswith(digits):
        raise _damaged(unit, "data: of another unit")
    names = "|".join(map(re.escape, (unit, *attempt_and_file(unit, record.data))))
    own = re.compile(rf"files/({names})(\.[0-9a-f]{{8}})?\.[a-z0-9_.]+")
    for file in record.files.values():
        if not own.fullmatch(file.path):
            raise _damaged(unit, f"it names {file.path!r}, which is no file of this unit")
    return replace(record, is_checked=_check_digest(text, unit))


def _check_digest(text: bytes, unit: str) -> bool:
    """Whether the record has a digest. Raises GalaxyDiTError if the digest is of another content."""
    content, is_unchanged = split_digest(json.loads(text))
    if is_unchanged is False:
        raise _damaged(unit, "its content does not have the digest that it holds")
    if unknown := content.keys() - _STORED:  # such as a damaged name of the digest
        raise _damaged(unit, f"{min(unknown)!r} is not known")
    return is_unchanged is not None


def _damaged(unit: str, problem: str) -> GalaxyDiTError:
    return GalaxyDiTError(f"the record of {unit} is damaged: {problem}; run again to make it")


def not_checked(records: Iterable[Record]) -> str:
    """Sentence without its full stop that counts the records without a digest, "" if all have one."""
    count = sum(not record.is_checked for record in records)
    if count:
        return f"{count} records of earlier versions have no digest, so their numbers are not checked"
    return ""


def attempt_and_file(unit: str, data: Any) -> tuple[str, str]:
    """How the names of a unit's files begin: with its hash, and without it; words of the prompt follow its number."""
    name = unit[:-17]
    digits = unit[-17:]
    number, _, rest = name.partition("-")
    if isinstance(data, Mapping) and isinstance(data.get("prompt"), str):
        words = _words_of(data["prompt"])
    else:
        words = ""
    readable = "-".join(filter(None, (number, words, rest)))
    return readable + digits, readable


def _words_of(prompt: str) -> str:
    """Up to 40 characters of a prompt, a text or a JSON object with one, such as "a-cat-walks-on-grass"."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        prompt = str(json.loads(prompt)["prompt"])
    plain = unicodedata.normalize("NFKD", prompt).encode("ascii", "ignore").decode().lower()
    return shorten(" ".join(re.findall(r"[a-z0-9]+", plain)), 40, placeholder="").replace(" ", "-")


def hash_of(data: Any) -> str:
    """SHA-256 of plain data, in hexadecimal. Raises ValueError for infinities and nan."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, allow_nan=False).encode()).hexdigest()


def flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of plain data, each after its path, such as "settings.steps" or "prompts[0]"."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            name = value.get("name", index) if isinstance(value, Mapping) else index
            yield from flatten(value, f"{path}[{name}]")
    else:
        yield path, data
