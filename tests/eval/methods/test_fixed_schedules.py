"""The controls and planners with searched schedules."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from galaxydit.calibration.generation_observer import record_sample
from galaxydit.eval.methods.fixed_schedules import (
    by_final_error,
    by_path_costs,
    even_schedule,
    full_step_counts,
    path_costs,
    planned,
)
from galaxydit.extrapolation import CachedStep, predict


@pytest.fixture
def twelve_steps(tiny_settings):
    return replace(tiny_settings, steps=12)


@pytest.mark.parametrize("plan", [by_final_error, by_path_costs])
def test_a_schedule_is_found_for_each_number_of_full_steps(plan, tiny_wan_pipeline, twelve_steps):
    found = planned(tiny_wan_pipeline, ["a red ball", "a"], twelve_steps, 0, plan)
    assert {int(count): len(schedule) for count, schedule in found.items()} == {n: n for n in full_step_counts(12)}
    assert all(schedule[0] == 0 and schedule[-1] == 11 for schedule in found.values())


def test_counts_of_full_steps():
    assert full_step_counts(50)[0] == 42
    assert full_step_counts(50)[-1] == 11
    assert even_schedule(50, 25)[0] == 0
    assert even_schedule(50, 25)[-1] == 49
    assert len(set(even_schedule(50, 33))) == 33


def test_dpcache_has_the_least_sum_of_costs_of_all_schedules(tiny_wan_pipeline, twelve_steps):
    recordings = [record_sample(tiny_wan_pipeline, "a red ball", twelve_steps, 0)[0]]
    costs = path_costs(recordings)

    def cost(full):
        gaps = [0, *(after - before for before, after in pairwise(full))]
        return sum(costs[at, before, gap] for at, before, gap in zip(full, gaps, gaps[1:], strict=False))

    every = [(0, 1, 2, *some, 11) for some in combinations(range(3, 11), 2)]
    assert cost(by_path_costs(recordings, 6)[6]) == pytest.approx(min(map(cost, every)))


def test_a_path_costs_the_errors_of_its_predictions(tiny_wan_pipeline, twelve_steps):
    recording = record_sample(tiny_wan_pipeline, "a red ball", twelve_steps, 0)[0]
    # Vectors with the recorded products of differences stand for the outputs.
    values, vectors = np.linalg.eigh(recording.products)
    differences = vectors * np.sqrt(np.maximum(values, 0.0))
    outputs = np.vstack([np.zeros(len(values)), np.cumsum(differences, axis=0)])

    def error(step):
        past = [CachedStep(at, recording.sigmas[at], torch.tensor(outputs[at])) for at in (2, 4)]
        return np.linalg.norm(predict(tuple(past), recording.sigmas[step], 1).numpy() - outputs[step])

    assert path_costs([recording])[4, 2, 3] == pytest.approx(error(5) + error(6), rel=1e-4)
