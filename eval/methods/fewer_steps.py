"""Control: the plain pipeline with fewer steps, the alternative that needs no plugin."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.uniform_skip import full_step_counts
from galaxydit.pipelines.trial import Attached, plain


@method(
    "fewer steps",
    "control",
    lambda steps: [{"steps": count} for count in full_step_counts(steps)],
    generation=lambda settings, setting: replace(settings, steps=setting["steps"]),
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return plain(pipe)
