"""Parameters of the policy "proxy", from recordings: mean distance, weight of deviations, thresholds."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from galaxydit.calibration.recording import LAGS, Recording, round_digits
from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.policies.policy import Controller, Limits, Observation, Policy
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.profiles.configure import proxy_policy
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
    """The weight w = b / (order + 2), in [0, 1], of a sample's deviation from the mean proxy distance.

    b is the pooled slope of log error on log distance between samples at one step. If the error of h steps grows as
    distance^b h^(order + 2), the squared errors of a number of full steps are least for h proportional to distance^-w.
    """
    product = square = 0.0
    for lag in LAGS:
        distances = np.array([recording.accumulated(proxy, lag) for recording in recordings])
        errors = np.array([recording.errors_of_reuse[order, lag] for recording in recordings])
        known = ((distances > 0) & (errors > 0)).all(axis=0)
        log_distance = np.log(distances[:, known])
        log_error = np.log(errors[:, known])
        deviation = log_distance - log_distance.mean(axis=0)
        product += float((deviation * (log_error - log_error.mean(axis=0))).sum())
        square += float((deviation**2).sum())
    # b = (sum of products) / (sum of squares), the slope through the means of each step
    elasticity = 0.0
    if square > NO_SPREAD:
        elasticity = product / square
    return round_digits(np.clip(elasticity / (order + 2), 0.0, 1.0), 4)


def replay(recording: Recording, proxy: str, policy: Policy, limits: Limits) -> tuple[int, ...]:
    """The full steps that `policy` would choose, given the recorded distances of the proxy."""
    controller = Controller(policy, limits)
    full: list[int] = []
    for step in range(recording.steps):
        if step in (0, recording.switch):
            distance = None
        else:
            distance = recording.distances[proxy][step]
        has_history = bool(full) and step != recording.switch
        observation = Observation(step, recording.steps, distance, has_history, recording.sigmas)
        if not controller.decide(observation).reuse:
            full.append(step)
    return tuple(full)


def planned_steps(profile: Profile, speedup: float) -> tuple[int, ...]:
    """The full steps that the profile's schedule computes at a speedup."""
    return tuple(map(profile.conditions.sigmas.index, profile.target_for(speedup).sigmas))


def follows_schedule(recordings: Sequence[Recording], profile: Profile, speedup: float) -> bool:
    """Whether the policy "proxy" computes just the planned steps in the replay of every recording."""
    limits = Limits(warmup=profile.target_for(speedup).warmup, max_consecutive=None)
    policy = proxy_policy(profile, speedup)
    planned = planned_steps(profile, speedup)
    same = all(replay(recording, profile.recipe.proxy, policy, limits) == planned for recording in recordings)
    return same and profile.recipe.proxy_share == 0


def solve_threshold(
    recordings: Sequence[Recording], proxy: str, policy: ProxyThreshold, limits: Limits, speedup: float, share: float
) -> float:
    """The threshold at which the mean compute fraction of `policy`, replayed on recordings, is nearest to 1 / speedup.

    It is 1 if that comes within 3 %, else found by bisection in [0.2, 5]. The replay ignores `policy.leeway`, with
    which the fraction hardly depends on it. A reused step runs the `share` of a full step's block evaluations.
    """

    def excess(threshold: float) -> float:
        free = replace(policy, threshold=threshold, leeway=None)
        steps = recordings[0].steps
        fractions = []
        for recording in recordings:
            count = len(replay(recording, proxy, free, limits))
            fractions.append((count + share * (steps - count)) / steps)
        return fmean(fractions) - 1 / speedup

    if abs(excess(1.0)) <= CLOSE_ENOUGH / speedup:
        return 1.0
    low = float(np.log(RANGE[0]))
    high = float(np.log(RANGE[1]))
    tried = {}
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried[middle] = excess(float(np.exp(middle)))
        # A higher threshold computes fewer steps.
        if tried[middle] > 0:
            low = middle
        else:
            high = middle
    closest = min(map(abs, tried.values()))
    equal = [threshold for threshold, distance in tried.items() if abs(distance) <= closest + 1e-9]
    # The logarithm nearest to 0 is the threshold nearest to 1.
    return round_digits(float(np.exp(min(equal, key=abs))), 5)
