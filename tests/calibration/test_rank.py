from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from galaxydit.calibration.rank import Ranking, choose_proxy, proxies_to_compare, rank_proxies, spearman_z
from galaxydit.calibration.recording import Recording
from galaxydit.profiles.evidence import RankedProxy

COSTS = {"block_residual": 0.05, "self_attention": 0.02, "noisy_latent": 0.0}


def test_the_proxy_that_follows_the_change_ranks_first_and_noise_last(recordings: list[Recording]) -> None:
    rows = rank_proxies(recordings).rows
    assert [row.proxy for row in rows] == ["block_residual", "noisy_latent", "time_embedding"]
    assert rows[0].rho > 0.8
    for row in rows:
        assert row.low <= row.rho <= row.high
        assert row.between_low <= row.between <= row.between_high


def test_a_clock_ranks_along_a_trajectory_and_knows_nothing_between_samples(recording_of: Callable) -> None:
    recordings = [recording_of(index, {"noisy_latent": lambda change, rng: change}) for index in range(16)]
    errors = np.array([one.prediction_error(0, 1, 1) for one in recordings])
    trend = np.linspace(2.0, 1.0, recordings[0].steps)  # shared by all samples, as in a denoising run
    scaled = [replace(one, guided_norms=tuple(np.array(one.guided_norms) / trend**3)) for one in recordings]
    deviations = np.nan_to_num(errors / np.nanmean(errors, axis=0), nan=1.0)
    clocked = [
        replace(one, distances={"time_embedding": tuple(trend), "block_residual": tuple(np.abs(deviation) + 1e-9)})
        for one, deviation in zip(scaled, deviations, strict=True)
    ]
    clock, knowing = sorted(rank_proxies(clocked).rows, key=lambda row: row.proxy == "block_residual")
    assert clock.between == clock.between_low == clock.between_high == 0.0
    assert knowing.between > 0.5
    assert knowing.between_low > 0.0
    assert clock.rho > knowing.rho, "along a trajectory the clock wins"


def test_a_cheaper_proxy_wins_if_it_is_not_worse(recording_of: Callable, noisy_proxy: Callable) -> None:
    exact, near, noise = (noisy_proxy(amount) for amount in (0.0, 0.02, 3.0))
    proxies = {"block_residual": exact, "self_attention": near, "noisy_latent": noise}
    chosen, reason = choose_proxy(rank_proxies([recording_of(index, proxies) for index in range(16)], COSTS))
    assert chosen == "self_attention"
    assert "costs 2.0 instead of 5.0 %" in reason


def test_a_dearer_proxy_wins_if_it_is_truly_better(recordings: list[Recording]) -> None:
    chosen, reason = choose_proxy(rank_proxies(recordings, COSTS))
    assert chosen == "block_residual"
    assert "no cheaper proxy is within 0.05 of it" in reason


def test_a_proxy_with_a_wide_interval_is_not_chosen_although_it_is_cheap() -> None:
    rng = np.random.default_rng(0)
    wide = RankedProxy("noisy_latent", 0.0, 0.55, -0.10, 0.905, 0.0, 0.0, 0.0, 0.5)
    best = RankedProxy("block_residual", 0.05, 0.92, 0.90, 0.94, 0.0, 0.0, 0.0, 0.9)
    z = {"noisy_latent": rng.normal(np.arctanh(0.55), 0.8, 16), "block_residual": np.full(16, np.arctanh(0.92))}
    assert choose_proxy(Ranking((best, wide), z))[0] == "block_residual"


def test_too_few_prompts_are_said(recordings: list[Recording]) -> None:
    few = rank_proxies(recordings[:6], COSTS)
    assert "6 prompts: intervals are wide below 16" in choose_proxy(few)[1]


def test_the_same_recordings_in_another_order_rank_the_same(recordings: list[Recording]) -> None:
    for row, other in zip(rank_proxies(recordings).rows, rank_proxies(recordings[::-1]).rows, strict=True):
        assert row.proxy == other.proxy
        assert row.low == pytest.approx(other.low, abs=2e-6)
        assert row.between == pytest.approx(other.between, abs=2e-6)


def test_the_correlation_is_scipys() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=30)
    second = first + rng.normal(size=30)
    assert np.tanh(spearman_z(first, second)) == pytest.approx(spearmanr(first, second).statistic)
    assert spearman_z(np.ones(30), second) == 0.0
    assert spearman_z(first, np.exp(first)) == 5.0


def test_a_proxy_that_does_not_move_ranks_nothing_whatever_its_last_digits_say(
    recording_of: Callable, noisy_proxy: Callable
) -> None:
    follows = noisy_proxy(0.1)
    proxies = {"block_residual": follows, "cross_attention": lambda change, rng: 1e-8 * follows(change, rng)}
    ranking = rank_proxies([recording_of(index, proxies) for index in range(4)])
    assert choose_proxy(ranking)[0] == "block_residual"
    assert [row.rho for row in ranking.rows if row.proxy == "cross_attention"] == [0.0]


def test_the_proxies_to_compare_are_of_different_tensors_and_one_of_them_is_free(recordings: list[Recording]) -> None:
    names = ("block_residual", "block_residual_l2", "self_attention", "noisy_latent_cosine", "time_embedding")
    rhos, between = (0.9, 0.89, 0.8, 0.3, 0.95), (0.0, 0.0, 0.4, 0.1, 0.0)
    rows = tuple(
        RankedProxy(name, 0.0, rho, rho, rho, other, other, other, rho)
        for name, rho, other in zip(names, rhos, between, strict=True)
    )
    assert proxies_to_compare(Ranking(rows, {}), "block_residual") == (
        "block_residual",
        "self_attention",
        "noisy_latent_cosine",
    )
