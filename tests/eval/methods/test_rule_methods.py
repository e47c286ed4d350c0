"""Every method without code for diffusers, as the comparison uses it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.eval.methods import ra_cfgcache
from galaxydit.eval.methods.method import Method
from galaxydit.eval.methods.method_registry import load_method
from galaxydit.pipelines.settings import GenerationSettings

STEPS = 12
RULE_METHODS = ("TeaCache", "EasyCache", "DiCache", "RA-CFGCache", "ERTACache (guessed)", "ProfilingDiT")
METHODS = tuple(map(load_method, RULE_METHODS))
BY_NAME = {method.name: method for method in METHODS}


@pytest.fixture(params=BY_NAME)
def method(request: pytest.FixtureRequest) -> Method:
    return BY_NAME[request.param]


@pytest.fixture
def calibration(
    method: Method, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """As the comparison passes it: through JSON."""
    monkeypatch.setattr(ra_cfgcache, "PERTURBED_STEPS", 3)
    if method.calibrate is None:
        return None
    return json.loads(json.dumps(method.calibrate(tiny_wan_pipeline, ["a red ball"], settings, 0)))


def test_from_changing_nothing_to_reusing_most(
    method: Method,
    calibration: Any,
    tiny_wan_pipeline: WanPipeline,
    latents: Callable[..., Tensor],
    blocks_run: list[list[int]],
) -> None:
    plain = latents()
    candidates = method.settings(STEPS)
    strictest = {"threshold": 0.0, "interval": 1, "full_steps": STEPS}
    strictest = {name: value for name, value in strictest.items() if name in candidates[0]}
    with method.attach(tiny_wan_pipeline, {**candidates[0], **strictest}, calibration):
        assert torch.equal(latents(), plain)
    blocks_run.clear()
    with method.attach(tiny_wan_pipeline, candidates[-1], calibration):
        assert not torch.equal(latents(), plain)
    assert torch.equal(latents(), plain)
    under_rule, blocks_run = blocks_run[: 2 * STEPS], blocks_run[2 * STEPS :]
    assert sum(map(len, under_rule)) < 0.5 * sum(map(len, blocks_run))
    if method.name != "DiCache":  # goes by each branch's own hidden states
        assert under_rule[::2] == under_rule[1::2]
    assert under_rule[0] == [0, 1, 2]


@pytest.mark.parametrize("steps", [50, 20, 8])
def test_settings_are_distinct_and_json_able(method: Method, steps: int) -> None:
    texts = [json.dumps(setting, sort_keys=True) for setting in method.settings(steps)]
    assert len(set(texts)) == len(texts)
    assert 12 <= len(texts) <= 40
