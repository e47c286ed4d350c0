"""EasyCache's decisions, worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanPipeline
from seeing import Seeing
from torch import Tensor

from galaxydit.eval.methods.accumulation import Accumulation, attached
from galaxydit.eval.methods.easycache import LATENT, MeasuredDifference, predicted_change, settings

Decided = Callable[..., list[bool]]
KNOWN = {"measured": {"rate": 0.5, "output": 2.0}}


def test_predicted_changes_add_up_until_the_threshold(decided: Decided) -> None:
    # k |dx| / |y| = .5 x .2 / 2 = .05 a step: three of them reach .15, which computes.
    rule = Accumulation(0.149, 1, 0, predicted_change)
    assert decided(rule, [0.2] * 8, **KNOWN) == [False, True, True, False, True, True, False, True]


def test_the_first_and_last_steps_are_computed_and_do_not_count(decided: Decided) -> None:
    rule = Accumulation(0.11, 3, 1, predicted_change)
    assert decided(rule, [0.2] * 8, **KNOWN) == [False, False, False, True, True, False, True, False]


def test_without_a_rate_the_step_is_computed(decided: Decided) -> None:
    rule = Accumulation(1.0, 1, 0, predicted_change)
    known = [{}, {"output": 1.0}, {"output": 1.0, "rate": 0.5}]
    assert decided(rule, known, "measured", distance=0.1) == [False, False, True]


def test_the_rule_sees_the_sizes_that_it_is_promised_and_reuse_adds_the_kept_difference(
    tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor]
) -> None:
    policy, inputs, outputs = Seeing(lambda step: step == 2, reads_proxy=True), [], []

    def keep(module: object, args: object, kwargs: dict[str, Tensor], output: tuple[Tensor]) -> None:
        inputs.append(kwargs["hidden_states"])
        outputs.append(output[0])

    hook = tiny_wan_pipeline.transformer.register_forward_hook(keep, with_kwargs=True)
    with attached(tiny_wan_pipeline, policy, proxy=LATENT, reuse=MeasuredDifference()):
        latents(num_inference_steps=5)
    hook.remove()
    x, y = inputs[::2], outputs[::2]  # the conditional branch

    def size(tensor: Tensor) -> float:
        return float(tensor.abs().mean())

    assert [one.step for one in policy.seen] == [0, 1, 2, 3, 4]
    assert {(one.branch, one.guidance_scale) for one in policy.seen} == {("cond", 3.0)}
    assert policy.seen[0].distance is None
    assert [one.distance for one in policy.seen[1:]] == pytest.approx([size(x[i] - x[i - 1]) for i in range(1, 5)])
    # Step 2 is reused: until step 4 the last two full steps are 0 and 1, then 1 and 3.
    rates = [size(y[b] - y[a]) / size(x[b] - x[a]) for a, b in ((0, 1), (1, 3))]
    assert [one.measured.get("rate") for one in policy.seen[1:]] == pytest.approx([None, rates[0], rates[0], rates[1]])
    sizes = [size(y[step]) for step in (0, 1, 1, 3)]
    assert [one.measured["output"] for one in policy.seen[1:]] == pytest.approx(sizes)
    assert torch.equal(y[2], x[2] + (y[1] - x[1]))


def test_settings_hold_the_authors_warm_up_and_none() -> None:
    assert {(one["first"], one["last"]) for one in settings(50)} == {(10, 1), (1, 1)}
