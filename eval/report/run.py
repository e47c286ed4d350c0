"""A run as the report sees it: its job, its records and what they come to."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.record import Record, RunFolder
from galaxydit.eval.jobs.run import load_job
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.summary import Figure, VariantSummary, baselines_of, figures_of, summarise


@dataclass(frozen=True)
class Run:
    """What lies in a run's folder.

    Attributes:
        records: in the job's order of prompts, seeds and variants.
    """

    folder: RunFolder
    job: Job
    records: tuple[Record, ...]

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Their names, the baseline first."""
        return tuple(variant.name for variant in self.job.variants)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The columns of figures that the records can fill."""
        return figures_of(self.records, METRICS)

    @cached_property
    def baselines(self) -> Mapping[tuple[int, int], Record]:
        """The finished baselines by (prompt index, seed)."""
        return baselines_of(self.records)

    @cached_property
    def summaries(self) -> tuple[VariantSummary, ...]:
        """One for each variant, in the order of `variants`."""
        return summarise(self.records, self.variants, self.figures, len(self.job.units()) // len(self.variants))


def read_run(root: Path) -> Run:
    """The run in this folder. Raises GalaxyDiTError if there is none, if nothing is finished or a record is damaged."""
    folder = RunFolder(root)
    job = load_job(folder)
    found = {record.unit: record for record in folder.records()}
    records = tuple(found[unit.id] for unit in job.units() if unit.id in found)
    if not records:
        raise GalaxyDiTError(f"{root} holds no finished unit; let `galaxydit eval run` finish one first")
    return Run(folder, job, records)
