"""A driver decides and predicts in the engine's place."""

from typing import Any

import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig, Observer, accelerate
from galaxydit.eval.methods.rules.rule_engine import driven
from galaxydit.policies.policy import Reason
from galaxydit.runtime.call import Call


def run(pipe: WanPipeline) -> Tensor:
    """Latents of 12 steps; the seed is always the same."""
    return pipe(
        "a red ball moves left over a plain background",
        height=32,
        width=32,
        num_frames=5,
        guidance_scale=3.0,
        max_sequence_length=16,
        num_inference_steps=12,
        output_type="latent",
        generator=torch.Generator().manual_seed(0),
    ).frames


class EveryOther(Observer):
    """Reuses odd steps after a look at the first block, and predicts zeros there."""

    proxies = frozenset({"block_output"})

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []
        self._has_looked = False

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        self._has_looked = True

    def decide(self, call: Call) -> bool | None:
        self.asked.append((call.info.step, self._has_looked))
        if not self._has_looked:
            return None
        self._has_looked = False
        return call.info.step % 2 == 1

    def on_output(self, call: Call, output: Tensor) -> None:
        self.cached = output

    def predict(self, call: Call) -> Tensor:
        return torch.zeros_like(call.latent) if call.branch == "uncond" else self.cached


def test_a_driver_may_decide_after_a_proxy_and_predict(tiny_wan_pipeline: WanPipeline) -> None:
    observer = EveryOther()
    outputs: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda _, a, o: outputs.append(o[0].clone()))
    with driven(tiny_wan_pipeline, observer) as acceleration:
        run(tiny_wan_pipeline)
    handle.remove()
    calls = acceleration.report.calls
    assert [call.reused for call in calls] == [bool(call.step % 2) for call in calls]
    assert {call.blocks_run for call in calls if call.reused} == {1.0}
    assert {call.reason for call in calls} == {Reason.CUSTOM}
    assert observer.asked[:2] == [(0, False), (0, True)]
    assert not outputs[3].any()
    assert torch.equal(outputs[2], outputs[1])


class SkipsTheStack(Observer):
    """Reuses what the blocks add to their input, in odd steps, once a module before the blocks has run."""

    modules = ("condition_embedder",)

    def __init__(self) -> None:
        self.residual: dict[str, Tensor] = {}
        self.embedded = False

    def on_module(self, call: Call, path: str, output: Any) -> None:
        self.embedded = True

    def decide(self, call: Call) -> bool | None:
        embedded, self.embedded = self.embedded, False
        return call.info.step % 2 == 1 if embedded else None

    def on_stack(self, call: Call, before: Tensor, after: Tensor) -> None:
        self.residual[call.branch] = after - before

    def predict(self, call: Call) -> Tensor:
        return self.residual[call.branch]


def test_a_driver_may_skip_the_blocks_after_a_module(tiny_wan_pipeline: WanPipeline) -> None:
    runs = [0, 0, 0]

    def count(index: int) -> Any:
        def add(*_: Any) -> None:
            runs[index] += 1

        return add

    handles = [
        block.ffn.register_forward_hook(count(i)) for i, block in enumerate(tiny_wan_pipeline.transformer.blocks)
    ]
    with driven(tiny_wan_pipeline, SkipsTheStack(), reuse="residual") as acceleration:
        run(tiny_wan_pipeline)
    for handle in handles:
        handle.remove()
    assert runs == [12, 12, 12]
    assert {call.blocks_run for call in acceleration.report.calls if call.reused} == {0.0}


class Repeats(Observer):
    """Repeats the last output in two steps."""

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}

    def decide(self, call: Call) -> bool:
        return call.info.step in (5, 6)

    def on_output(self, call: Call, output: Tensor) -> None:
        self.kept[call.branch] = output

    def predict(self, call: Call) -> Tensor:
        return self.kept[call.branch].clone()


def test_a_reused_step_gets_what_the_driver_predicts(tiny_wan_pipeline: WanPipeline) -> None:
    steps = FixedSteps((*range(5), *range(7, 12)))
    with accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(steps, order=0, correction=False)):
        expected = run(tiny_wan_pipeline)
    with driven(tiny_wan_pipeline, Repeats()):
        assert torch.equal(run(tiny_wan_pipeline), expected)
