"""The plan of a comparison: prompts, seeds and speedups, checked without torch."""

from dataclasses import dataclass

from galaxydit.errors import check_number, refusal

TUNING_SEED = 50_000
SCORING_SEED = 100_000  # noise that neither tuning nor any calibration sees


@dataclass(frozen=True)
class Case:
    """One prompt, and the seed of its noise."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class ComparisonPlan:
    """Prompts, seeds and speedups of a comparison.

    Raises GalaxyDiTError for values that break a rule below, and for a tuple that is empty or repeats a value.

    Attributes:
        prompts: the scored prompts; prompt i with seed s starts from the noise of seed 100,000 + s + i.
        seeds: each prompt is scored with each seed; the noise's seed must stay below 2^64.
        calibration_prompts: for calibration and tuning. None of them may be in `prompts`, because a profile (the
            plugin's calibration for a model) may have been measured on any of them.
        speedups: wanted speedups by compute, each from 1.05 to 10.
        tuned: number of calibration prompts that are used, counted from the first; from 1 to all.
    """

    prompts: tuple[str, ...]
    seeds: tuple[int, ...]
    calibration_prompts: tuple[str, ...]
    speedups: tuple[float, ...]
    tuned: int = 8

    def __post_init__(self) -> None:
        for name in ("prompts", "seeds", "calibration_prompts", "speedups"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise refusal(name, list(values), "one or more different values", "pass each once")
        for speedup in self.speedups:
            check_number("speedups", speedup, 1.05, 10.0)
        if not 1 <= self.tuned <= len(self.calibration_prompts):
            expected = f"1 to {len(self.calibration_prompts)}, the number of calibration prompts"
            raise refusal("tuned", self.tuned, expected, "tune on fewer, or pass more calibration prompts")
        if max(self.seeds) > (largest := 2**64 - SCORING_SEED - len(self.prompts)):
            expected = f"at most {largest}, because {SCORING_SEED} and the prompt's index are added"
            raise refusal("seeds", max(self.seeds), expected, "pass for example 0")
        seen = set(self.prompts) & set(self.calibration_prompts)
        if seen:
            expected = f"none of the calibration prompts, of which it holds {len(seen)}"
            raise refusal("prompts", min(seen), expected, "leave them out, because settings were tuned on them")

    @property
    def cases(self) -> tuple[Case, ...]:
        """The scored cases: the first prompt with all seeds, then the second prompt, and so on."""
        pairs = ((index, seed) for index in range(len(self.prompts)) for seed in self.seeds)
        return tuple(Case(self.prompts[index], SCORING_SEED + seed + index) for index, seed in pairs)

    @property
    def tuning_prompts(self) -> tuple[str, ...]:
        """The prompts that are used for calibration and tuning: the first `tuned` calibration prompts."""
        return self.calibration_prompts[: self.tuned]

    @property
    def tuning_cases(self) -> tuple[Case, ...]:
        """The cases on which settings are tuned: each of `tuning_prompts`, the first `tuned` calibration prompts, with
        one seed for its noise, 50,000 + the prompt's index.
        """
        return tuple(Case(prompt, TUNING_SEED + index) for index, prompt in enumerate(self.tuning_prompts))
