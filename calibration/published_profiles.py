"""The profile of Wan2.1 planned from measurements that others published, for use until a model is calibrated.

The curvature rho2 of the guided trajectory of Wan2.1-T2V-1.3B (arXiv 2609.39343) and its gain, the growth of errors
until the last step (arXiv 2609.36433), replace the recordings of a calibration. rho2 is the second derivative of the
trajectory's path by sigma, divided by the length of its chord. The linear planner (`best_schedules`) finds schedules
for them, and hill climbing on surrogates (`published_plan`) improves these schedules. The residual of the block stack
is reused, as in the published step lists.

`python -m galaxydit.calibration.published_profiles` writes the shipped file, in about five minutes on one core.
"""

from functools import cache

import numpy as np
from scipy.interpolate import make_interp_spline

from galaxydit.calibration.build_profile import plan_targets
from galaxydit.calibration.published import NAME, Published, load_published
from galaxydit.calibration.published_plan import FLOW_SHIFTS, RULE, planned
from galaxydit.calibration.recording import Array, Recording, round_digits
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import FullSteps, best_schedules
from galaxydit.calibration.surrogate.solver import unipc
from galaxydit.policies.budget import full_step_count
from galaxydit.profiles import schema
from galaxydit.profiles.evidence import ErrorPropagation, Evidence
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.registry import FOLDER

STEPS = 50
PROXY = "block_residual"
SPEEDUPS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
FORCED = 3  # the curvature of the first three steps is unknown
SERVED = schema.Served(steps=(30, 50), flow_shift=(min(FLOW_SHIFTS), max(FLOW_SHIFTS)), guidance_scale=(5.0, 6.0))
SOURCE = (
    "curvature (arXiv 2609.39343) and error propagation (arXiv 2609.36433) of Wan2.1-T2V-1.3B at 50 steps, "
    "galaxydit's planner"
)
KNOWN = (
    "published for other step lists with the same reuse are 23.4 dB PSNR at 24, 21.5 and 22.3 dB at 19 and 17.0 dB at "
    "10 of 50 steps, and a surrogate fitted to the same measurements predicts more; never run with these weights by "
    "this project"
)


def published_profile() -> schema.Profile:
    """Plan the published profile of Wan2.1-T2V-1.3B, which the 14B models of T2V and I2V share.

    This takes minutes (`published_targets`); `galaxydit.profiles.registry.load_profile` reads the shipped file.
    """
    published = load_published()
    table = published.data["curvature"]
    return schema.Profile(
        schema_version=schema.SCHEMA_VERSION,
        name=NAME,
        kind="published",
        source=SOURCE,
        model=_model(layers=30, heads=12, channels=16),
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
            served=SERVED,
        ),
        recipe=Recipe(
            proxy=PROXY,
            reuse="residual",
            order=1,
            slope=RULE.slope,
            largest_ahead=RULE.largest_ahead,
            correction_share=RULE.correction,
            error_map=None,
            cumulative_distance=None,
            targets=published_targets(),
        ),
        evidence=Evidence(KNOWN, propagation=published_propagation(published)),
        shared_with=(_model(layers=40, heads=40, channels=16), _model(layers=40, heads=40, channels=36)),
    )


def _model(layers: int, heads: int, channels: int) -> schema.Model:
    config = {"num_layers": layers, "num_attention_heads": heads, "attention_head_dim": 128, "in_channels": channels}
    return schema.Model("WanTransformer3DModel", config)


@cache
def published_targets() -> tuple[Target, ...]:
    """Targets (each a speedup and its full steps) by rising speedup, planned in minutes at the first call.

    There is one for each number of full steps from that of the largest of `SPEEDUPS` to that of the smallest: of 50
    steps, 12 (4x) to 40 (1.25x).
    """
    fewest, most = (full_step_count(STEPS, speedup) for speedup in (max(SPEEDUPS), min(SPEEDUPS)))
    plans = planned({count: full for count, full in linear_plans(most).items() if count >= fewest}, FORCED)
    sigmas = wan_sigmas(load_published().data["curvature"]["flow_shift"], STEPS)
    return plan_targets(plans, sigmas, SPEEDUPS, FORCED / STEPS)


