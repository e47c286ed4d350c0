"""An observer sees what is computed, and may decide and predict in the engine's place."""

from typing import Any

import torch
from torch import Tensor

from galaxydit import PROXIES, GalaxyDiTConfig, Observer, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.runtime.call import Call


class Recorder(Observer):
    """Keeps all that it is handed."""

    proxies = frozenset(PROXIES)
    modules = ("condition_embedder",)

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, str]] = []
        self.outputs: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.modules_seen: list[tuple[int, str, str]] = []
        self.ended = 0

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        self.seen.append((call.info.step, call.branch, name))

    def on_output(self, call: Call, output: Tensor) -> None:
        assert output.shape == call.latent.shape
        self.outputs.append(output)

    def on_stack(self, call: Call, before: Tensor, after: Tensor) -> None:
        self.residuals.append(after - before)

    def on_module(self, call: Call, path: str, output: Any) -> None:
        self.modules_seen.append((call.info.step, call.branch, path))

    def on_end(self) -> None:
        self.ended += 1


def test_an_observer_sees_every_proxy_stack_and_output_and_changes_nothing(tiny_wan: Any) -> None:
    plain = tiny_wan.run()
    recorder, config = Recorder(), GalaxyDiTConfig(Threshold(0.0), reuse="residual")
    with Acceleration(tiny_wan.pipe, config, observer=recorder) as acceleration:
        assert torch.equal(tiny_wan.run(), plain)
    calls = [(step, branch) for step in range(12) for branch in ("cond", "uncond")]
    assert {(step, branch) for step, branch, _ in recorder.seen} == set(calls)
    assert {name for step, branch, name in recorder.seen if (step, branch) == (5, "uncond")} == set(PROXIES)
    assert len(recorder.seen) == len(calls) * len(PROXIES)
    assert len(recorder.outputs) == len(recorder.residuals) == len(calls)
    assert recorder.modules_seen == [(*call, "condition_embedder") for call in calls]
    assert recorder.ended == 1
    assert acceleration.report.compute_fraction == 1.0


class EveryOther(Observer):
    """Reuses odd steps after a look at the first block, and predicts zeros there."""

    proxies = frozenset({"block_output"})
    decides = True

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


def test_an_observer_may_decide_after_a_proxy_and_predict(tiny_wan: Any) -> None:
    observer = EveryOther()
    outputs: list[Tensor] = []
    handle = tiny_wan.pipe.transformer.register_forward_hook(lambda _, a, o: outputs.append(o[0].clone()))
    with Acceleration(tiny_wan.pipe, GalaxyDiTConfig(), observer=observer) as acceleration:
        tiny_wan.run()
    handle.remove()
    calls = acceleration.report.calls
    assert [call.reused for call in calls] == [bool(call.step % 2) for call in calls]
    assert {call.blocks_run for call in calls if call.reused} == {1.0}
    assert {call.reason for call in calls} == {"decided by the observer"}
    assert observer.asked[:2] == [(0, False), (0, True)]
    assert not outputs[3].any()
    assert torch.equal(outputs[2], outputs[1])


class SkipsTheStack(Observer):
    """Reuses what the blocks add to their input, in odd steps, once a module before the blocks has run."""

    modules = ("condition_embedder",)
    decides = True

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


def test_an_observer_may_skip_the_blocks_after_a_module(tiny_wan: Any) -> None:
    runs = [0, 0, 0]

    def count(index: int) -> Any:
        def add(*_: Any) -> None:
            runs[index] += 1

        return add

    handles = [block.ffn.register_forward_hook(count(i)) for i, block in enumerate(tiny_wan.pipe.transformer.blocks)]
    config = GalaxyDiTConfig(reuse="residual")
    with Acceleration(tiny_wan.pipe, config, observer=SkipsTheStack()) as acceleration:
        tiny_wan.run()
    for handle in handles:
        handle.remove()
    assert runs == [12, 12, 12]
    assert {call.blocks_run for call in acceleration.report.calls if call.reused} == {0.0}
