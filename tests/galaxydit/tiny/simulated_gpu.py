"""A GPU with an energy counter behind zeus's own interface; modules of a pipeline on the CPU draw from it."""

from typing import Any

import pytest
import torch
from torch import nn

from galaxydit import energy

BLOCK, TEXT, DECODER = 2, 30, 500  # joules of one call


class SimulatedCounter:
    """The counter in joules, as NVML would give it in millijoules."""

    def __init__(self) -> None:
        self.joules = 0

    def draw(self, joules: int) -> None:
        """Use energy."""
        self.joules += joules

    def connect(self, pipe: Any) -> None:
        """Let the modules of a pipeline use energy when they run."""
        for block in pipe.transformer.blocks:
            self._when_run(block.ffn, BLOCK)
        self._when_run(pipe.text_encoder.encoder.final_layer_norm, TEXT)
        self._when_run(pipe.vae.decoder.conv_out, DECODER)

    def _when_run(self, module: nn.Module, joules: int) -> None:
        module.register_forward_hook(lambda *_: self.draw(joules))


@pytest.fixture
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedCounter:
    """The counter of a simulated GPU, which stands for whatever device a pipeline is on."""
    gpu = pytest.importorskip("zeus.device.gpu", reason="zeus is not installed")
    counter = SimulatedCounter()

    class Gpu(gpu.common.GPU):
        def supports_get_total_energy_consumption(self) -> bool:
            return True

        def get_total_energy_consumption(self) -> int:
            return 7_000_000 + 1000 * counter.joules

    class Gpus(gpu.common.GPUs):
        def __init__(self) -> None:
            self._gpus = [Gpu(0)]

        def __del__(self) -> None:
            pass

        @property
        def gpus(self) -> list[Any]:
            return self._gpus

    # Setting clocks and power limits is abstract, too, and of no use here.
    Gpu.__abstractmethods__ = Gpus.__abstractmethods__ = frozenset()
    monkeypatch.setattr(gpu, "_gpus", Gpus())
    meter = energy._open(torch.device("cuda:0"), False)
    assert isinstance(meter, energy.Meter), meter
    monkeypatch.setattr(energy, "_meter", lambda device, cpu: meter)
    return counter
