"""A `Reuse` of one's own: what full steps keep, what the policy sees, and what reused steps get."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from seeing import Seeing
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError, Proxy, Reuse, Threshold
from galaxydit.extrapolation import CachedStep
from galaxydit.proxies import Place
from galaxydit.runtime.call import Call

STEPS = FixedSteps((0, 1, 4, 7, 11))


class Repeated(Reuse):
    """The base class, which repeats the last full step."""


class RepeatedResidual(Reuse):
    predicts = "residual"


@pytest.mark.parametrize(("own", "named"), [(Repeated(), "output"), (RepeatedResidual(), "residual")])
def test_the_base_class_is_order_0(own: Reuse, named: str, tiny_wan: Any) -> None:
    latents = []
    for reuse in (own, named):
        with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(STEPS, reuse=reuse, order=0)) as acceleration:
            latents.append(tiny_wan.run())
        assert acceleration.report.reused_steps == 7
    assert torch.equal(*latents)


class Counts(Reuse):
    """Measures how many full steps of the branch it is shown."""

    def measure(self, call: Call, tensor: Tensor, past: Sequence[CachedStep]) -> Mapping[str, float]:
        return {"known": len(past)}


@pytest.mark.parametrize(("alignment", "branches"), [(True, ["cond"]), (False, ["cond", "uncond"])])
def test_a_policy_sees_branch_guidance_and_measured_numbers(
    alignment: bool, branches: list[str], tiny_wan: Any
) -> None:
    policy = Seeing(lambda step: step % 2 == 1, reads_proxy=False)
    config = GalaxyDiTConfig(policy, reuse=Counts(), guidance_alignment=alignment, correction=False)
    with galaxydit.accelerate(tiny_wan.pipe, config=config):
        tiny_wan.run()
    assert [one.branch for one in policy.seen] == branches * 12
    assert {one.guidance_scale for one in policy.seen} == {3.0}
    own = [one.measured.get("known") for one in policy.seen if one.branch == branches[-1]]
    assert own == [None, 0, 0, 1, 1, *[2] * 7]  # order 1 keeps two full steps


def test_a_proxy_before_the_blocks_leaves_the_forward_pass_there(tiny_wan: Any) -> None:
    runs = []
    hook = tiny_wan.pipe.transformer.blocks[0].attn1.register_forward_hook(lambda *_: runs.append(1))
    proxy = Proxy("embedding", Place.MODULE, 0.0, "this test", lambda output: output[0].clone(), "condition_embedder")
    config = GalaxyDiTConfig(Threshold(9.0), proxy, warmup=0.0, max_consecutive=None, order=0, correction=False)
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        tiny_wan.run()
    hook.remove()
    assert len(runs) == 2 * 2  # the first and the last step, both branches
    assert {call.blocks_run for call in acceleration.report.calls if call.reused} == {0.0}
    assert None not in [call.distance for call in acceleration.report.calls[2::2]]


@pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning", "ignore::galaxydit.NoEffectWarning")
def test_under_drawn_noise_every_step_is_computed(tiny_wan: Any) -> None:
    tiny_wan.pipe.scheduler = FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)
    with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(STEPS, reuse=Repeated())) as acceleration:
        tiny_wan.run()
    assert acceleration.report.reused_steps == 0
    assert any("draws noise" in note for note in acceleration.report.notes)


def test_few_steps_are_reused_where_the_configuration_says_so(tiny_wan: Any) -> None:
    config = GalaxyDiTConfig(FixedSteps((0, 2)), order=0, correction=False, few_steps=0)
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        tiny_wan.run(num_inference_steps=3)
    assert acceleration.report.reused_steps == 1


def test_a_class_is_no_reuse() -> None:
    with pytest.raises(GalaxyDiTError, match="reuse="):
        GalaxyDiTConfig(reuse=Repeated)  # type: ignore[arg-type]
