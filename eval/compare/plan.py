"""The plan of a comparison: prompts, seeds and speedups, checked without torch."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from galaxydit.errors import check_number, listed, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from galaxydit.eval.compare.scored_settings import ScoredSettings
    from galaxydit.eval.jobs.job import Job
    from galaxydit.eval.methods.method import Method

TUNING_SEED = 50_000
RESULTS, PAGE = "results.json", "comparison.html"  # in the comparison's folder
SCORING_SEED = 100_000  # noise that neither tuning nor any calibration sees


def video_name(speedup: float) -> str:
    """The name of the side-by-side video of a wanted speedup, in the comparison's folder."""
    return f"side-by-side-{speedup:g}x.mp4"


@dataclass(frozen=True)
class ComparisonPlan:
    """Prompts, seeds and wanted speedups by compute (from 1.05 to 10), each without repetition.

    Calibration prompts, of which the first `tuned` are used, must not be scored, because a profile may have been
    measured on them. `settings_of` is the digest of the comparison whose settings are scored; nothing is tuned then.
    Raises GalaxyDiTError for other values.
    """

    prompts: tuple[str, ...]
    seeds: tuple[int, ...]
    calibration_prompts: tuple[str, ...]
    speedups: tuple[float, ...]
    tuned: int = 8
    settings_of: str = ""

    def __post_init__(self) -> None:
        for name in ("prompts", "seeds", "calibration_prompts", "speedups"):
            values = listed(name, getattr(self, name), str if name.endswith("prompts") else float)
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise refusal(name, list(values), "one or more different values", "pass each once")
        for speedup in self.speedups:
            check_number("speedups", speedup, 1.05, 10.0)
        if not 1 <= self.tuned <= len(self.calibration_prompts):
            expected = f"1 to {len(self.calibration_prompts)}, the number of calibration prompts"
            raise refusal("tuned", self.tuned, expected, "tune on fewer, or pass more calibration prompts")
        if max(self.seeds) > (largest := 2**63 - SCORING_SEED - len(self.prompts)):
            expected = f"at most {largest}, because {SCORING_SEED} and the prompt's index are added"
            raise refusal("seeds", max(self.seeds), expected, "pass for example 0")
        seen = set(self.prompts) & set(self.calibration_prompts)
        if seen:
            expected = f"none of the calibration prompts, of which it holds {len(seen)}"
            raise refusal("prompts", min(seen), expected, "leave them out, because settings were tuned on them")

    def generations(
        self, methods: "Sequence[Method]", steps: int, scored: "ScoredSettings | None" = None
    ) -> tuple[int, int]:
        """Most generations to tune and to score; with the settings of another comparison none to tune."""
        if scored is not None:
            settings = 1 + sum(len(scored.by_method[method.name]) for method in methods)
            return 0, settings * len(self.prompts) * len(self.seeds)
        candidates = sum(len(method.settings(steps)) for method in methods if method.tuned)
        return candidates * self.tuned, len(methods) * (len(self.speedups) + 1) * len(self.prompts) * len(self.seeds)

    @property
    def tuning_prompts(self) -> tuple[str, ...]:
        return self.calibration_prompts[: self.tuned]

    def tuning(self, job: "Job") -> "Job":
        """`job` with the tuning prompts; prompt i starts from the noise of seed 50,000 + i."""
        return replace(job, prompts=self.tuning_prompts, seed=TUNING_SEED, seeds=None)

    def scoring(self, job: "Job") -> "Job":
        """`job` with the scored prompts: with one seed s, prompt i starts from the noise of 100,000 + s + i.

        With several, each prompt starts from 100,000 + s of each.
        """
        if len(self.seeds) == 1:
            return replace(job, prompts=self.prompts, seed=SCORING_SEED + self.seeds[0], seeds=None)
        return replace(job, prompts=self.prompts, seeds=tuple(SCORING_SEED + seed for seed in self.seeds))
