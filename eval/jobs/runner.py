"""A job from its first to its last unit, by any number of processes that share a folder.

Each process takes the next unit that nobody has. Nothing is dealt out beforehand, and nobody waits for a slow one until
the last units are others' work. A baseline comes before its variants.
"""

import errno
import json
import logging
import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline

from galaxydit.calibration.provenance import device_name
from galaxydit.eval.jobs.claims import Claim, Claims
from galaxydit.eval.jobs.durable import write_durably
from galaxydit.eval.jobs.job import Job, baseline_of
from galaxydit.eval.jobs.methods import calibrate, check_on, is_from_arena, measure_plain_compute, needs_calibration
from galaxydit.eval.jobs.progress import Progress
from galaxydit.eval.jobs.rank import Rank, this_rank
from galaxydit.eval.jobs.record import BASELINE, Record, RunFolder, Unit
from galaxydit.eval.jobs.run import bind_model, drop_failed, open_run
from galaxydit.eval.jobs.work import BaselineFailedError, Station, Workshop
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings, recommended_settings

logger = logging.getLogger(__name__)

ATTEMPTS = 3
EXPIRY = 60.0  # seconds without a sign of life
POLL = 1.0  # seconds between two looks for work
WARM_UP_STEPS = 3
CALIBRATION_SEED = 1_000_000
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    done: int
    failed: int


def run_job(
    job: Job,
    text: str,
    out: Path,
    *,
    expiry: float = EXPIRY,
    retry_failed: bool = False,
    progress: Callable[[RunFolder, Job, Rank], Progress] = Progress,
) -> Outcome:
    """Make all units that are not done yet, together with whoever else runs the same job in the same folder.

    Under torchrun or `accelerate launch` each rank calls this. It returns when every unit has a record.

    Args:
        text: the job file, to be copied beside the results.
        out: folder, shared by all processes.
        expiry: seconds after which a worker without a sign of life has lost its unit; equal for all workers.
        retry_failed: make failed units again.
        progress: what is told of it.

    Raises:
        GalaxyDiTError: another job or another model in the folder, or a variant that does not suit the model.
        OSError: the disk is full.
    """
    folder = RunFolder(out)
    rank = this_rank()
    open_run(folder, job, text)
    claims = Claims(folder.claims, f"{socket.gethostname()}:{os.getpid()}", expiry)
    try:
        if retry_failed and rank.is_main:
            drop_failed(folder, claims)
        if {unit.id for unit in job.units()} - folder.finished():
            _work(folder, job, claims, rank, progress)
        return _outcome(folder)
    except BaseException as error:
        if _is_disk_full(error):
            raise OSError(
                errno.ENOSPC,
                f"no space is left for {folder.root}: free some, then give the same command again; "
                f"{len(folder.finished())} of {len(job.units())} units are done and stay done",
            ) from error
        raise
    finally:
        with suppress(OSError):
            claims.close()


def _work(folder: RunFolder, job: Job, claims: Claims, rank: Rank, progress: Any) -> None:
    pipe, settings = _load(job, rank)
    bind_model(folder, pipe, settings)
    for variant in job.variants:
        check_on(pipe, variant)
    # One-time costs, and sizes that the pipeline refuses, before anything counts.
    prompt, seed = job.prompts[0], job.seeds_of(0)[0]
    if settings.steps is not None:
        generate(pipe, prompt, replace(settings, steps=min(WARM_UP_STEPS, settings.steps)), seed)
    from_arena = any(is_from_arena(variant.method) for variant in job.variants)
    workshop = Workshop(
        folder,
        job,
        pipe,
        settings,
        Station(device_name(pipe), rank.index, f"{socket.gethostname()}:{os.getpid()}"),
        calibrations=_calibrations(folder, job, claims, pipe, settings),
        plain=measure_plain_compute(pipe, prompt, settings, seed) if from_arena else None,
    )
    with progress(folder, job, rank) as shown:
        Worker(workshop, claims, shown).run()


def _load(job: Job, rank: Rank) -> tuple[DiffusionPipeline, GenerationSettings]:
    dtype = None if job.dtype is None else getattr(torch, job.dtype)
    pipe = load_pipeline(job.model, dtype=dtype, device=rank.take_device(), revision=job.revision)
    pipe.set_progress_bar_config(disable=True)
    return pipe, replace(recommended_settings(pipe), **job.settings)


