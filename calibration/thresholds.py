"""Parameters of the proxy policy, from recordings: mean distance, weight of deviations, threshold of each speedup.

The policy "proxy" reuses steps until the proxy has moved far enough since the last full step (`ProxyThreshold`). The
order of prediction is 0 if a reused step repeats the last full step, and 1 if it extrapolates the last two.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from galaxydit.calibration.recording import LAGS, Recording, round_digits
from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.policies.policy import Controller, Limits, Observation, Policy
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.profiles.resolve import proxy_policy
from galaxydit.profiles.schema import Profile

RANGE = (0.2, 5.0)  # of thresholds; a sample that moves like the mean of the recordings needs 1
HALVINGS = 10  # of the range's logarithm
CLOSE_ENOUGH = 0.03  # relative difference of the compute fraction; in a generation the leeway removes the rest
NO_SPREAD = 1e-9  # summed square of log distances, below which samples differ by rounding alone


def mean_distance(recordings: Sequence[Recording], proxy: str) -> CumulativeDistance:
    """The proxy's distance summed from the first step to each step, mean over the recordings."""
    distances = np.mean([recording.distances[proxy] for recording in recordings], axis=0)
    return CumulativeDistance(recordings[0].sigmas, tuple(map(round_digits, np.cumsum(distances))))


def deviation_weight(recordings: Sequence[Recording], proxy: str, order: int) -> float:
    """The weight w, in [0, 1], of a sample's deviation from the mean, with which the policy "proxy" errs least.

    As the distance of each step, which it sums since the last full step, the policy takes m + w * (d - m): d is the
    sample's proxy distance from the step before, and m the mean of d over the recordings.

    w is b / (order + 2), limited to [0, 1]. b says how steeply the error of reuse rises with the proxy's distance
    between samples at the same step: the slope of log error on log distance, both less their mean over the samples,
    pooled over all steps and gaps of 1 to 4 steps since the last full step.

    The reason: the error of an interval of h steps is taken as r h^(order + 2), with a rate r proportional to
    distance^b. For a given number of full steps the sum of squared errors is then least if h is proportional to
    distance to the power of -b / (order + 2). The rule "distance below a threshold" makes h proportional to 1 /
    distance instead, which moves full steps too far even if b is 1.
    """
    product = square = 0.0
    for lag in LAGS:
        distances = np.array([recording.accumulated(proxy, lag) for recording in recordings])
        errors = np.array([recording.prediction_error(order, lag, lag) for recording in recordings])
        known = ((distances > 0) & (errors > 0)).all(axis=0)
        log_distance, log_error = (np.log(values[:, known]) for values in (distances, errors))
        deviation = log_distance - log_distance.mean(axis=0)
        product += float((deviation * (log_error - log_error.mean(axis=0))).sum())
        square += float((deviation**2).sum())
    elasticity = product / square if square > NO_SPREAD else 0.0
    return round_digits(np.clip(elasticity / (order + 2), 0.0, 1.0), 4)


def replay(recording: Recording, proxy: str, policy: Policy, limits: Limits) -> tuple[int, ...]:
    """The full steps that `policy` would choose under `limits`, given the recorded distances of the proxy.

    They are rising indices, from 0, of the recording's steps.
    """
    controller = Controller(policy, limits)
    full: list[int] = []
    for step in range(recording.steps):
        distance = None if step in (0, recording.switch) else recording.distances[proxy][step]
        has_history = bool(full) and step != recording.switch
        observation = Observation(step, recording.steps, distance, has_history, recording.sigmas)
        if not controller.decide(observation).reuse:
            full.append(step)
    return tuple(full)


def planned_steps(profile: Profile, speedup: float) -> tuple[int, ...]:
    """The full steps that the profile's schedule computes at a speedup.

    They are rising indices, from 0, in a generation of `profile.conditions.steps` steps.
    """
    return tuple(map(profile.conditions.sigmas.index, profile.target_for(speedup).sigmas))


def follows_schedule(recordings: Sequence[Recording], profile: Profile, speedup: float) -> bool:
    """Whether the policy "proxy" computes exactly the planned steps (`planned_steps`) in the replay of every recording.

    Planned steps and threshold are those of the profile's target for `speedup`, its settings for the speedup with the
    nearest number of full steps (`Profile.target_for`). The result is False if the proxy runs any part of a block,
    because the compute then differs from the schedule's.
    """
    limits = Limits(warmup=profile.target_for(speedup).warmup, max_consecutive=None)
    policy, planned = proxy_policy(profile, speedup), planned_steps(profile, speedup)
    same = all(replay(recording, profile.recipe.proxy, policy, limits) == planned for recording in recordings)
    return same and profile.recipe.proxy_share == 0


def compute_fraction(full_steps: int, steps: int, share_of_step: float) -> float:
    """Block evaluations with the plugin, divided by those without it.

    To read the proxy, a reused step runs the share `share_of_step` of the block evaluations of a full step.
    """
    return (full_steps + share_of_step * (steps - full_steps)) / steps


def solve_threshold(
    recordings: Sequence[Recording],
    proxy: str,
    policy: ProxyThreshold,
    limits: Limits,
    speedup: float,
    share_of_step: float,
) -> float:
    """The threshold at which the mean compute fraction of `policy`, replayed on recordings, is nearest to 1 / speedup.

    The threshold is a factor: the policy computes a step when the proxy distance since the last full step reaches the
    threshold times the mean distance from one full step of `policy.schedule` to half a step before the next one
    (`ProxyThreshold`). At 1, a sample whose distances equal the mean computes the full steps of the schedule.

    The result is 1 if the fraction at 1 is within 3 % of 1 / speedup. Otherwise bisection in [0.2, 5] finds it, because
    a larger threshold reuses more; a threshold near an end of this range means that the speedup is out of reach of the
    proxy. The replay ignores `policy.leeway`, because with a leeway the fraction hardly depends on the threshold.

    `limits` bound the policy in the replay: first and last steps that are always computed, and steps reused in a row.
    To read the proxy, a reused step runs the share `share_of_step` of the block evaluations of a full step.
    """

    def excess(threshold: float) -> float:
        """Mean over the recordings of the policy's `compute_fraction` at `threshold`, less 1 / `speedup`."""
        free = replace(policy, threshold=threshold, leeway=None)
        counts = [len(replay(recording, proxy, free, limits)) for recording in recordings]
        return fmean(compute_fraction(count, recordings[0].steps, share_of_step) for count in counts) - 1 / speedup

    if abs(excess(1.0)) <= CLOSE_ENOUGH / speedup:
        return 1.0
    low, high = (float(np.log(end)) for end in RANGE)
    tried = {}
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried[middle] = excess(float(np.exp(middle)))
        low, high = (middle, high) if tried[middle] > 0 else (low, middle)
    closest = min(map(abs, tried.values()))
    equal = [threshold for threshold, distance in tried.items() if abs(distance) <= closest + 1e-9]
    return round_digits(float(np.exp(min(equal, key=abs))), 5)
