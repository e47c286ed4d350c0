"""What a folder is bound to: one job and one model. The first worker writes them down, the others compare."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.claims import Claims
from galaxydit.eval.jobs.durable import create_durably, write_durably
from galaxydit.eval.jobs.job import Job, differences
from galaxydit.eval.jobs.record import FAILED, RunFolder
from galaxydit.validation import parse

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.pipelines.settings import GenerationSettings

VERSION = 1
CURE = "take a new --out, or restore the file"
SAME_WEIGHTS = 1e-6  # between projections of equal weights on different machines


def open_run(folder: RunFolder, job: Job, text: str) -> None:
    """Bind the folder to the job, whose file holds `text`; or join, if it is bound to the same one.

    Raises GalaxyDiTError with the difference if it is bound to another one.
    """
    bound = {"version": VERSION, "hash": job.hash, "job": asdict(job)}
    before = _bind(folder, folder.job, bound)
    if before is None:
        write_durably(text, _scratch(folder), folder.job_copy)
        return
    lines = differences(_job_data(folder, before), _plain(asdict(job)))
    if lines:
        raise GalaxyDiTError(
            f"{folder.root} belongs to another job. Changed: {'; '.join(lines)}. Take a new --out, or undo the change"
        )


def load_job(folder: RunFolder) -> Job:
    """The job that a folder is bound to. Raises GalaxyDiTError if there is none or its file is damaged."""
    folder.check()
    job: Job = parse(Job, _job_data(folder, _read(folder.job)), str(folder.job), CURE)
    return job


def bind_model(folder: RunFolder, pipe: "DiffusionPipeline", settings: "GenerationSettings") -> None:
    """Bind the folder to weights, dtype and settings. Raises GalaxyDiTError if it began with others, as after further
    training, with another copy on another machine, or with a version that recommends other settings.
    """
    from galaxydit.acceleration import transformers_of
    from galaxydit.profiles.fingerprint import project_weights

    found = {
        "settings": asdict(settings),
        "transformers": {
            name: {
                "class": type(module).__name__,
                "dtype": str(module.dtype),
                "weights": list(project_weights(module)),
            }
            for name, module in transformers_of(pipe).items()
        },
    }
    before = _bind(folder, folder.model, found)
    if before is None:
        return
    lines = differences(before, _with_known_weights(_plain(found), before))
    if lines:
        raise GalaxyDiTError(
            f"{folder.root} was begun with another model or other settings. Changed: {'; '.join(lines)}. Take a new "
            "--out, or bring back what it was begun with"
        )


def drop_failed(folder: RunFolder, claims: Claims) -> int:
    """Remove the records of failed units, so that they are made again; returns how many there were."""
    failed = [record.unit for record in folder.records() if record.status == FAILED]
    for unit_id in failed:
        claims.forget(unit_id)
        folder.record(unit_id).unlink(missing_ok=True)
    return len(failed)


def _bind(folder: RunFolder, path: Path, data: Mapping[str, Any]) -> Any | None:
    """Write `data` if there is nothing yet, and return what there was."""
    folder.scratch.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    return None if create_durably(text, _scratch(folder), path) else _read(path)


def _scratch(folder: RunFolder) -> Path:
    return folder.scratch / uuid4().hex


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise GalaxyDiTError(f"{path} is damaged ({error}); {CURE}") from error


def _job_data(folder: RunFolder, data: Any) -> Mapping[str, Any]:
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("job"), dict):
        version = data.get("version") if isinstance(data, dict) else None
        raise GalaxyDiTError(f"{folder.job}: version={version!r}, allowed is {VERSION}; {CURE}")
    return data["job"]


def _plain(data: Any) -> Any:
    """As it reads back from JSON."""
    return json.loads(json.dumps(data))


def _with_known_weights(found: Any, before: Any) -> Any:
    """`found`, with the projections that were written down before where they differ by rounding alone."""
    for name, transformer in found["transformers"].items():
        known = before.get("transformers", {}).get(name, {}).get("weights", [])
        close = len(known) == len(transformer["weights"]) and all(
            abs(a - b) <= SAME_WEIGHTS for a, b in zip(known, transformer["weights"], strict=True)
        )
        if close:
            transformer["weights"] = known
    return found
