"""Files that are whole or not there."""

from pathlib import Path

import pytest

from galaxydit.files import replacing


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
