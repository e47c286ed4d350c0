"""Recordings of plain videos that were made anyway; a calibration checks its small recordings by one of them.

They are in the model's own dtype, whose rounding hides how little outputs change, so nothing is planned from them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.generation_observer import GenerationObserver
from galaxydit.calibration.recording import Recording
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.files import write_json
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.validation import parse

FIELD = "recorded"


def save_recording(
    path: Path,
    pipe: DiffusionPipeline,
    observer: GenerationObserver,
    settings: GenerationSettings,
    prompt: str,
    seed: int,
) -> None:
    """Write the recording of the video that was made within `observed`, with all that it depends on."""
    write_json(
        path, {"conditions": conditions_of(pipe, settings), "recording": asdict(observer.recording(prompt, seed))}
    )


def read_recorded(path: Path, conditions: Mapping[str, Any]) -> Recording:
    """The recording in a file; raises GalaxyDiTError unless its `conditions` (`conditions_of`) are these."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        before, recording = data["conditions"], parse(Recording, data["recording"], str(path))
    except (ValueError, KeyError, TypeError, RecursionError, OSError, GalaxyDiTError) as error:
        raise refusal(FIELD, str(path), f"a file of --record ({error})", "make it again") from error
    now = json.loads(json.dumps(conditions))
    if other := [name for name in now if before.get(name) != now[name]]:
        expected = f"a video of this model and these settings, not of another {', '.join(other)}"
        raise refusal(FIELD, str(path), expected, "pass the options that it was made with")
    return recording