class Worker:
    """One process at work."""

    def __init__(self, workshop: Workshop, claims: Claims, progress: Progress) -> None:
        self.workshop = workshop
        self.folder = workshop.folder
        self.claims = claims
        self.progress = progress
        self.units = workshop.job.units()

    def run(self) -> None:
        """Until every unit has a record."""
        while left := self._left():
            taken = self._take(left)
            if taken is None:
                self.progress.wait()
                time.sleep(min(POLL, self.claims.expiry / 4))
                continue
            unit, claim = taken
            with claim:
                if self.folder.record(unit.id).is_file():
                    self.claims.forget(unit.id)
                else:
                    self._finish(unit, claim)
        self._tidy()

    def _left(self) -> list[Unit]:
        finished = self.folder.finished()
        left = [unit for unit in self.units if unit.id not in finished]
        return [unit for unit in left if unit.variant == BASELINE or baseline_of(unit).id in finished]

    def _take(self, units: list[Unit]) -> tuple[Unit, Claim] | None:
        for unit in units:
            if (claim := self.claims.take(unit.id)) is not None:
                return unit, claim
        return None

    def _finish(self, unit: Unit, claim: Claim) -> None:
        # Named after the claim, so that nobody else writes there, alive or thought dead.
        scratch = self.folder.scratch / claim.path.name
        self.progress.begin(unit)
        try:
            record = self._attempt(unit, scratch)
            if claim.is_lost or self.folder.record(unit.id).is_file():
                logger.warning("%s: another worker took this one for dead and has the unit; dropped here", unit.id)
                return
            self.workshop.commit(unit, scratch, record)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self.claims.forget(unit.id)
        self._drop_frames(unit)
        self.progress.finish(record)

    def _attempt(self, unit: Unit, scratch: Path) -> Record:
        text = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.workshop.make(unit, scratch, attempt)
            except BaselineFailedError:
                return self.workshop.failure(unit, attempt, traceback.format_exc())
            except Exception as error:
                if _is_disk_full(error):
                    raise
                text = traceback.format_exc()
                logger.warning("%s, attempt %d of %d: %s", unit.id, attempt, ATTEMPTS, error)
        return self.workshop.failure(unit, ATTEMPTS, text)

    def _drop_frames(self, unit: Unit) -> None:
        """Once every variant of its prompt and seed is finished, a baseline's frames have served."""
        finished = self.folder.finished()
        if all(other.id in finished for other in self.units if other.pair == unit.pair):
            self.folder.baseline_frames(baseline_of(unit).id).unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Remove what killed workers have left. A file in scratch is that of a worker which is just joining."""
        for path in self.folder.scratch.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        for kind in (self.folder.frames, self.folder.claims):
            for path in kind.iterdir() if kind.is_dir() else ():
                path.unlink(missing_ok=True)


def _calibrations(
    folder: RunFolder, job: Job, claims: Claims, pipe: DiffusionPipeline, settings: GenerationSettings
) -> Mapping[str, Any]:
    """What methods measure beforehand: by the first worker, for all."""
    found: dict[str, Any] = {}
    wanted = {variant.method for variant in job.variants if needs_calibration(variant.method)}
    while missing := sorted(wanted - set(found)):
        for method in missing:
            path = folder.calibrations / f"{method}.json"
            if path.is_file():
                found[method] = json.loads(path.read_text(encoding="utf-8"))
            elif (claim := claims.take(f"calibration-{method}")) is not None:
                with claim:
                    if not path.is_file():
                        data = calibrate(pipe, method, job.calibration, settings, CALIBRATION_SEED)
                        write_durably(json.dumps(data), folder.scratch / claim.path.name, path)
        if set(found) < wanted:
            time.sleep(min(POLL, claims.expiry / 4))
    return found


def _outcome(folder: RunFolder) -> Outcome:
    records = folder.records()
    done = sum(record.is_done for record in records)
    return Outcome(done, len(records) - done)


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether it, or what it was raised from or during, says so."""
    while error is not None:
        if getattr(error, "errno", None) in NO_SPACE:
            return True
        error = error.__cause__ or error.__context__
    return False
