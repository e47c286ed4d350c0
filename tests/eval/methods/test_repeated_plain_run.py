from types import SimpleNamespace

import numpy as np
import torch

from galaxydit.eval.methods import repeated_plain_run
from galaxydit.pipelines.generate import generate


def test_the_video_differs_by_rounding_and_every_step_is_computed(tiny_wan_pipeline, tiny_settings):
    plain = generate(tiny_wan_pipeline, "a red ball", tiny_settings, 0)
    with repeated_plain_run.attach(tiny_wan_pipeline, {"steps": tiny_settings.steps}, None):
        again = generate(tiny_wan_pipeline, "a red ball", tiny_settings, 0)
    difference = np.abs(again.frames - plain.frames).max()
    assert 0 < difference < 1e-3


def test_each_branch_is_rounded_on_its_own():
    """Guidance multiplies the difference of the branches, which equal changes would leave out."""
    observer, call = repeated_plain_run.PerturbedRounding(), SimpleNamespace(info=SimpleNamespace(step=0))
    branches = torch.full((2, 10_000), 1.5)
    for branch in branches:
        observer.on_output(call, branch)
    changes = (branches - 1.5) / torch.finfo(torch.float32).eps
    assert changes.abs().max() <= 1  # the result is rounded, too
    assert abs(torch.corrcoef(changes)[0, 1]) < 0.1
