"""What the store of a job is bound to: the job, and the weights that were loaded first."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.pipelines.runs import Store
from galaxydit.pipelines.runs.differences import differences
from galaxydit.pipelines.runs.record import first_error

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.pipelines.settings import GenerationSettings

KIND = "job"
JOB_COPY, MODEL = "job.toml", "model.json"
SAME_WEIGHTS = 1e-6  # between projections of equal weights on different machines


def open_run(root: str | Path, job: Job, text: str) -> Store:
    """The store of a job whose file holds `text`: a new one in an empty folder, or the one that is there.

    Raises GalaxyDiTError, before anything is written, if the folder holds something else or another job.
    """
    store = Store(root)
    store.create(KIND, asdict(job))
    store.add_text(JOB_COPY, text)
    return store


def load_run(root: str | Path) -> tuple[Store, Job]:
    """The store in a folder, and its job. Raises GalaxyDiTError if there is none or run.json is damaged."""
    store = Store(root)
    conditions = store.header(KIND)["conditions"]
    try:
        return store, TypeAdapter(Job).validate_python(conditions)
    except ValidationError as error:
        wrong = first_error(error, "conditions")
        raise GalaxyDiTError(f"{store.root}/run.json: {wrong}; restore the file, or take a new --out") from error


def bind_model(store: Store, pipe: "DiffusionPipeline", settings: "GenerationSettings") -> None:
    """Bind the store to weights, dtypes, scheduler and settings. Raises GalaxyDiTError if it began with others, as
    after further training, with another copy on another machine, or with a version that recommends other settings.
    """
    from galaxydit.pipelines.conditions import conditions_of

    found = conditions_of(pipe, settings)
    before = store.bind(MODEL, found)
    lines = [] if before is None else differences(before, json.loads(json.dumps(found)), SAME_WEIGHTS)
    if lines:
        raise GalaxyDiTError(
            f"{store.root} was begun with another model or other settings. Changed: {'; '.join(lines)}. Take a new "
            "--out, or bring back what it was begun with"
        )
