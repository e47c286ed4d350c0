"""Names of outputs and numbers of prompts are tried before the work."""

from pathlib import Path

import pytest

from galaxydit.commands.argument_checks import check_output_file, check_output_folder
from galaxydit.commands.captions import read_or_draw_prompts
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.validate.validation_job import validation_prompts
from galaxydit.files import replacing

LONGEST = "\u732b" * 83 + "xx"  # 251 bytes


@pytest.mark.parametrize("folder", [".", "new", "new/deeper"])
@pytest.mark.parametrize("name", ["12:30.mp4", LONGEST + ".mp4", "x" * 246 + ".mp4", "-dash 50%.mp4"])
def test_a_name_that_can_be_written_passes_and_is_written(folder: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / folder / name
    check_output_file(path, ".mp4")
    check_output_folder(path)
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    with replacing(path) as partial:
        partial.write_text("video")
    assert path.read_text() == "video"


@pytest.mark.parametrize("folder", [".", "new", "new/deeper", "x" * 256])
def test_a_name_that_is_too_long_is_refused_wherever_its_folder_is(folder: str, tmp_path: Path) -> None:
    path = tmp_path / folder / f"{LONGEST}x.mp4"
    for check in (lambda: check_output_file(path, ".mp4"), lambda: check_output_folder(path)):
        with pytest.raises(GalaxyDiTError, match=r"expected a place that can be written .File name too long"):
            check()
    assert not list(tmp_path.iterdir())


def test_a_file_whose_folder_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finished video replaces the file, so its folder has to take another one meanwhile."""
    (tmp_path / "a.mp4").write_text("mine")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.mkdir", refuse)  # root may write anywhere
    with pytest.raises(GalaxyDiTError, match="Permission denied"):
        check_output_file(tmp_path / "a.mp4", ".mp4")


def test_a_number_of_prompts_takes_the_built_in_ones_except_for_wan_tiny() -> None:
    assert read_or_draw_prompts("3", "org/model", ()) == validation_prompts()[:3]
    assert not set(read_or_draw_prompts("3", "wan-tiny", ())) & set(validation_prompts())
    for given in ("0", "11"):
        with pytest.raises(GalaxyDiTError, match="a number from 1 to 10"):
            read_or_draw_prompts(given, "org/model", ())
