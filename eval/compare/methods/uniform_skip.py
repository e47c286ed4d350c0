"""What needs no idea of caching: fewer steps, and reuse at regular steps."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import Config
from galaxydit.eval.arena.attach import accelerated, prediction_identity
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.pipelines.settings import GenerationSettings

SPEEDUPS = (1.2, 1.35, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.6)


def full_step_counts(steps: int) -> tuple[int, ...]:
    """How many of the steps are computed for speedups from 1.2 to 3.6, falling."""
    return tuple(sorted({max(2, round(steps / speedup)) for speedup in SPEEDUPS}, reverse=True))


def counts_around(steps: int, speedups: Sequence[float]) -> tuple[int, ...]:
    """The numbers of full steps next above and below each speedup, falling."""
    counts = {count for speedup in speedups for count in (math.floor(steps / speedup), math.ceil(steps / speedup))}
    return tuple(sorted({min(steps, max(2, count)) for count in counts}, reverse=True))


def even_schedule(steps: int, count: int) -> tuple[int, ...]:
    """`count` of the steps, first and last among them, as evenly as whole numbers allow."""
    return tuple(round(index * (steps - 1) / (count - 1)) for index in range(count))


@contextmanager
def _nothing(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    yield Attached(lambda: 0)


def _with_fewer_steps(settings: GenerationSettings, setting: Setting) -> GenerationSettings:
    return replace(settings, steps=setting["steps"])


def following(pipe: DiffusionPipeline, schedule: Sequence[int], order: int) -> AbstractContextManager[Attached]:
    """The plugin computing these steps and predicting the output of the others."""
    return accelerated(pipe, config=Config(schedule=tuple(schedule), order=order))


def _uniform(order: int) -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return following(pipe, even_schedule(setting["steps"], setting["full_steps"]), order)

    return Method(
        name=f"uniform skip order {order}",
        source="control",
        settings=lambda steps: [{"steps": steps, "full_steps": count} for count in full_step_counts(steps)],
        attach=attach,
        identity=prediction_identity,
    )


METHODS = (
    Method(
        name="fewer steps",
        source="control",
        settings=lambda steps: [{"steps": count} for count in full_step_counts(steps)],
        attach=_nothing,
        generation=_with_fewer_steps,
    ),
    _uniform(0),
    _uniform(1),
)
