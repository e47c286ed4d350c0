"""Files that are whole or not there."""

import os
import socket
from pathlib import Path

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.files import check_file_kind, replacing


def test_a_file_appears_when_it_is_finished_and_its_folder_is_made(tmp_path: Path):
    path = tmp_path / "new" / "data.npz"
    with replacing(path) as partial:
        partial.write_text("whole")
        assert partial.suffix == ".npz"
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_half_written_leaves_the_file_before(tmp_path: Path):
    path = tmp_path / "data.json"
    path.write_text("before")

    def write_half() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_that_names_no_file_gets_the_name_of_the_file_that_was_written(tmp_path: Path):
    with (
        pytest.raises(OSError, match=r"\[Errno 28\] No space left on device: '.*data\.json'"),
        replacing(tmp_path / "data.json"),
    ):
        raise OSError(28, "No space left on device")
    for address in ("", "file:"):
        with pytest.raises(OSError, match=r": '/[^:]*/data\.json'"), replacing(tmp_path / "data.json") as partial:
            raise OSError(28, "No space left on device", f"{address}{partial}")


def test_an_error_names_the_file_also_if_the_temporary_one_cannot_be_moved_or_removed(tmp_path: Path):
    (tmp_path / "data.json").mkdir()
    with pytest.raises(OSError, match=r": '.*/data\.json'$"), replacing(tmp_path / "data.json") as partial:
        partial.write_text("whole")

    def fail_like_a_read_only_disk() -> None:
        with replacing(tmp_path / "data.json") as partial:
            partial.mkdir()  # because no folder can be unlinked
            raise OSError(30, "Read-only file system", str(partial))

    with pytest.raises(OSError, match=r"Read-only file system: '.*/data\.json'$"):
        fail_like_a_read_only_disk()


def test_what_could_be_waited_for_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
    os.mkfifo("fifo.json")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.json")
    for path, kind in (("fifo.json", "FIFO"), ("socket.json", "socket"), ("/dev/null", "device")):
        with pytest.raises(GalaxyDiTError, match=rf"--out='{path}' is not allowed: expected .* not a {kind}"):
            check_file_kind("--out", path)
        with pytest.raises(GalaxyDiTError, match=f"not a {kind}"), replacing(Path(path)):
            pytest.fail("a rename would put a file in the place of the device")
    for path in (tmp_path, Path(__file__), tmp_path / "missing", Path("a" * 300), Path("a\0b")):
        check_file_kind("--out", path)


def test_a_pipe_of_the_shell_may_be_read_and_not_written():
    reading, writing = os.pipe()
    try:
        check_file_kind("--table", f"/dev/fd/{reading}", may_be_piped=True)
        with pytest.raises(GalaxyDiTError, match="not a FIFO"):
            check_file_kind("--out", f"/dev/fd/{writing}")
    finally:
        os.close(reading)
        os.close(writing)
