"""The engine that attaches rules to a pipeline."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

import galaxydit
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.methods.easycache import repeat_difference
from galaxydit.eval.methods.rules.decision import StepObservation
from galaxydit.eval.methods.rules.rule_observer import CachedOutput, under_rule

Generate = Callable[..., Tensor]


class Reuse:
    """Reuses the given steps and keeps what it saw."""

    def __init__(self, steps: set[int], seen: list[StepObservation] | None = None) -> None:
        self.steps, self.seen = steps, seen

    def decide(self, observation: StepObservation) -> bool:
        if self.seen is not None:
            self.seen.append(observation)
        return observation.step in self.steps


class ThreeOfFour:
    """Computes the first step that it is asked about and then one in four."""

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, observation: StepObservation) -> bool:
        self.asked += 1
        return self.asked % 4 != 1


WAYS = {
    "stack": {},
    "stack, by the time embedding": {"signal": "time_embedding"},
    "stack, each branch for itself": {"joint": False},
    "stack, by the first block, aligned": {"signal": "first_block"},
    "output": {"predict": repeat_difference},
    "output, by the latent": {"predict": repeat_difference, "signal": "latent"},
}


@pytest.mark.parametrize("way", WAYS)
def test_without_reuse_the_latents_are_those_of_the_plain_pipeline(
    way: str, tiny_wan_pipeline: WanPipeline, latents: Generate
) -> None:
    plain = latents()
    with under_rule(tiny_wan_pipeline, lambda: Reuse(set()), **WAYS[way]):
        assert torch.equal(latents(), plain)


@pytest.mark.parametrize("way", WAYS)
def test_the_second_generation_is_as_the_first_also_after_one_that_broke_off(
    way: str, tiny_wan_pipeline: WanPipeline, latents: Generate
) -> None:
    def break_off(pipe: WanPipeline, step: int, timestep: Tensor, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if step == 5:
            raise KeyboardInterrupt
        return tensors

    with under_rule(tiny_wan_pipeline, ThreeOfFour, **WAYS[way]):
        first = latents()
        assert torch.equal(latents(), first)
        with pytest.raises(KeyboardInterrupt):
            latents(callback_on_step_end=break_off)
        assert torch.equal(latents(), first)
    assert not torch.equal(first, latents())


@pytest.mark.parametrize("way", WAYS)
def test_taken_off_it_leaves_no_trace(way: str, tiny_wan_pipeline: WanPipeline, latents: Generate) -> None:
    plain = latents()
    modules = dict(tiny_wan_pipeline.transformer.named_modules())
    before = {name: set(vars(module)) for name, module in modules.items()}
    with under_rule(tiny_wan_pipeline, lambda: Reuse({3, 4}), **WAYS[way]):
        latents()
    assert {name: set(vars(module)) for name, module in modules.items()} == before
    assert torch.equal(latents(), plain)


def test_the_blocks_that_ran_are_those_decided(
    tiny_wan_pipeline: WanPipeline, latents: Generate, blocks_run: list[list[int]]
) -> None:
    reused = {3, 4, 8}
    for way in ("stack", "output"):
        blocks_run.clear()
        with under_rule(tiny_wan_pipeline, lambda: Reuse(reused), **WAYS[way]):
            latents()
        assert blocks_run == [[] if step in reused else [0, 1, 2] for step in range(12) for _ in range(2)], way


def test_nothing_is_reused_where_nothing_is_kept(
    tiny_wan_pipeline: WanPipeline, latents: Generate, blocks_run: list[list[int]]
) -> None:
    with under_rule(tiny_wan_pipeline, lambda: Reuse({0, 1})):
        latents(num_inference_steps=3)
    assert blocks_run == [[0, 1, 2]] * 2 + [[]] * 2 + [[0, 1, 2]] * 2


def test_a_joint_rule_is_asked_once_a_step_and_others_once_a_branch(
    tiny_wan_pipeline: WanPipeline, latents: Generate
) -> None:
    for joint, times in ((True, 1), (False, 2)):
        seen: list[StepObservation] = []
        with under_rule(tiny_wan_pipeline, lambda seen=seen: Reuse({2}, seen), joint=joint):
            latents(num_inference_steps=4)
        assert [one.step for one in seen] == [step for step in range(4) for _ in range(times)]
        assert all(one.steps == 4 and one.guidance_scale == 3.0 for one in seen)


def test_a_reused_stack_adds_what_it_added_at_the_last_full_step(
    tiny_wan_pipeline: WanPipeline, latents: Generate
) -> None:
    into, out = [], []
    blocks = tiny_wan_pipeline.transformer.blocks
    hooks = [
        blocks[0].register_forward_pre_hook(lambda _, args: into.append(args[0])),
        blocks[-1].register_forward_hook(lambda _, args, output: out.append(output)),
    ]
    with under_rule(tiny_wan_pipeline, lambda: Reuse({1})):
        latents(num_inference_steps=2)
    for hook in hooks:
        hook.remove()
    for branch in (0, 1):
        torch.testing.assert_close(out[2 + branch] - into[2 + branch], out[branch] - into[branch])


def test_a_rule_sees_the_sizes_that_it_is_promised(tiny_wan_pipeline: WanPipeline, latents: Generate) -> None:
    seen: list[StepObservation] = []
    inputs, outputs = [], []

    def keep(module: object, args: object, kwargs: dict[str, Tensor], output: tuple[Tensor]) -> None:
        inputs.append(kwargs["hidden_states"])
        outputs.append(output[0])

    hook = tiny_wan_pipeline.transformer.register_forward_hook(keep, with_kwargs=True)
    with under_rule(tiny_wan_pipeline, lambda: Reuse({2}, seen), signal="latent", predict=repeat_difference):
        latents(num_inference_steps=5)
    hook.remove()
    x, y = inputs[::2], outputs[::2]  # the conditional branch

    def size(tensor: Tensor) -> float:
        return float(tensor.abs().mean())

    assert seen[0].change_size is None
    assert seen[0].slope is None
    assert [one.change_size for one in seen[1:]] == pytest.approx([size(x[i] - x[i - 1]) for i in range(1, 5)])
    assert [one.size for one in seen[1:]] == pytest.approx([size(x[i - 1]) for i in range(1, 5)])
    # Step 2 is reused: until step 4 the last two full steps are 0 and 1, then 1 and 3.
    rates = [size(y[b] - y[a]) / size(x[b] - x[a]) for a, b in ((0, 1), (1, 3))]
    assert [one.slope for one in seen[2:]] == pytest.approx([rates[0], rates[0], rates[1]])
    assert [one.output_size for one in seen[1:]] == pytest.approx([size(y[0]), size(y[1]), size(y[1]), size(y[3])])


def test_drift_counts_from_the_last_full_step(tiny_wan_pipeline: WanPipeline, latents: Generate) -> None:
    seen: list[StepObservation] = []
    embeddings = []
    hook = tiny_wan_pipeline.transformer.condition_embedder.register_forward_hook(
        lambda _, args, output: embeddings.append(output[1])
    )
    with under_rule(tiny_wan_pipeline, lambda: Reuse({2, 3}, seen), signal="time_projection"):
        latents(num_inference_steps=5)
    hook.remove()
    now = embeddings[::2]
    for step, anchor in ((1, 0), (2, 1), (3, 1), (4, 1)):
        expected = float((now[step] - now[anchor]).abs().mean() / now[anchor].abs().mean())
        assert seen[step].change_since_full == pytest.approx(expected)
    assert seen[0].change_since_full is None


def test_the_last_full_step_is_handed_to_the_prediction(tiny_wan_pipeline: WanPipeline, latents: Generate) -> None:
    calls: list[tuple[str, int]] = []

    def predict(latent: Tensor, full: CachedOutput, branch: str, step: int) -> Tensor:
        calls.append((branch, step))
        assert full.latent.shape == full.output.shape == latent.shape
        return full.output

    with under_rule(tiny_wan_pipeline, lambda: Reuse({1}), predict=predict):
        latents(num_inference_steps=3)
    assert calls == [("cond", 1), ("uncond", 1)]


def test_bytes_held_are_those_kept_and_none_after_a_generation(
    tiny_wan_pipeline: WanPipeline, latents: Generate
) -> None:
    held: list[int | None] = []

    def ask(pipe: WanPipeline, step: int, timestep: Tensor, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        held.append(attached.bytes_held())
        return tensors

    with under_rule(tiny_wan_pipeline, lambda: Reuse({1}), predict=repeat_difference) as attached:
        assert attached.bytes_held() == 0
        latent = latents(num_inference_steps=3, callback_on_step_end=ask)
        assert attached.bytes_held() == 0
    # The latent that both branches share, and a prediction for each.
    assert held == [3 * latent.numel() * 4] * 3


def test_without_guidance_there_is_one_branch(
    tiny_wan_pipeline: WanPipeline, latents: Generate, blocks_run: list[list[int]]
) -> None:
    with under_rule(tiny_wan_pipeline, lambda: Reuse({1})):
        latents(num_inference_steps=3, guidance_scale=1.0)
    assert [len(blocks) for blocks in blocks_run] == [3, 0, 3]


def test_a_pipeline_that_is_accelerated_already_is_refused(tiny_wan_pipeline: WanPipeline) -> None:
    with (
        galaxydit.accelerate(tiny_wan_pipeline, threshold=0.1),
        pytest.raises(GalaxyDiTError, match="accelerated already"),
        under_rule(tiny_wan_pipeline, lambda: Reuse(set())),
    ):
        pass
    with (
        under_rule(tiny_wan_pipeline, lambda: Reuse(set())),
        pytest.raises(GalaxyDiTError, match="accelerated already"),
        under_rule(tiny_wan_pipeline, lambda: Reuse(set())),
    ):
        pass
