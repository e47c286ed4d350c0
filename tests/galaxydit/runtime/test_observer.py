"""An observer sees what is computed."""

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
