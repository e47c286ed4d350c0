"""Read a run of `galaxydit eval run`: its job, which says what to generate, and the records of its videos."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import FEWER_STEPS, Job
from galaxydit.eval.jobs.record import BASELINE, VideoRecord, video_record
from galaxydit.eval.jobs.run_job import load_run
from galaxydit.eval.report.variant_titles import titles_of
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.pipelines.runs import Store, not_checked


@dataclass(frozen=True)
class Run:
    """A run, finished or not."""

    store: Store
    job: Job
    records: tuple[VideoRecord, ...]  # of the readable units that are done or failed, in the job's order
    damaged: int  # units with a damaged record or file

    @property
    def root(self) -> Path | None:
        """None if the run is not on this machine."""
        return Path(self.store.root) if self.store.is_local else None

    @cached_property
    def baselines(self) -> Mapping[tuple[int, int], VideoRecord]:
        """Finished baseline records by (prompt index, seed)."""
        return {record.pair: record for record in self.records if record.variant == BASELINE and record.is_done}

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """What readers see in place of the name of each variant (`titles_of`)."""
        return titles_of(self.job)

    @property
    def not_checked(self) -> str:
        """How many records have no digest (`pipelines.runs.not_checked`); empty if all have one."""
        return not_checked(self.records)

    @cached_property
    def disturbance(self) -> str:
        """Why the seconds must not be compared (`galaxydit.pipelines.disturbance`); empty if nothing shows that."""
        return disturbance([_timed(self, record) for record in self.records if record.is_done])


def _timed(run: Run, record: VideoRecord) -> Timed:
    method = next(variant.method for variant in run.job.variants if variant.name == record.variant)
    place = f"{record.device} {record.worker.rpartition(':')[0]}"
    way = PLAIN if method in (BASELINE, FEWER_STEPS) else run.titles[record.variant]
    return record.timed(way, place)


def read_run(root: str | Path) -> Run:
    """The run at a folder or address. Raises GalaxyDiTError if there is none, or if no unit has a record yet."""
    store, job = load_run(root)
    survey = list(store.survey([unit.id for unit in job.units()]))
    records = tuple(video_record(record, damage) for _, record, damage in survey if record is not None)
    if not records:
        raise GalaxyDiTError(f"{root} holds no finished unit; let `galaxydit eval run` finish one first")
    return Run(store, job, records, damaged=sum(bool(damage) for _, _, damage in survey))
