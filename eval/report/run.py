"""A run as the report sees it: its job, its records and what they come to."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.record import VideoRecord, video_record
from galaxydit.eval.jobs.run_job import load_run
from galaxydit.eval.report.summary import Figure, VariantSummary, baselines_of, figures_of, summarise
from galaxydit.pipelines.runs import Store


@dataclass(frozen=True)
class Run:
    """What lies in a run's folder.

    Attributes:
        records: in the job's order of prompts, seeds and variants; without those that are damaged.
        damaged: what is wrong with the record or the video of a unit, by its id.
    """

    store: Store
    job: Job
    records: tuple[VideoRecord, ...]
    damaged: Mapping[str, str]

    @property
    def root(self) -> Path | None:
        """The folder, None if it is not on this machine."""
        return Path(self.store.root) if self.store.is_local else None

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Their names, the baseline first."""
        return tuple(variant.name for variant in self.job.variants)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The columns of figures that the records can fill."""
        return figures_of(self.records)

    @cached_property
    def baselines(self) -> Mapping[tuple[int, int], VideoRecord]:
        """The finished baselines by (prompt index, seed)."""
        return baselines_of(self.records)

    @cached_property
    def summaries(self) -> tuple[VariantSummary, ...]:
        """One for each variant, in the order of `variants`."""
        return summarise(self.records, self.variants, self.figures, len(self.job.units()) // len(self.variants))


def read_run(root: str | Path) -> Run:
    """The run in this folder. Raises GalaxyDiTError if there is none, or if nothing is finished."""
    store, job = load_run(root)
    records, damaged = [], {}
    for unit_id, record, damage in store.survey([unit.id for unit in job.units()]):
        if damage:
            damaged[unit_id] = damage
        if record is not None:
            records.append(video_record(record, damage))
    if not records:
        raise GalaxyDiTError(f"{root} holds no finished unit; let `galaxydit eval run` finish one first")
    return Run(store, job, tuple(records), damaged)
