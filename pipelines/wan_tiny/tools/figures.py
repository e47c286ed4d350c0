"""The figures of wan-tiny's model card, their targets, and whether the targets are met."""

import statistics
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from galaxydit.pipelines.wan_tiny.world import DIRECTIONS, MOTIONS

Record = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """The mean over `n` clauses or prompts, None without any, and its target."""

    name: str
    value: float | None
    n: int
    minimum: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None without a value or a target."""
        return None if self.value is None or self.minimum is None else self.value >= self.minimum

    @property
    def target(self) -> str:
        return "" if self.minimum is None else f">= {self.minimum:g}"


def summarise(records: Iterable[Record]) -> list[Figure]:
    """The figures of the model card: agreements are shares of clauses, PSNRs means over prompts in dB."""
    records = list(records)

    def over_clauses(name: str, kind: str, finding: str, motions: Container[str], **target: float) -> Figure:
        holds = [row[finding] for record in records for row in record[kind] if row["motion"] in motions]
        return Figure(name, statistics.fmean(holds) if holds else None, len(holds), **target)

    def over_prompts(name: str, key: str, **target: float) -> Figure:
        return Figure(name, statistics.fmean(record[key] for record in records), len(records), **target)

    figures = [over_prompts("VAE reconstruction, dB", "vae_psnr")]
    names = {"guided": "", "unguided": " without guidance", "rebuilt": " of reconstructions"}
    for kind, suffix in names.items():
        aims = {"minimum": 0.85} if kind == "guided" else {}
        every = (*MOTIONS, "")
        figures += [
            over_clauses("colour agreement" + suffix, kind, "colour_found", every, **aims),
            over_clauses("direction agreement" + suffix, kind, "motion_found", DIRECTIONS, **aims),
            over_clauses("motion agreement" + suffix, kind, "motion_found", MOTIONS),
            over_clauses("stillness agreement" + suffix, kind, "motion_found", ("",)),
        ]
    return [*figures, over_prompts("half the steps against all, dB", "half_steps_psnr")]


def as_table(figures: list[Figure]) -> Table:
    table = Table("figure", "value", "n", "target", "holds", title="wan-tiny")
    for figure in figures:
        value = "none" if figure.value is None else f"{figure.value:.3f}"
        holds = "" if figure.holds is None else "yes" if figure.holds else "NO"
        table.add_row(figure.name, value, str(figure.n), figure.target, holds)
    return table
