"""A clock that advances when blocks of a tiny pipeline run, and on which other work can begin at any block."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

SLOWER = 1.5  # what two busy processes cost on two cores


class FakeClock:
    """Stands for the module `time`: a block takes a second and its noise; blocks after `loaded_from` take 1.5 s."""

    def __init__(self) -> None:
        self.seconds, self.blocks, self.loaded_from = 0.0, 0, float("inf")
        self._random = random.Random(0)

    def perf_counter(self) -> float:
        return self.seconds

    def connect(self, pipe: Any) -> Any:
        """Let the blocks of a pipeline take time, and return the pipeline."""
        for block in pipe.transformer.blocks:
            block.ffn.register_forward_hook(self._block)
        return pipe

    def _block(self, *_: Any) -> None:
        self.blocks += 1
        noise = self._random.lognormvariate(0.0, 0.2)  # that of a generation averages to a few percent
        self.seconds += noise * (SLOWER if self.blocks > self.loaded_from else 1.0)


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of generations and calibrations, on a machine without other load."""
    clock = FakeClock()
    time = SimpleNamespace(perf_counter=clock.perf_counter)
    for module in ("stopwatch", "calibration.step_times"):
        monkeypatch.setattr(f"galaxydit.{module}.time", time)
    monkeypatch.setattr("galaxydit.pipelines.generate.load_per_core", lambda: 0.5)
    return clock
