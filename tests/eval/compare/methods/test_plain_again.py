import numpy as np

from galaxydit.eval.compare.methods import plain_again
from galaxydit.pipelines.generate import generate


def test_the_video_differs_by_rounding_and_every_step_is_computed(tiny_wan_pipeline, tiny_settings):
    plain = generate(tiny_wan_pipeline, "a red ball", tiny_settings, 0)
    with plain_again.METHOD.attach(tiny_wan_pipeline, {"steps": tiny_settings.steps}, None):
        again = generate(tiny_wan_pipeline, "a red ball", tiny_settings, 0)
    difference = np.abs(again.frames - plain.frames).max()
    assert 0 < difference < 1e-3
