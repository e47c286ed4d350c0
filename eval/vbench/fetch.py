"""Download the model files that dimensions of a benchmark need, to the benchmark's cache folder.

A download goes to `NAME.part`, is resumed by a range request (RFC 9110, If-Range), and gets its name once size and
SHA-256, the published one and the hub's (X-Linked-Etag), are right. `NAME.sha256` keeps it in sha256sum's format.
"""

import hashlib
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError, URLError

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.suite import Dimension, Weights

CHUNK = 2**20  # bytes
TIMEOUT = 30.0  # seconds without a byte
HUB_FILES = ["config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
SHA256_DIGITS = 64

Tell = Callable[[str, int, int], None]
"""Called with a file's name, its bytes so far, and its size in bytes, 0 if the server does not say the size."""


def fetch(dimensions: Sequence[Dimension], extra: Sequence[Weights], cache: Path, tell: Tell) -> list[Path]:
    """Download the missing files of the dimensions, and `extra`, to `cache`; models of the hub go to its own cache.

    Returns the paths downloaded now and the folders of the hub's models. Raises GalaxyDiTError, naming every missing
    file and its source, if one cannot be downloaded or has another content.
    """
    # Several dimensions share files and models.
    wanted: dict[Weights, None] = {}
    models: dict[str, None] = {}
    for dimension in dimensions:
        wanted |= dict.fromkeys(dimension.weights)
        models |= dict.fromkeys(dimension.hub)
    wanted |= dict.fromkeys(extra)
    missing = [weights for weights in wanted if not (cache / weights.path).exists()]
    written = []
    for position, weights in enumerate(missing):
        try:
            written.append(_fetch_one(weights, cache, tell))
        except (OSError, HTTPException) as error:  # URLError is an OSError
            left = "; ".join(f"{cache / file.path} from {file.url}" for file in missing[position:])
            raise GalaxyDiTError(
                f"{weights.archive or weights.url} cannot be downloaded ({error}); give the same command again, which "
                f"goes on, or put these files there from another machine: {left}"
            ) from error
    for model in models:
        written.append(_fetch_from_hub(model))
    return written


def _fetch_one(weights: Weights, cache: Path, tell: Tell) -> Path:
    place = cache / weights.path
    if not weights.archive:
        return download(weights.url, place, weights.sha256, tell)
    archive = download(weights.archive, cache / weights.folder / PurePosixPath(weights.archive).name, "", tell)
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            below_top = PurePosixPath(member.filename).parts[1:]
            if below_top and not member.is_dir() and weights.member in ("*", member.filename):
                member.filename = str(PurePosixPath(*below_top))
                opened.extract(member, place.parent)  # zipfile lets no path lead out of the folder
    archive.unlink()
    if not place.is_file():
        raise GalaxyDiTError(f"{weights.archive} holds no {place.name}; put it at {place} by hand")
    return place


def download(url: str, place: Path, sha256: str, tell: Tell) -> Path:
    """Download the file, or the rest of it, to `place`, and return that.

    `sha256` are the first digits of the published one. Raises GalaxyDiTError if it differs, OSError or HTTPException if
    the connection fails; the next call resumes.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.part")
    mark = place.with_name(f"{place.name}.part.etag")
    start = 0
    headers = {"User-Agent": "galaxydit"}
    known = ""
    if mark.is_file() and part.is_file():
        known = mark.read_text(encoding="utf-8")
    if known:
        start = part.stat().st_size
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": known}
    try:
        opened = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != 416:  # the file is there in full, or the server has another one now
            raise
        part.unlink()
        return download(url, place, sha256, tell)
    with opened as answer:
        if answer.status != 206:  # the server sends the whole file, because it has another one now
            start = 0
        mark.write_text(answer.headers.get("ETag") or "", encoding="utf-8")
        total = start + int(answer.headers.get("Content-Length") or 0)
        with part.open("ab" if start else "wb") as file:
            done = start
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                tell(place.name, done, total if total > start else 0)
        named = (answer.headers.get("X-Linked-Etag") or "").strip('"')  # of files in the hub's large-file storage
    if total > start and part.stat().st_size != total:
        raise URLError(f"the connection ended after {part.stat().st_size} of {total} bytes")
    with part.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    published = [sha256]
    if len(named) == SHA256_DIGITS:
        published.append(named)
    for expected in published:
        if not actual.startswith(expected):
            part.unlink()
            raise GalaxyDiTError(f"{url} has the SHA-256 {actual}: expected {expected}; fetch it again")
    part.replace(place)
    mark.unlink(missing_ok=True)
    place.with_name(f"{place.name}.sha256").write_text(f"{actual}  {place.name}\n", encoding="utf-8")
    return place


def _fetch_from_hub(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise GalaxyDiTError(
            f"{model} cannot be downloaded from the hub ({error}); run `hf download {model}` on a machine with a "
            "network, and copy its folder of the hub's cache here"
        ) from error
