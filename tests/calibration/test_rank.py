from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import spearmanr

from galaxydit.calibration.rank import choose_proxy, rank_proxies, spearman_z
from galaxydit.calibration.recording import Recording
from galaxydit.profiles.schema import RankedProxy


def test_the_proxy_that_follows_the_change_ranks_first_and_noise_last(recordings: list[Recording]) -> None:
    ranking = rank_proxies(recordings)
    assert [row.proxy for row in ranking] == ["block_residual", "noisy_latent", "time_embedding"]
    assert ranking[0].rho > 0.9
    for row in ranking:
        assert row.low <= row.rho <= row.high


def test_a_cheaper_proxy_wins_when_its_interval_overlaps(recording_of: Callable, noisy_proxy: Callable) -> None:
    proxies = {"block_residual": noisy_proxy(0.3), "self_attention": noisy_proxy(0.3), "noisy_latent": noisy_proxy(3.0)}
    ranking = rank_proxies([recording_of(index, proxies) for index in range(8)])
    chosen, why = choose_proxy(ranking)
    assert chosen == "self_attention"
    assert "rho" in why


def test_a_dearer_proxy_wins_when_it_is_truly_better(recordings: list[Recording]) -> None:
    chosen, why = choose_proxy(rank_proxies(recordings))
    assert chosen == "block_residual"
    assert "no other interval overlaps it" in why


def test_the_same_recordings_in_another_order_rank_the_same(recordings: list[Recording]) -> None:
    for row, other in zip(rank_proxies(recordings), rank_proxies(recordings[::-1]), strict=True):
        assert row.proxy == other.proxy
        assert row.low == pytest.approx(other.low, abs=2e-6)


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
    assert [row.rho for row in ranking if row.proxy == "cross_attention"] == [0.0]


def test_a_constant_proxy_is_not_chosen_however_cheap_and_however_badly_the_others_rank() -> None:
    constant = RankedProxy("noisy_latent", 0.0, 0.0, 0.0, 0.0, 0.0, (0.0,) * 4)
    weak = RankedProxy("block_residual", 1.0, 0.05, -0.1, 0.2, 0.0, (0.0,) * 4)
    assert choose_proxy([weak, constant])[0] == "block_residual"
