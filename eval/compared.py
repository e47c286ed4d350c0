"""Committed results of `galaxydit compare`, names of methods, and cells of differences."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from galaxydit.calibration.bootstrap import interval
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.methods.method_registry import ABLATION, CONTROL, OWN, source_of
from galaxydit.pipelines.table import DASH
from galaxydit.pipelines.wan_tiny.world import draw_prompts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "eval" / "results"
OURS, GENERAL = "galaxydit schedule", "galaxydit without a profile"
PEER, GUESSED = "peer", "guessed"
NAMES = {OURS: "galaxydit calibrated", GENERAL: "galaxydit uncalibrated"}


class NotMeasuredError(GalaxyDiTError):
    """Results that a table needs are not there."""


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

    def command(self) -> str:
        """The command that repeats it; captions that are some of a file are written to one of their own."""
        plan, count, before, prompts = self.data["plan"], len(self.captions), "", "FILE"
        if tuple(draw_prompts(count, 0, apart_from=plan["calibration_prompts"])) == self.captions:
            prompts = str(count)
        for path in sorted(RESULTS.rglob("*.txt")):
            lines = path.read_text(encoding="utf-8").splitlines()
            start = lines.index(self.captions[0]) if self.captions[0] in lines else 0
            if tuple(lines[start : start + count]) != self.captions:
                continue
            prompts = str(path.relative_to(ROOT))
            if start > 0:
                places = f"{start + 1}-{start + count}"
                before, prompts = f"sed -n {start + 1},{start + count}p {prompts} > {places}.txt && ", f"{places}.txt"
            elif len(lines) > count:
                before, prompts = f"head -n {count} {prompts} > {count}.txt && ", f"{count}.txt"
        speedups = ",".join(f"{speedup:g}" for speedup in plan["speedups"])
        methods = ",".join(dict.fromkeys(row["method"] for row in self.data["rows"]))
        tuned = f"--tune-prompts {plan['tuned']}"
        if plan.get("settings_of"):
            tuned = f"--settings-of {path_of(plan['settings_of'])}"
        return (
            f"{before}galaxydit compare --dtype {self.data['conditions']['dtype']} --prompts {prompts} "
            f'--seeds {self.seeds} --speedups {speedups} {tuned} --methods "{methods}"'
        )


def path_of(digest: str) -> str:
    """The committed results.json with a digest; FILE if there is none."""
    for path in sorted(RESULTS.rglob("results.json")):
        if read(path).get("digest") == digest:
            return str(path.relative_to(ROOT))
    return "FILE"


def kind_of(method: str) -> str:
    """Whose method it is: OWN, CONTROL, ABLATION, PEER or, if its formulas are not published, GUESSED."""
    source = source_of(method)
    if source in (OWN, CONTROL, ABLATION):
        return source
    return GUESSED if "(guessed)" in method else PEER


def label(method: str) -> str:
    return NAMES.get(method, method)


def lead(differences: Sequence[float], digits: int = 1) -> str:
    """Mean with its 95 % interval, "level" where that holds 0; "same" if every difference is 0."""
    if not any(differences):
        return "same" if differences else DASH
    form = f"+.{digits}f"
    mean = fmean(differences)
    low, high = interval(differences)
    if low is None or high is None:
        return f"{mean:{form}}"
    text = f"{mean:{form}} ({low:{form}} to {high:{form}})"
    return f"{text}, level" if low <= 0 <= high else text


def read(path: Path) -> Any:
    """The content of a JSON file. Raises NotMeasuredError without the file."""
    if not path.exists():
        raise NotMeasuredError(f"there is no {path}")
    return json.loads(path.read_text(encoding="utf-8"))
