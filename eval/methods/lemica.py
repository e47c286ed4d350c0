"""LeMiCa (arXiv 2511.00090): the steps that its code computes on Wan2.1-T2V-1.3B, planned by the final video's error.

They were planned for 50 steps of UniPC at flow shift 5 and guidance scale 5. LeMiCa repeats the last residual of the
block stack; with the plugin's reuse, the lists alone are compared.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.eval.methods.accumulation import attached
from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.step_list import scaled
from galaxydit.pipelines.trial import Attached, accelerated

LISTS: Sequence[Sequence[int]] = (
    (*range(13), 14, 16, 18, 21, 24, 29, 35, 40, 44, 47, 48, 49),
    (*range(10), 11, 13, 16, 20, 26, 33, 40, 45, 48, 49),
    (*range(9), 10, 13, 18, 25, 32, 39, 46, 49),
    (*range(6), 7, 10, 16, 23, 30, 37, 44, 49),
)
"""From accurate to fast, of 50 steps."""


def _settings(steps: int) -> list[Setting]:
    return [{"full": scaled(listed, steps)} for listed in LISTS]


@method("LeMiCa published", "LeMiCa, arXiv 2511.00090", _settings, tuned=False)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return attached(pipe, FixedSteps(tuple(setting["full"])))


@method("LeMiCa with galaxydit's reuse", "LeMiCa, arXiv 2511.00090", _settings, tuned=False)
def attach_reuse(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe, config=GalaxyDiTConfig(FixedSteps(tuple(setting["full"]))))
