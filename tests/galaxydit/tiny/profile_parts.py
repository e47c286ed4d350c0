"""A profile of the tiny WanPipeline, as a calibration would give it."""

import numpy as np
from diffusers import WanPipeline

from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.error_map import CumulativeDistance, Curve, ErrorMap
from galaxydit.profiles.evidence import Evidence
from galaxydit.profiles.fingerprint import model_of
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.schema import SCHEMA_VERSION, Conditions, Profile

PROMPT = "a red ball moves left over a plain background"
SETTINGS = GenerationSettings(height=32, width=32, num_frames=5, steps=20, guidance_scale=3.0)


def target_of(speedup: float, sigmas: tuple[float, ...]) -> Target:
    """A target with full steps at even places."""
    places = np.linspace(0, 19, round(20 / speedup)).round().astype(int)
    return Target(speedup, 0.0, 8, tuple(sigmas[place] for place in places))


def profile_for(pipe: WanPipeline) -> Profile:
    """A profile as a calibration with 20 steps at shift 8 and guidance 3 would give."""
    pipe.scheduler.set_timesteps(20)
    sigmas = tuple(float(sigma) for sigma in pipe.scheduler.sigmas[:20])
    return Profile(
        schema_version=SCHEMA_VERSION,
        name="tiny",
        source="a test",
        model=model_of(pipe.transformer),
        conditions=Conditions(
            type(pipe.scheduler).__name__, 20, 8.0, 3.0, (16, 2, 4, 4), "float32", "cpu", 2, 0, "ab", {}, sigmas
        ),
        recipe=Recipe(
            proxy="block_residual",
            reuse="output",
            order=1,
            error_map=ErrorMap((Curve(0.5, (0.05, 0.5), (0.1, 1.0), (0.0, 0.0)),)),
            cumulative_distance=CumulativeDistance(sigmas, tuple(0.05 * step for step in range(20))),
            targets=(target_of(1.5, sigmas), target_of(2.0, sigmas)),
        ),
        evidence=Evidence("a test"),
    )
