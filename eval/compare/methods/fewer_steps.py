"""Control: the plain pipeline with fewer steps, the alternative that needs no plugin."""

from contextlib import nullcontext
from dataclasses import replace

from galaxydit.eval.compare.method import Attached, Method
from galaxydit.eval.compare.methods.uniform_skip import full_step_counts

METHOD = Method(
    name="fewer steps",
    settings=lambda steps: [{"steps": count} for count in full_step_counts(steps)],
    attach=lambda pipe, setting, calibration: nullcontext(Attached(lambda: 0)),
    generation=lambda settings, setting: replace(settings, steps=setting["steps"]),
)
