"""The SHA-256 that a file holds of its own content, so that a change on disk is noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEY = "digest"


def digest_of(data: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of plain data in any order of keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def with_digest(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data as JSON reads it back, with its digest. Raises ValueError for infinities and nan."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    # UTF-8 cannot hold half a surrogate pair, which becomes "?".
    plain: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    return plain | {KEY: digest_of(plain)}


def split_digest(data: Mapping[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """The data without its digest, and whether the digest belongs to the data; None without a digest."""
    content = {name: value for name, value in data.items() if name != KEY}
    return content, None if KEY not in data else data[KEY] == digest_of(content)
