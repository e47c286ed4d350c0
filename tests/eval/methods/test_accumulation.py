"""What the methods on the plugin's engine share."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.methods.accumulation import Accumulation, Difference, attached, share_of_steps, warm_ups
from galaxydit.eval.methods.teacache import SIGNALS

Generate = Callable[..., Tensor]
SKIPS = FixedSteps(tuple(step for step in range(12) if step not in (3, 4, 8)))
WAYS = {
    "stack": {},
    "stack, each branch for itself": {"guidance_alignment": False},
    "output": {"reuse": Difference()},
}


def test_a_step_whose_cost_is_unknown_is_computed(decided: Callable[..., list[bool]]) -> None:
    found = decided(Accumulation(1.0, 0, 0), [None, 0.4, 0.4, None, 0.4, 0.4, 0.4])
    assert found == [False, True, True, False, True, True, False]


def test_a_share_of_steps_is_what_authors_give_for_fifty() -> None:
    assert [share_of_steps(steps, 0.1) for steps in (50, 36, 4)] == [5, 4, 1]


def test_a_warm_up_of_one_step_is_offered_once() -> None:
    assert [warm_ups(steps, 0.2) for steps in (50, 4)] == [[10, 1], [1]]


@pytest.mark.parametrize("way", WAYS)
def test_the_blocks_that_ran_are_those_decided_and_nothing_is_left(
    way: str, tiny_wan_pipeline: WanPipeline, latents: Generate, blocks_run: list[list[int]]
) -> None:
    plain = latents()
    modules = dict(tiny_wan_pipeline.transformer.named_modules())
    before = {name: set(vars(module)) for name, module in modules.items()}
    blocks_run.clear()
    with attached(tiny_wan_pipeline, SKIPS, **WAYS[way]):
        first = latents()
        assert blocks_run == [[] if step in (3, 4, 8) else [0, 1, 2] for step in range(12) for _ in range(2)]
        assert torch.equal(latents(), first)
    assert {name: set(vars(module)) for name, module in modules.items()} == before
    assert not torch.equal(first, plain)
    assert torch.equal(latents(), plain)


def test_a_reused_stack_adds_what_it_added_at_the_last_full_step(
    tiny_wan_pipeline: WanPipeline, latents: Generate
) -> None:
    into, out = [], []
    blocks = tiny_wan_pipeline.transformer.blocks
    hooks = [
        blocks[0].register_forward_pre_hook(lambda _, args: into.append(args[0])),
        blocks[-1].register_forward_hook(lambda _, args, output: out.append(output)),
    ]
    with attached(tiny_wan_pipeline, FixedSteps((0,))):
        latents(num_inference_steps=2)
    for hook in hooks:
        hook.remove()
    for branch in (0, 1):
        torch.testing.assert_close(out[2 + branch] - into[2 + branch], out[branch] - into[branch])


def test_both_time_embeddings_are_those_of_the_embedder(tiny_wan_pipeline: WanPipeline, latents: Generate) -> None:
    embedded: list[tuple[Tensor, ...]] = []
    hook = tiny_wan_pipeline.transformer.condition_embedder.register_forward_hook(
        lambda _, args, output: embedded.append(output[:2])
    )
    for place, signal in enumerate(("time_embedding", "time_projection")):
        embedded.clear()
        policy = Accumulation(9.0)
        with attached(tiny_wan_pipeline, policy, proxy=SIGNALS[signal], guidance_alignment=False):
            latents(num_inference_steps=3)
        now = [each[place] for each in embedded[::2]]
        changes = [float((now[i] - now[i - 1]).abs().mean() / now[i - 1].abs().mean()) for i in (1, 2)]
        assert len(embedded) == 6
        seen: list[float | None] = []
        spy = Accumulation(0.5, cost=lambda observation, seen=seen: seen.append(observation.distance) or 0.0)
        with attached(tiny_wan_pipeline, spy, proxy=SIGNALS[signal]):
            latents(num_inference_steps=3)
        assert seen == pytest.approx(changes)
    hook.remove()


def test_bytes_held_are_those_kept(tiny_wan_pipeline: WanPipeline, latents: Generate) -> None:
    with attached(tiny_wan_pipeline, FixedSteps((0,)), reuse=Difference()) as method:
        assert method.bytes_held() == 0
        latent = latents(num_inference_steps=3)
        # The latent and a prediction of each branch.
        assert method.bytes_held() == 4 * latent.numel() * 4


def test_a_pipeline_that_is_accelerated_already_is_refused(tiny_wan_pipeline: WanPipeline) -> None:
    with (
        galaxydit.accelerate(tiny_wan_pipeline, threshold=0.1),
        pytest.raises(GalaxyDiTError, match="accelerated already"),
        attached(tiny_wan_pipeline, SKIPS),
    ):
        pass
