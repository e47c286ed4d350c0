"""An observer sees what is computed, and may decide and predict in the engine's place."""

from typing import Any

import torch
from torch import Tensor

from galaxydit import PROXIES, FixedSteps, GalaxyDiTConfig, Observer, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.runtime.engine import Call


class Recorder(Observer):
    """Keeps all that it is handed."""

    proxies = frozenset(PROXIES)
    watches_stack = True

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, str]] = []
        self.outputs: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.ended = 0

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        self.seen.append((call.info.step, call.branch, name))

    def on_output(self, call: Call, output: Tensor) -> None:
        assert output.shape == call.latent.shape
        assert call.stack_input is not None
        assert call.stack_output is not None
        self.outputs.append(output)
        self.residuals.append(call.stack_output - call.stack_input)

    def on_end(self) -> None:
        self.ended += 1


def test_an_observer_sees_every_proxy_stack_and_output_and_changes_nothing(tiny_wan: Any) -> None:
    plain = tiny_wan.run()
    recorder = Recorder()
    with Acceleration(tiny_wan.pipe, GalaxyDiTConfig(Threshold(0.0)), observer=recorder) as acceleration:
        assert torch.equal(tiny_wan.run(), plain)
    calls = [(step, branch) for step in range(12) for branch in ("cond", "uncond")]
    assert {(step, branch) for step, branch, _ in recorder.seen} == set(calls)
    assert {name for step, branch, name in recorder.seen if (step, branch) == (5, "uncond")} == set(PROXIES)
    assert len(recorder.seen) == len(calls) * len(PROXIES)
    assert len(recorder.outputs) == len(recorder.residuals) == len(calls)
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

    def predict(self, call: Call) -> Tensor | None:
        return torch.zeros_like(call.latent) if call.branch == "uncond" else None


def test_an_observer_may_decide_after_a_proxy_and_predict(tiny_wan: Any) -> None:
    observer = EveryOther()
    outputs: list[Tensor] = []
    handle = tiny_wan.pipe.transformer.register_forward_hook(lambda _, a, o: outputs.append(o[0].clone()))
    with Acceleration(tiny_wan.pipe, GalaxyDiTConfig(FixedSteps((0,)), order=0), observer=observer) as acceleration:
        tiny_wan.run()
    handle.remove()
    calls = acceleration.report.calls
    assert [call.reused for call in calls] == [bool(call.step % 2) for call in calls]
    assert {call.blocks_run for call in calls if call.reused} == {1.0}
    assert {call.reason for call in calls} == {"decided by the observer"}
    assert observer.asked[:2] == [(0, False), (0, True)]
    assert not outputs[3].any()
    assert torch.equal(outputs[2], outputs[0])
