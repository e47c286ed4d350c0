"""The interval of means and ratios over prompts, on numbers."""

import math

import numpy as np
import pytest

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS, interval


def test_the_interval_of_a_ratio_is_that_of_a_bootstrap_over_prompts():
    rng = np.random.default_rng(3)
    fast = rng.uniform(1, 2, 12)
    plain = 2 * fast + rng.uniform(0, 0.5, 12)  # drawn apart from one another, they would have a far wider interval
    drawn = rng.integers(0, 12, size=(40_000, 12))
    expected = np.quantile(plain[drawn].sum(axis=1) / fast[drawn].sum(axis=1), [0.025, 0.975])
    assert interval(plain, fast) == pytest.approx(expected, rel=0.003)


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        (16, (18.59715259429256, 22.575544114769922)),
        (944, (19.846024401818312, 20.47863227702786)),
    ],
)
def test_the_resamples_never_change(prompts: int, expected: tuple[float, float]):
    rng = np.random.default_rng(prompts)
    assert interval(rng.normal(30, 5, prompts), rng.uniform(1, 2, prompts)) == pytest.approx(expected, rel=1e-12)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_for_many_prompts():
    differences = np.random.default_rng(1).normal(1.0, 2.0, 200)
    half = 1.96 * differences.std() / math.sqrt(200)
    expected = [differences.mean() - half, differences.mean() + half]
    assert interval(differences) == pytest.approx(expected, abs=0.05)
    assert interval(differences, np.ones(200)) == interval(list(differences))


def test_equal_numbers_give_the_same_interval_every_time():
    numerators, denominators = [1.0, 2.0, 4.0, 3.0, 5.0, 2.5], [1.0, 1.0, 2.0, 1.0, 2.0, 1.0]
    assert interval(numerators, denominators) == interval(numerators, denominators)
    assert interval(numerators, denominators) != (None, None)


def test_equal_prompts_have_an_interval_of_no_width():
    assert interval([2.0] * FEWEST_PROMPTS) == (2.0, 2.0)


@pytest.mark.parametrize("numerators", [[], [3.0], [1.0, 2.0, 3.0, 4.0, 5.0], [3.0] * 6 + [math.inf]])
def test_too_few_prompts_and_infinite_ones_have_no_interval(numerators: list[float]):
    assert interval(numerators) == (None, None)
