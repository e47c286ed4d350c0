"""Profiles for Wan2.1 planned from measurements that others published, for use until a model is calibrated.

The curvature rho2 of the guided trajectory of Wan2.1-T2V-1.3B (arXiv 2609.39343) and the gain of arXiv 2609.36433
replace the recordings of a calibration. Steps are repeated (order 0) with the residual reused, as in the published step
lists.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.interpolate import make_interp_spline

from galaxydit.calibration.build_profile import plan_targets
from galaxydit.calibration.published import Published, load_published
from galaxydit.calibration.recording import Array, Recording, round_digits
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import best_schedules
from galaxydit.policies.budget import full_step_count
from galaxydit.profiles import schema
from galaxydit.profiles.evidence import ErrorPropagation, Evidence
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.runtime.scheduler_response import euler_response

STEPS = 50
PROXY = "block_residual"
SPEEDUPS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
FORCED = 3  # the curvature of the first three steps is unknown
SOURCE = (
    "curvature (arXiv 2609.39343) and error propagation (arXiv 2609.36433) of Wan2.1-T2V-1.3B at 50 steps, "
    "galaxydit's planner"
)
KNOWN = (
    "published for other step lists with the same reuse are 23.4 dB PSNR at 24, 21.5 and 22.3 dB at 19 and 17.0 dB at "
    "10 of 50 steps, and the planner expects less error of its own; never run with these weights by this project"
)
GUESSED = (
    "the curvature is that of Wan2.1-T2V-1.3B, which is a guess for this model: none is published for it; never run "
    "with these weights by this project"
)

_MODELS = {
    "t2v-1.3b": (30, 12, 16, KNOWN),
    "t2v-14b": (40, 40, 16, GUESSED),
    "i2v-14b": (40, 40, 36, GUESSED),
}
"""Blocks, attention heads and input channels of the transformer, and what is known of the plan's quality."""


def published_profile(name: str) -> schema.Profile:
    """The published profile of a Wan2.1 model: "t2v-1.3b", "t2v-14b" or "i2v-14b"."""
    layers, heads, channels, quality = _MODELS[name]
    config = {"num_layers": layers, "num_attention_heads": heads, "attention_head_dim": 128, "in_channels": channels}
    published = load_published()
    table = published.data["curvature"]
    return schema.Profile(
        schema_version=schema.SCHEMA_VERSION,
        name=f"wan2.1-{name}",
        kind="published",
        source=SOURCE,
        model=schema.Model("WanTransformer3DModel", config),
        conditions=schema.Conditions(
            scheduler="UniPCMultistepScheduler",
            steps=STEPS,
            flow_shift=float(table["flow_shift"]),
            guidance_scale=float(table["guidance"]),
            latent_shape=(),
            dtype="",
            device="",
            samples=0,
            seed=0,
            prompts_sha256="",
            versions={},
            sigmas=wan_sigmas(table["flow_shift"], STEPS),
        ),
        recipe=Recipe(
            proxy=PROXY,
            reuse="residual",
            order=0,
            error_map=None,
            cumulative_distance=None,
            targets=published_targets(),
        ),
        evidence=Evidence(quality, propagation=published_propagation(published)),
    )


@cache
def published_targets() -> tuple[Target, ...]:
    """One target for each number of full steps between those of the slowest and the fastest of `SPEEDUPS`."""
    published = load_published()
    sigmas = wan_sigmas(published.data["curvature"]["flow_shift"], STEPS)
    model = ScheduleError([published_recording(published, sigmas)])
    most = full_step_count(STEPS, min(SPEEDUPS))
    plans = best_schedules(model, most, published_propagation(published), warmup=FORCED, order=0)
    return plan_targets(plans, sigmas, SPEEDUPS, FORCED / STEPS)


def published_recording(published: Published, sigmas: Sequence[float]) -> Recording:
    """What a calibration would record at these sigmas, in units of the mean velocity, from the curvature alone.

    The prediction changes by rho2 times the step in sigma. All changes are taken as parallel, because no directions are
    published: the worst case within a reuse interval. Errors of different intervals still add incoherently.
    """
    curvature, step = curvature_at(published, np.array(sigmas)), -np.diff(sigmas)
    changes = (curvature[:-1] + curvature[1:]) / 2 * step
    return Recording(
        prompt="",
        seed=0,
        sigmas=tuple(sigmas),
        scheduler_response=euler_response(sigmas),
        guidance_scale=published.data["curvature"]["guidance"],
        latent_shape=(),
        distances={},
        guided_norms=(1.0,) * len(sigmas),
        guided_products=tuple(map(tuple, np.outer(changes, changes).tolist())),
    )


def curvature_at(published: Published, sigmas: Array) -> Array:
    """rho2 at noise levels, log-linear in time (sigma without its flow shift), also beyond the published steps."""
    table = published.data["curvature"]
    shift, times = table["flow_shift"], 1 - np.array(table["steps"]) / STEPS
    log_linear = make_interp_spline(times[::-1], np.log(table["rho2"])[::-1], k=1)
    return np.exp(log_linear(sigmas / (shift - (shift - 1) * sigmas)))


def published_propagation(published: Published) -> ErrorPropagation:
    """Error of the final latent / error of the latent, by sigma, 1 at the last step.

    The published gain is per error of a prediction, so it is divided by the length of its step in sigma.
    """
    sigmas = wan_sigmas(published.data["propagation"]["flow_shift"], STEPS)
    gains = [published.gain(step) / length for step, length in enumerate(euler_response(sigmas))]
    return ErrorPropagation(sigmas, tuple(round_digits(gain / gains[-1]) for gain in gains))


def wan_sigmas(flow_shift: float, steps: int) -> tuple[float, ...]:
    """Noise level of each step of Wan's schedulers, falling from 1, `(steps,)`."""
    times = [1 - step / steps for step in range(steps)]
    return tuple(round_digits(flow_shift * time / (1 + (flow_shift - 1) * time)) for time in times)
