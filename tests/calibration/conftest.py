"""Trajectories with a known answer, made without a model, and a profile and calibrations made from them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.calibration.budget import Budget
from galaxydit.calibration.build_profile import ProfileBuilder
from galaxydit.calibration.calibration import Calibration, calibrate
from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.evidence import ErrorPropagation
from galaxydit.profiles.schema import Profile
from galaxydit.proxies import PROXIES

STEPS = 40
SETTINGS = GenerationSettings(height=32, width=32, num_frames=5, steps=12, guidance_scale=3.0)
PROXY_COSTS = {name: proxy.cost / 6 for name, proxy in PROXIES.items()}  # timings differ from run to run
PROMPTS = [
    f"a {colour} {shape} orbits over a plain background" for colour in ("red", "blue") for shape in ("ball", "square")
]


def make_outputs(rng: np.random.Generator, steps: int = STEPS, size: int = 24) -> np.ndarray:
    """A path `(steps, size)` that moves at a speed which changes from step to step."""
    directions = np.cumsum(rng.normal(size=(steps, size)), axis=0)
    speed = 0.02 + 0.2 * np.abs(np.sin(np.linspace(0, 5, steps) + rng.uniform(0, 6)))[:, None]
    return rng.normal(size=size) * 2 + np.cumsum(
        speed * directions / np.linalg.norm(directions, axis=1)[:, None], axis=0
    )


def make_recording(
    index: int, proxies: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]], steps: int = STEPS
) -> Recording:
    """A recording whose proxies are functions of the true change of each step."""
    rng = np.random.default_rng([7, index])
    outputs = make_outputs(rng, steps)
    change = np.concatenate([[0.0], np.linalg.norm(np.diff(outputs, axis=0), axis=1)])
    changes = np.diff(outputs, axis=0)
    products = changes @ changes.T / outputs.shape[1]
    return Recording(
        prompt=f"prompt {index}",
        seed=index,
        sigmas=tuple(float(value) for value in np.linspace(1.0, 0.1, steps)),
        scheduler_response=(*(0.9 / (steps - 1),) * (steps - 1), 0.1),
        guidance_scale=6.0,
        latent_shape=(16, 5, 8, 8),
        distances={name: tuple(float(v) for v in make(change, rng)) for name, make in proxies.items()},
        guided_norms=tuple(float(np.sqrt(np.mean(row**2))) for row in outputs),
        guided_products=tuple(tuple(row) for row in products.tolist()),
    )


def noisy(amount: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """A proxy that follows the true change, up to relative noise of this size."""
    return lambda change, rng: np.abs(0.3 * change * (1 + amount * rng.normal(size=change.shape)))


@pytest.fixture
def received_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[WanPipeline], list[torch.Tensor]]:
    """For a pipeline the list of the guided predictions that its scheduler receives from then on, flat."""

    def watch(pipe: WanPipeline) -> list[torch.Tensor]:
        received, step = [], pipe.scheduler.step

        def spy(prediction: torch.Tensor, *args: object, **kwargs: object) -> object:
            received.append(prediction.flatten().double())
            return step(prediction, *args, **kwargs)

        monkeypatch.setattr(pipe.scheduler, "step", spy)
        return received

    return watch


@pytest.fixture
def outputs_of() -> Callable[..., np.ndarray]:
    return make_outputs


@pytest.fixture
def recording_of() -> Callable[..., Recording]:
    return make_recording


@pytest.fixture
def noisy_proxy() -> Callable[[float], Callable]:
    return noisy


@pytest.fixture
def recordings() -> list[Recording]:
    proxies = {"block_residual": noisy(0.05), "noisy_latent": noisy(0.6), "time_embedding": noisy(2.0)}
    return [make_recording(index, proxies) for index in range(8)]


@pytest.fixture
def settings() -> GenerationSettings:
    return SETTINGS


@pytest.fixture
def prompts() -> list[str]:
    return list(PROMPTS)


@pytest.fixture
def proxy_costs() -> dict[str, float]:
    return PROXY_COSTS


@pytest.fixture
def drafted(tiny_wan_pipeline: WanPipeline, recordings: list[Recording], settings: GenerationSettings) -> Profile:
    """A profile of the tiny pipeline, its numbers from synthetic recordings."""
    build = ProfileBuilder(tiny_wan_pipeline, recordings, rank_proxies(recordings), ErrorPropagation(), (1.5, 2.0, 2.5))
    where = {"latent_shape": (), "device": "cpu", "versions": {}}
    return build.profile("tiny", replace(settings, steps=STEPS), **where)


@pytest.fixture(scope="session")
def calibrated_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the parts of `calibration`, which no test may change."""
    return tmp_path_factory.mktemp("calibration") / "parts"


@pytest.fixture(scope="session")
def calibration(tiny_wan_builder: Callable[[], WanPipeline], calibrated_parts: Path) -> Calibration:
    """A real calibration of the tiny pipeline, made once."""
    return calibrate(
        tiny_wan_builder(),
        PROMPTS,
        resume_dir=calibrated_parts,
        budget=Budget((3, 3), True, 8, 1),
        settings=SETTINGS,
        speedups=(1.5, 2.0),
        proxy_costs=PROXY_COSTS,
        name="tiny",
    )


@pytest.fixture
def parts(calibration: Calibration, calibrated_parts: Path, tmp_path: Path) -> Path:
    """A copy of the parts of `calibration`, to resume from."""
    return Path(shutil.copytree(calibrated_parts, tmp_path / "parts"))
