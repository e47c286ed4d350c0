"""TeaCache (Liu et al., arXiv 2411.19108; github.com/ali-vilab/TeaCache, TeaCache4Wan2.1).

The change of the time embedding from step to step, put through a polynomial, estimates the change of the model's output
(sections 3.2 and 3.3). Estimates add up, and a step is computed when the sum reaches a threshold (equation 7). Each
guidance branch decides for itself, though the time embedding tells both the same. Reused is what the block stack added
to its input.

The authors publish polynomials for models of theirs alone. For any other model it is fitted here as they describe: of
degree 4, by least squares, on the relative L1 changes of embedding and output between neighbouring steps of recorded
generations. An estimate below 0, which a polynomial may give, counts as 0.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline

from galaxydit.eval.arena.attach import spread
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.policies.attachment import under_policy
from galaxydit.eval.arena.policies.recording import CONDITIONAL, record_all, relative_change
from galaxydit.eval.arena.policies.rule import AccumulationRule, Seen, share_of_steps
from galaxydit.pipelines.settings import GenerationSettings

DEGREE = 4


def new_rule(threshold: float, coefficients: Sequence[float], first: int, last: int) -> AccumulationRule:
    """The polynomial's estimates add up; `coefficients` with the highest degree first."""

    def estimate(seen: Seen) -> float | None:
        return None if seen.change is None else float(np.polyval(coefficients, seen.change))

    return AccumulationRule(threshold, first, last, estimate)


def fit_polynomial(changes: Sequence[float], output_changes: Sequence[float]) -> list[float]:
    """Coefficients that estimate the output's change from the embedding's, highest degree first."""
    degree = min(DEGREE, len(set(changes)) - 1)
    return [float(value) for value in np.polyfit(changes, output_changes, degree)]


def settings(steps: int) -> list[Setting]:
    """The authors' two modes: the first and the last step full, or the first tenth (their 5 of 50) and none at the end.
    The second watches the embedding after its projection.
    """
    plain = {"signal": "time_embedding", "first": 1, "last": 1}
    retention = {"signal": "time_projection", "first": share_of_steps(steps, 0.1), "last": 0}
    return [mode | {"threshold": value} for mode in (plain, retention) for value in spread(0.012, 0.5, 14)]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """A polynomial for each of the two embeddings."""
    changes: dict[str, list[float]] = {"time_embedding": [], "time_projection": []}
    output_changes: list[float] = []
    for recorded in record_all(pipe, prompts, generation, seed):
        outputs = recorded.outputs[CONDITIONAL]
        for step in range(1, recorded.steps):
            output_changes.append(relative_change(outputs[step], outputs[step - 1]))
            for name, kept in (
                ("time_embedding", recorded.time_embeddings),
                ("time_projection", recorded.time_projections),
            ):
                changes[name].append(relative_change(kept[step], kept[step - 1]))
    return {name: fit_polynomial(values, output_changes) for name, values in changes.items()}


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    coefficients = calibration[setting["signal"]]
    return under_policy(
        pipe,
        lambda: new_rule(setting["threshold"], coefficients, setting["first"], setting["last"]),
        signal=setting["signal"],
        joint=False,
    )


METHOD = Method("TeaCache", "arXiv 2411.19108", settings, attach, calibrate)
