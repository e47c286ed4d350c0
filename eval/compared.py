"""Committed comparisons whose values belong in one table, and the cells of that table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import relpath
from pathlib import Path
from statistics import fmean
from typing import Any

from galaxydit.calibration.bootstrap import interval
from galaxydit.eval.methods.method_registry import ABLATION, CONTROL, OWN, source_of
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.table import DASH
from galaxydit.pipelines.wan_tiny.world import draw_prompts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "eval" / "results"
OURS, GENERAL = "galaxydit schedule", "galaxydit without a profile"
PEER, GUESSED = "peer", "guessed"
NAMES = {OURS: "galaxydit calibrated", GENERAL: "galaxydit uncalibrated"}
SHORT = 2.0  # the speedup by which a table is sorted
Key = tuple[str, float]
"""Method and speedup by compute."""


@dataclass(frozen=True)
class ResultsFile:
    """A results.json of `galaxydit compare`."""

    path: Path

    @cached_property
    def data(self) -> dict[str, Any]:
        return read(self.path)

    @property
    def captions(self) -> tuple[str, ...]:
        return tuple(self.data["plan"]["prompts"])

    @property
    def seeds(self) -> str:
        return ",".join(map(str, self.data["plan"]["seeds"]))

    @cached_property
    def results(self) -> dict[Key, dict[str, Any]]:
        """What reached its speedup."""
        rows = self.data["at_speedups"]
        return {(row["method"], row["speedup"]): row for row in rows if row["psnr"] is not None}

    def command(self) -> str:
        """The command that repeats it; captions that are the first ones of a file are written to one of their own."""
        plan, count, before, prompts = self.data["plan"], len(self.captions), "", "FILE"
        if tuple(draw_prompts(count, 0, apart_from=plan["calibration_prompts"])) == self.captions:
            prompts = str(count)
        for path in sorted(RESULTS.rglob("*.txt")):
            lines = path.read_text(encoding="utf-8").splitlines()
            if tuple(lines[:count]) == self.captions:
                prompts = str(path.relative_to(ROOT))
                if len(lines) > count:
                    before, prompts = f"head -n {count} {prompts} > {count}.txt && ", f"{count}.txt"
        speedups = ",".join(f"{speedup:g}" for speedup in plan["speedups"])
        methods = ",".join(dict.fromkeys(row["method"] for row in self.data["rows"]))
        return (
            f"{before}galaxydit compare --dtype {self.data['conditions']['dtype']} --prompts {prompts} "
            f'--seeds {self.seeds} --speedups {speedups} --tune-prompts {plan["tuned"]} --methods "{methods}"'
        )


@dataclass(frozen=True)
class Compared:
    """Results on the same captions.

    `runs` are all of the same conditions, most captions first: of two with the same result and seeds, the first one
    counts. A caption's PSNR is the mean over its seeds.
    """

    runs: Sequence[ResultsFile]
    captions: tuple[str, ...]

    @cached_property
    def counted(self) -> dict[Key, dict[str, ResultsFile]]:
        """The runs of each result by their seeds."""
        found: dict[Key, dict[str, ResultsFile]] = {}
        for run in self.runs:
            for key in run.results:
                captions = first_captions(self.runs, key)
                if set(self.captions) <= set(captions):
                    found.setdefault(key, {}).setdefault(run.seeds, run)
        return found

    @property
    def speedups(self) -> list[float]:
        return sorted({key[1] for key in self.counted if first_captions(self.runs, key) == self.captions})

    @cached_property
    def methods(self) -> list[str]:
        """This project's, controls, peers, guessed peers, ablations; in each kind by the PSNR at `SHORT`."""
        kinds, names = (OWN, CONTROL, PEER, GUESSED, ABLATION), dict.fromkeys(method for method, _ in self.counted)
        return sorted(names, key=lambda name: (kinds.index(kind_of(name)), name != OURS, -self.mean(name, SHORT)))

    def psnrs(self, method: str, speedup: float) -> dict[tuple[str, str], float]:
        """By caption and seeds, in dB; empty if the method does not reach the speedup."""
        return {
            (caption, seeds): psnr
            for seeds, run in self.counted.get((method, speedup), {}).items()
            for caption, psnr in zip(run.captions, run.results[method, speedup]["psnr_of_prompt"], strict=True)
            if caption in self.captions
        }

    def means(self, method: str, speedup: float) -> list[float]:
        return by_caption(self.psnrs(method, speedup))

    def mean(self, method: str, speedup: float) -> float:
        return fmean(self.means(method, speedup) or [0.0])

    def strongest(self, kind: str, speedup: float) -> str:
        """The method of a kind with the highest mean PSNR at a speedup, "" for none."""
        names = [name for name, at in self.counted if at == speedup and kind_of(name) == kind]
        return max(names, key=lambda name: self.mean(name, speedup), default="")

    def psnr(self, method: str, speedup: float) -> str:
        """Mean and worst caption, such as "36.0 (30.3)"; bold for the strongest control and the strongest peer."""
        means = self.means(method, speedup)
        text = f"{fmean(means):.1f} ({min(means):.1f})" if means else DASH
        return f"**{text}**" if method in (self.strongest(CONTROL, speedup), self.strongest(PEER, speedup)) else text

    def clock(self, method: str, speedup: float) -> str:
        """Seconds of denoising plain / with the method, marked if other work disturbed them."""
        rows = [run.results[method, speedup] for run in self.counted.get((method, speedup), {}).values()]
        disturbed = "".join(row.get("disturbance", "") for row in rows)
        return marked(f"{fmean(row['denoise_speedup'] for row in rows):.2f}", disturbed) if rows else DASH

    def difference(self, method: str, other: str, speedup: float) -> str:
        """Mean difference of PSNR with its paired interval over captions, or "same"."""
        mine, others = self.psnrs(method, speedup), self.psnrs(other, speedup)
        return lead(by_caption({key: mine[key] - others[key] for key in mine if key in others}))

    @property
    def used(self) -> list[ResultsFile]:
        paths = {run.path for runs in self.counted.values() for run in runs.values()}
        return [run for run in self.runs if run.path in paths]

    def caption(self, page: Path) -> str:
        """Device, dtype, versions, captions and seeds, the PSNR of rounding, and the data."""
        conditions = self.runs[0].data["conditions"]
        where = [conditions["device"], conditions["dtype"], *map(" ".join, conditions["versions"].items())]
        data = [
            f"[{run.path.parent.name}]({relpath(run.path, page.parent)}) ({len(run.captions)}, seed {run.seeds})"
            for run in self.used
        ]
        captions, steps = f"{len(self.captions)} captions", f"{conditions['settings']['steps']} steps"
        return f"{captions}, {steps}, {', '.join(where)}; data (captions): {', '.join(data)}. {self.rounding()}".strip()

    def rounding(self) -> str:
        """What rounding alone leaves between two plain runs of these captions; "" where it was not measured."""
        plain = {
            (caption, run.seeds): psnr
            for run in self.used
            for row in run.data["rows"]
            if row["method"] == "repeated plain run"
            for caption, psnr in zip(run.captions, row["psnr_of_prompt"], strict=True)
            if caption in self.captions
        }
        return f"Rounding alone leaves {fmean(by_caption(plain)):.1f} dB between two plain runs." if plain else ""

    def commands(self) -> str:
        return "\n".join(("```text", *(run.command() for run in self.used), "```"))


