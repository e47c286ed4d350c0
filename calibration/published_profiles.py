"""Profiles for Wan2.1 from TeaCache's published constants, for use until a model is calibrated.

TeaCache (arXiv 2411.19108) maps the distance of the time embedding at each step through a polynomial, and reuses steps
while the sum stays below a threshold. The constants are those for the projected time embedding, which the proxy
`time_embedding` reads (github.com/ali-vilab/TeaCache, TeaCache4Wan2.1, "use_ret_steps").
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy.optimize import isotonic_regression

from galaxydit.calibration.recording import round_digits
from galaxydit.policies.error_map import Curve, ErrorMap
from galaxydit.profiles.registry import FOLDER
from galaxydit.profiles.schema import SCHEMA_VERSION, Conditions, Evidence, Model, Profile, Recipe, Setting, Target

LARGEST_DISTANCE = 0.1
KNOTS = 16
SOURCE = "TeaCache, arXiv 2411.19108, constants of github.com/ali-vilab/TeaCache for Wan2.1"

_SMALL = {"num_layers": 30, "num_attention_heads": 12, "attention_head_dim": 128}
_LARGE = {"num_layers": 40, "num_attention_heads": 40, "attention_head_dim": 128}
_MODELS: Mapping[str, tuple[Mapping[str, Setting], tuple[float, ...]]] = MappingProxyType(
    {
        "t2v-1.3b": (
            {**_SMALL, "in_channels": 16},
            (-5.21862437e4, 9.23041404e3, -5.28275948e2, 1.36987616e1, -4.99875664e-2),
        ),
        "t2v-14b": (
            {**_LARGE, "in_channels": 16},
            (-3.03318725e5, 4.90537029e4, -2.65530556e3, 5.87365115e1, -3.15583525e-1),
        ),
        "i2v-14b-480p": (
            {**_LARGE, "in_channels": 36},
            (2.57151496e5, -3.54229917e4, 1.40286849e3, -1.35890334e1, 1.32517977e-1),
        ),
        "i2v-14b-720p": (
            {**_LARGE, "in_channels": 36},
            (8.10705460e3, 2.13393892e3, -3.72934672e2, 1.66203073e1, -4.17769401e-2),
        ),
    }
)
"""Configuration of the transformer, and TeaCache's polynomial, highest degree first."""

# Warm-up and cap leave each speedup reachable; TeaCache itself computes the first 5 of 50 steps.
_TARGETS = (
    Target(1.25, 0.2, 4, decay=0.5),
    Target(1.5, 0.2, 4, decay=0.5),
    Target(2.0, 0.2, 4, decay=0.5),
    Target(2.5, 0.1, 6, decay=0.5),
    Target(3.0, 0.1, 8, decay=0.5),
    Target(4.0, 0.1, None, decay=0.5),
)


def published_profile(name: str) -> Profile:
    """The published profile of a Wan2.1 model: "t2v-1.3b", "t2v-14b", "i2v-14b-480p" or "i2v-14b-720p"."""
    config, polynomial = _MODELS[name]
    return Profile(
        schema_version=SCHEMA_VERSION,
        name=f"wan2.1-{name}",
        kind="starter",
        source=SOURCE,
        model=Model("WanTransformer3DModel", config),
        conditions=Conditions(
            scheduler="",
            steps=50,
            flow_shift=None,
            guidance_scale=None,
            latent_shape=(),
            dtype="",
            device="",
            samples=0,
            seed=0,
            prompts_sha256="",
            versions={},
            sigmas=(),
        ),
        recipe=Recipe(
            proxy="time_embedding",
            reuse="residual",
            order=0,
            reused_cost=0.0,
            error_map=ErrorMap("errors", (curve_of(polynomial),)),
            cumulative_distance=None,
            targets=_TARGETS,
        ),
        evidence=Evidence("published constants exist for the time embedding alone; nothing was ranked on this model"),
    )


def curve_of(polynomial: tuple[float, ...]) -> Curve:
    """Convert a polynomial, highest degree first, to a monotone curve over distances up to 0.1.

    The polynomials were fitted to distances of a few hundredths. The curve ends at the maximum, because the fall after
    it is an artefact of the fit; isotonic regression makes the rest monotone and non-negative.
    """
    distances = np.linspace(0, LARGEST_DISTANCE, 401)[1:]
    values = np.clip(np.polyval(polynomial, distances), 0, None)
    end = int(np.argmax(values)) + 1
    monotone = isotonic_regression(values[:end]).x
    chosen = np.unique(np.linspace(0, end - 1, KNOTS).round().astype(int))
    return Curve(
        sigma=0.5,
        distances=tuple(round_digits(distances[i], 6) for i in chosen),
        errors=tuple(round_digits(monotone[i], 6) for i in chosen),
        spread=(0.0,) * len(chosen),
    )


def write_published_profiles(folder: Path = FOLDER) -> None:
    """Write all of them to `folder`, as `wan2.1-NAME.json`."""
    for name in _MODELS:
        published_profile(name).save(folder / f"wan2.1-{name}.json")