def linear_plans(most: int) -> dict[int, FullSteps]:
    """The linear planner's best schedule of 50 steps (rising indices of full steps) by number of full steps to `most`.

    The first three steps and the last are full, and full steps are at most 12 steps apart (`LONGEST_GAP`), so small
    numbers have no schedule. Schedules are planned at the flow shift of the published curvature, 5, and at order 0: a
    reused step repeats the last full step.
    """
    published = load_published()
    recording = published_recording(published, published.data["curvature"]["flow_shift"], STEPS)
    model = ScheduleError([recording], corrects=False)  # only starts; the surrogate corrects
    plans = best_schedules(model, most, published_propagation(published), warmup=FORCED, order=0)
    return {count: full for count, (full, _) in plans.items()}


def published_recording(published: Published, flow_shift: float, steps: int) -> Recording:
    """The recording that a calibration would make at these settings, estimated from the published curvature.

    Its guided predictions are in units of the mean velocity, the chord length of the trajectory per sigma, and change
    from one step to the next by rho2 times the difference in sigma. All changes are taken as parallel, because their
    directions are not published: the worst case within a reuse interval. The planner still adds errors of different
    intervals incoherently.
    """
    sigmas = wan_sigmas(flow_shift, steps)
    curvature, step = curvature_at(published, np.array(sigmas)), -np.diff(sigmas)
    changes = (curvature[:-1] + curvature[1:]) / 2 * step
    return Recording(
        prompt="",
        seed=0,
        sigmas=sigmas,
        scheduler_response=unipc(flow_shift, steps).response,
        guidance_scale=published.data["curvature"]["guidance"],
        latent_shape=(),
        distances={},
        guided_norms=(1.0,) * steps,
        guided_products=tuple(map(tuple, np.outer(changes, changes).tolist())),
    )


def curvature_at(published: Published, sigmas: Array) -> Array:
    """The curvature rho2 at the noise levels `sigmas`.

    It is interpolated, and extrapolated beyond the published steps, log-linearly in time (sigma without its flow
    shift).
    """
    table = published.data["curvature"]
    shift, times = table["flow_shift"], 1 - np.array(table["steps"]) / STEPS
    log_linear = make_interp_spline(times[::-1], np.log(table["rho2"])[::-1], k=1)
    return np.exp(log_linear(sigmas / (shift - (shift - 1) * sigmas)))


def published_propagation(published: Published) -> ErrorPropagation:
    """Error of the final latent / error of the latent at a step, by sigma, scaled to 1 at the last step.

    The published gain is the error of the final latent / the error of a prediction. This ratio is the gain / UniPC's
    response, which is the change of the final latent by that prediction alone. The ratio is scaled because the unit of
    the gain is unknown: the ratio must be 1 at the last step, but there the published gain is 0.25 and the response
    0.06 (at flow shift 3).
    """
    flow_shift = published.data["propagation"]["flow_shift"]
    sigmas, response = wan_sigmas(flow_shift, STEPS), unipc(flow_shift, STEPS).response
    gains = [published.gain(step) / abs(weight) for step, weight in enumerate(response)]
    return ErrorPropagation(sigmas, tuple(round_digits(gain / gains[-1]) for gain in gains))


def wan_sigmas(flow_shift: float, steps: int) -> tuple[float, ...]:
    """Noise level of each step of Wan's schedulers, falling from 1, `(steps,)`."""
    times = [1 - step / steps for step in range(steps)]
    return tuple(round_digits(flow_shift * time / (1 + (flow_shift - 1) * time)) for time in times)


if __name__ == "__main__":
    published_profile().save(FOLDER / f"{NAME}.json")
