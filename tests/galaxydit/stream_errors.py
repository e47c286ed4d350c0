"""Errors of predicted sound in a tiny MiniMax-H3, whose picture and sound have schedulers with shifts of 12 and 3.

    python -m tests.galaxydit.stream_errors --seeds 16

Each reused call is computed, too. The relative error of the engine's prediction of the sound stands beside that of the
same prediction outside the engine, by `extrapolation.predict` with the noise levels of the sound's own scheduler.
"""

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from galaxydit.acceleration import Acceleration
from galaxydit.config import GalaxyDiTConfig
from galaxydit.extrapolation import CachedStep, predict
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.outputs import tensors_of

sys.path.insert(0, str(Path(__file__).parent / "tiny"))

STEPS = 50
SOUND = 1  # index of the output


def relative(value: Tensor, reference: Tensor) -> float:
    return float((value - reference).norm() / reference.norm())


class MeasuringEngine(Engine):
    """Keeps both errors of each reused call in `errors`."""

    sound_sigmas: list[float]
    errors: list[tuple[float, float]]

    def run(self, call: Any, window: Any, generation: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        output = super().run(call, window, generation, forward, args, kwargs)
        computed = tensors_of(forward(*args, **kwargs))[SOUND].clone()
        step, sigmas = call.info.step, self.sound_sigmas
        if step == 0:
            self.past: tuple[CachedStep, ...] = ()
        if generation.calls[-1].reused:
            config = self.config
            alone = predict(self.past, sigmas[step], config.order, config.slope, config.largest_ahead)
            self.errors.append((relative(tensors_of(output)[SOUND], computed), relative(alone, computed)))
        else:
            self.past = (*self.past, CachedStep(step, sigmas[step], computed))[-2:]
        return output


def measure(seeds: int, speedup: float) -> np.ndarray:
    """Both errors of all predictions, `(predictions, 2)`: the engine's, and outside it."""
    from tests.galaxydit.test_modular_pipelines import minimax_h3

    errors: list[tuple[float, float]] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        pipe, run = minimax_h3(("transformer_ref",), steps=STEPS, seed=seed)
        scheduler = pipe.audio_scheduler
        scheduler.set_timesteps(STEPS)
        MeasuringEngine.sound_sigmas = scheduler.sigmas.tolist()
        MeasuringEngine.errors = errors
        config = GalaxyDiTConfig(policy=general_schedule(speedup), few_steps=0)
        with Acceleration(pipe, config, engine=MeasuringEngine):
            run()
    return np.array(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for speedup in (2.0, 3.0):
        engine, outside = measure(given.seeds, speedup).T
        worse = int((engine > outside * (1 + 1e-6)).sum())
        print(  # noqa: T201
            f"{speedup:g}x: {len(engine)} predictions of the sound, mean relative error {engine.mean():.5f} in the "
            f"engine, {outside.mean():.5f} outside it; larger in the engine: {worse}"
        )


if __name__ == "__main__":
    main()