def first_captions(runs: Sequence[ResultsFile], key: Key) -> tuple[str, ...]:
    """The captions of the first run that has a result."""
    return next(run.captions for run in runs if key in run.results)


def comparisons(results: Path) -> list[Compared]:
    """The tables of the runs below compare/, that of the first screen first: bfloat16, this project, most captions."""
    groups: dict[str, list[ResultsFile]] = {}
    for path in sorted((results / "compare").rglob("results.json"), key=lambda path: (len(path.parts), path)):
        run = ResultsFile(path)
        groups.setdefault(json.dumps(run.data["conditions"], sort_keys=True), []).append(run)
    tables = []
    for runs in groups.values():
        runs.sort(key=lambda run: -len(run.captions))
        keys = dict.fromkeys(key for run in runs for key in run.results)
        tables += [Compared(runs, captions) for captions in dict.fromkeys(first_captions(runs, key) for key in keys)]

    def order(table: Compared) -> tuple[bool, bool, int]:
        dtype = table.runs[0].data["conditions"]["dtype"]
        return dtype != "bfloat16", OURS not in table.methods, -len(table.captions)

    return sorted(tables, key=order)


def kind_of(method: str) -> str:
    """Whose method it is: OWN, CONTROL, ABLATION, PEER or, if its formulas are not published, GUESSED."""
    source = source_of(method)
    return source if source in (OWN, CONTROL, ABLATION) else GUESSED if "(guessed)" in method else PEER


def label(method: str) -> str:
    return NAMES.get(method, method)


def by_caption(psnrs: Mapping[tuple[str, str], float]) -> list[float]:
    """The mean of each caption over its seeds."""
    found: dict[str, list[float]] = {}
    for (caption, _), psnr in psnrs.items():
        found.setdefault(caption, []).append(psnr)
    return list(map(fmean, found.values()))


def lead(differences: Sequence[float], digits: int = 1) -> str:
    """Mean with its 95 % interval, "level" where that holds 0; "same" if every difference is 0."""
    if not any(differences):
        return "same" if differences else DASH
    form = f"+.{digits}f"
    mean = fmean(differences)
    low, high = interval(differences)
    if low is None or high is None:
        return f"{mean:{form}}"
    return f"{mean:{form}} ({low:{form}} to {high:{form}})" + ", level" * (low <= 0 <= high)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
