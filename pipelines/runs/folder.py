"""A folder on this machine or wherever fsspec reaches, whose files are read and written whole."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from galaxydit.errors import refusal
from galaxydit.files import create_file, replacing
from galaxydit.foreign_text import without_secrets

CHUNK = 512  # files that are asked for at once


class Folder:
    """`root` is a path or an address such as "s3://bucket/run"; nothing stays open.

    `address` reaches the folder; the attribute `root` shows it without keys.

    Raises GalaxyDiTError for an address that fsspec does not know.
    """

    def __init__(self, root: str | Path) -> None:
        try:
            self._fs, self._path = fsspec.core.url_to_fs(str(root), use_listings_cache=False)
        except (ValueError, ImportError) as error:
            expected = f"a folder or an address that fsspec reaches ({error})"
            raise refusal("out", str(root), expected, "install the package that it names, or take a folder") from error
        self.is_local = isinstance(self._fs, LocalFileSystem)
        if self.is_local:
            self.address = self.root = self._path
        else:
            self.address = str(root)
            self.root = without_secrets(root)  # for messages and pages

    def local_path(self, path: str) -> Path:
        """Local path of a file below the root; a remote one is copied to a temporary place."""
        if self.is_local:
            return Path(self.root, path)
        return Path(fsspec.open_local(f"simplecache::{self.address}/{path}"))

    def _read(self, name: str) -> bytes | None:
        try:
            if self.is_local:  # a third faster than through fsspec
                return Path(self.root, name).read_bytes()
            return self._fs.cat_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return None

    def _read_many(self, names: Sequence[str]) -> Iterator[bytes | None]:
        if self.is_local:
            yield from map(self._read, names)
            return
        paths = [self._fs._strip_protocol(f"{self._path}/{name}") for name in names]
        for start in range(0, len(paths), CHUNK):
            contents = self._fs.cat(chunk := paths[start : start + CHUNK], on_error="omit")
            yield from map(contents.get, chunk)

    def _write(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all; object stores publish whole objects."""
        if self.is_local:
            with replacing(Path(self.root, name)) as partial:
                partial.write_bytes(content)
        else:
            self._fs.pipe_file(f"{self._path}/{name}", content)

    def _create(self, name: str, content: bytes) -> bool:
        """Write a file whole unless the name is taken; whether it was written. Of several processes one can."""
        if self.is_local:
            return create_file(Path(self.root, name), content)
        try:
            self._fs.pipe_file(f"{self._path}/{name}", content, mode="create")
        except FileExistsError:
            return False
        except (TypeError, NotImplementedError):  # a file system without exclusive writing
            if self._read(name) is not None:
                return False
            self._write(name, content)
        return True

    def _list(self, folder: str, *, with_sizes: bool = False) -> dict[str, int]:
        """File names in a folder below the root, with their sizes in bytes if these are asked for."""
        sizes = {}
        if self.is_local:
            with suppress(FileNotFoundError), os.scandir(Path(self.root, folder)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process tidies up
                        sizes[entry.name] = entry.stat().st_size if with_sizes else 0
            return sizes
        place = f"{self._path}/{folder}".rstrip("/")
        self._fs.invalidate_cache(place)
        with suppress(FileNotFoundError):
            for entry in self._fs.ls(place, detail=True):
                sizes[entry["name"].rsplit("/", 1)[-1]] = entry["size"] or 0
        return sizes

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._fs.rm_file(f"{self._path}/{name}")
