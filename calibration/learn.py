"""`learn`: a profile from the first video on, made from small recordings and kept in the user's data folder."""

import tempfile
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline
from filelock import FileLock
from platformdirs import user_data_path
from rich.console import Console

from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import KIND, calibrate
from galaxydit.calibration.profile_file import keep, stored, worth
from galaxydit.errors import ProfileWarning, check_path, proposing
from galaxydit.foreign_text import printable
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import LiveProgress, hash_of, move_aside, open_own
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.fingerprint import model_of
from galaxydit.profiles.schema import Profile
from galaxydit.runtime.recognition import transformers_of

LEARNED = Budget((4, 8), check=False)


@proposing
def learn(
    pipe: DiffusionPipeline,
    prompts: Sequence[str] | None = None,
    *,
    settings: GenerationSettings | None = None,
    folder: Path | str | None = None,
) -> Profile:
    """A profile of `pipe` from 4 to 8 small recordings, kept in a file and found there the next time.

        galaxydit.accelerate(pipe, speedup=2, profile=galaxydit.learn(pipe))

    The cost is said before it starts, and an interrupted call goes on. The profile is not verified by videos. Arguments
    and errors are those of `galaxydit.calibrate`; `folder` is by default "profiles" in the user's data folder.
    """
    if folder is not None:
        check_path("folder", folder)
    settings = settings or recommended_settings(pipe)
    name = _name_of(pipe, settings)
    path: Path | None = None
    problem = ""
    with ExitStack() as stack:
        try:
            path = _folder(folder) / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_suffix(".lock")))
        except (OSError, ValueError) as error:  # ValueError of a name that no file can have
            problem = str(error)
        if path is not None:
            known, mismatch = stored(path, pipe)
            if known is not None and mismatch is None and worth(known) >= (0, LEARNED.samples[0]):
                return known
        parts = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if path is not None and not problem:
            try:
                if path.exists() and not path.is_file():
                    move_aside(path)
                open_own(path.with_suffix(".parts"), KIND, {})
                parts = path.with_suffix(".parts")
            except OSError as error:
                problem = str(error)
        if problem:
            said = f"galaxydit: the profile is kept in memory alone, because its folder cannot be used ({problem})"
            warnings.warn(said, ProfileWarning, stacklevel=3)

        def save(profile: Profile) -> None:
            if path is not None and not problem:
                keep(_at(path, profile), path, pipe)

        console = Console(stderr=True)
        with LiveProgress(console) as progress:
            made = calibrate(
                pipe,
                prompts,
                resume_dir=parts,
                budget=LEARNED,
                settings=settings,
                name=name,
                on_profile=save,
                say=lambda text: console.print(printable(text), markup=False, highlight=False),
                progress=progress,
            )
    if path is None or problem:
        return made.profile
    return _at(path, made.profile)


def _folder(named: Path | str | None) -> Path:
    """The folder of learned profiles. Raises OSError if the user has no home folder."""
    try:
        if named is None:
            return user_data_path("galaxydit") / "profiles"
        return Path(named).expanduser()
    except RuntimeError as error:
        raise OSError(f"this user has no home folder: {error}") from error


def _at(path: Path, profile: Profile) -> Profile:
    return replace(profile, source=f"galaxydit.learn, {profile.conditions.samples} recordings, {path}")


def _name_of(pipe: DiffusionPipeline, settings: GenerationSettings) -> str:
    """A name for the model with its weights and adapters, the scheduler and the settings that schedules depend on."""
    models = [model_of(transformer) for transformer in transformers_of(pipe).values()]
    described = []
    for model in models:
        # Projections of the weights, whose last digits depend on dtype and device
        weights = [round(x, 2) for x in model.weights]
        described.append({"config": dict(model.config), "adapters": model.adapters, "weights": weights})
    config = {name: str(value) for name, value in pipe.scheduler.config.items()}
    key: dict[str, Any] = {
        "models": described,
        "scheduler": [type(pipe.scheduler).__name__, config],
        "settings": [settings.steps, settings.flow_shift, settings.guidance_scale, settings.guidance_scale_2],
    }
    return f"{models[0].class_name.lower()}-{hash_of(key)[:16]}"
