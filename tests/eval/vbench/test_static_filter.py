"""The choice of static videos against upstream's rule, written here a second time from its description."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import galaxydit.eval.vbench.share_maker as maker

SPEC = importlib.util.spec_from_file_location("static_filter", Path(maker.DRIVER).with_name("static_filter.py"))
static_filter = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(static_filter)


def upstreams(flows, shorter_side, frames) -> bool:
    """More than 2/16 of the frames over 3 pixels at 256, or a jump end to end over twice that count: it moves."""
    threshold, count = 3.0 * (shorter_side / 256.0), round(2 * (frames / 16.0))
    if sum(1 for flow in flows[:-2] if flow > threshold) > count:
        return False
    return not any(flow > threshold * count * 2 for flow in flows[-2:])


@pytest.mark.parametrize("frames", [2, 9, 16, 49, 81])
@pytest.mark.parametrize("side", [64, 256, 480, 720])
def test_the_choice_is_upstreams(frames, side):
    rng = np.random.default_rng(frames * side)
    found = []
    for scale in (0.1, 1, 2, 3, 5, 20):
        flows = list(rng.exponential(scale * side / 256, frames + 1))
        found.append(static_filter.is_static(flows, side, frames))
        assert found[-1] == upstreams(flows, side, frames)
    assert found[0] or frames < 4, "almost still videos are static"
    assert not found[-1]
