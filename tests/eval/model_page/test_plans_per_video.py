"""Plans by video, on recordings whose changes are known, and on a random pipeline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from galaxydit.calibration.recording import Recording
from galaxydit.eval.model_page.plans_per_video import (
    BY_PROXY,
    FOR_ALL,
    OWN,
    PLANS,
    PSNRS,
    estimated_by_proxy,
    measure_plans,
    named_plans,
    plans_of,
    plans_table,
    psnrs_of,
    tasks_of,
)
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.profiles.evidence import ErrorPropagation

STEPS = 16
QUICK = replace(WAN_TINY, height=32, width=32, num_frames=5, steps=STEPS)


def recording_of(changes):
    """A recording whose guided prediction changes by `changes` `(steps - 1,)`, as does its proxy."""
    changes = np.asarray(changes, float)
    return Recording(
        prompt="a red ball moves left over a plain background",
        seed=0,
        sigmas=tuple(np.linspace(1.0, 0.05, STEPS)),
        scheduler_response=tuple(np.full(STEPS, 1 / STEPS)),
        guidance_scale=5.0,
        latent_shape=(16, 2, 4, 4),
        distances={"block_output": (0.0, *changes)},
        guided_norms=tuple(np.ones(STEPS)),
        guided_products=tuple(map(tuple, np.diag(changes**2).tolist())),
    )


EARLY = np.where(np.arange(STEPS - 1) < 8, 1.0, 0.05)
LATE = EARLY[::-1]
RECORDINGS = [recording_of(EARLY), recording_of(LATE), recording_of(LATE * 1.1), recording_of(LATE * 0.9)]


def test_a_video_that_is_unlike_the_others_gets_another_plan_of_as_many_steps():
    plans = plans_of(RECORDINGS, 0, 8, "block_output", ErrorPropagation())
    assert {len(plan) for plan in plans.values()} == {8}
    middle = STEPS // 2
    assert sum(step < middle for step in plans[OWN]) > sum(step < middle for step in plans[FOR_ALL])


def test_a_perfect_proxy_gives_the_changes_of_the_video():
    others = [recording_of(LATE * factor) for factor in (0.5, 1.0, 2.0)]
    estimated = estimated_by_proxy(recording_of(LATE * 3), others, "block_output")
    expected = np.mean([other.products for other in others], axis=0)[10, 10] * 3**2
    assert estimated.products[10, 10] == pytest.approx(expected)
    assert estimated.products[0, 0] == pytest.approx(expected * (LATE[0] / LATE[10]) ** 2 / 3**2)


def test_every_plan_has_its_psnr_and_equal_plans_are_generated_once(tiny_wan_pipeline):
    rows = [{"caption": each.prompt, "seed": each.seed} for each in RECORDINGS[:1]]
    plan = tuple(range(0, STEPS, 2))
    planned = [{FOR_ALL: plan, OWN: (*plan, STEPS - 1), BY_PROXY: plan}]
    (task,) = tasks_of(rows, [planned], {}, Path("model"), None)
    measured = {task.caption: measure_plans(tiny_wan_pipeline, task, QUICK)}
    assert len(measured[task.caption]) == 2
    assert tasks_of(rows, [planned], measured, Path("model"), None) == []
    content = {PLANS: {"2": named_plans(rows, planned)}, PSNRS: measured}
    assert psnrs_of(content, "2", FOR_ALL) == psnrs_of(content, "2", BY_PROXY)
    assert len(plans_table(content).rows) == 3
