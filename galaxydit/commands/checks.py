"""What can be refused without a model is refused here, before torch is loaded and before anything is generated."""

import os
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, did_you_mean, refusal
from galaxydit.pipelines.model_names import local_folder
from galaxydit.policies.budget import check_request


def check_acceleration(
    speedup: float | None, max_error: float | None, profile: str | None, threshold: float | None
) -> None:
    """Raise GalaxyDiTError for settings of `galaxydit.accelerate` that suit no model."""
    check_request(speedup, max_error, threshold)
    if profile is not None and not os.path.isfile(profile):
        shipped = sorted(path.stem for path in Path(str(files("galaxydit") / "profiles")).glob("*.json"))
        if profile not in shipped:
            expected = f"a file, or one that is shipped ({', '.join(shipped)})"
            raise refusal("profile", profile, expected, f"run `galaxydit calibrate`{did_you_mean(profile, shipped)}")


def check_model(name: str) -> None:
    """Raise GalaxyDiTError for what cannot name a model, FileNotFoundError for a folder without a pipeline."""
    local_folder(name)


def check_prompt_inputs(prompts: Iterable[str]) -> None:
    """Raise GalaxyDiTError for a prompt that names an image or a video which is no file."""
    from galaxydit.pipelines.inputs import parse_inputs

    for prompt in prompts:
        parse_inputs(prompt)


def check_text_file(option: str, path: Path) -> None:
    """Raise GalaxyDiTError unless this is a text file that can be read."""
    try:
        path.read_text(encoding="utf-8")
    except OSError as error:
        expected = f"a text file that can be read ({error.strerror})"
        raise refusal(option, str(path), expected, "pass an existing one") from error
    except UnicodeDecodeError as error:
        raise refusal(option, str(path), "text in UTF-8", "save it as UTF-8") from error


def check_output_file(path: Path, suffix: str, option: str = "--out") -> None:
    """Raise GalaxyDiTError unless a file of this name can be written; leaves nothing behind."""
    if path.suffix != suffix:
        example = f"{path.stem.strip('.') or 'x'}{suffix}"
        raise refusal(option, str(path), f"a name ending in {suffix}", f"pass for example {example}")
    try:
        if not path.parent.is_dir():
            _write_nearby(path.parent)
            return
        is_new = not os.path.lexists(path)
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _unwritable(option, path, error) from error


def check_output_folder(path: Path, option: str = "--out") -> None:
    """Raise GalaxyDiTError unless files can be written in this folder; leaves nothing behind."""
    try:
        _write_nearby(path)
    except OSError as error:
        raise _unwritable(option, path, error) from error


def _write_nearby(folder: Path) -> None:
    """Write in the folder, or in the nearest of its parents that exists."""
    try:
        folder.lstat()
    except FileNotFoundError:
        _write_nearby(folder.parent)
    else:
        tempfile.TemporaryFile(dir=folder).close()


def _unwritable(option: str, path: Path, error: OSError) -> GalaxyDiTError:
    return refusal(option, str(path), f"a place that can be written ({error.strerror})", "choose another")
