"""Control: the plain pipeline with fewer steps, the alternative that needs no plugin."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.methods.uniform_skip import full_step_counts


@contextmanager
def _attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    yield Attached(lambda: 0)


METHOD = Method(
    name="fewer steps",
    source="control",
    settings=lambda steps: [{"steps": count} for count in full_step_counts(steps)],
    attach=_attach,
    generation=lambda settings, setting: replace(settings, steps=setting["steps"]),
)
