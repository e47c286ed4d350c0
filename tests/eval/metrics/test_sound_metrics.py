"""Metrics of sound against torchmetrics and the spectrograms of transformers."""

from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics.functional.audio import (
    scale_invariant_signal_distortion_ratio,
    source_aggregated_signal_distortion_ratio,
)
from transformers.audio_utils import mel_filter_bank, optimal_fft_length, spectrogram, window_function

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.metrics import LOG_MEL, METRICS, RMS_RATIO, SI_SDR, measure
from galaxydit.eval.metrics.log_mel import log_mel, mel_filters, window_length
from galaxydit.eval.metrics.metric import SoundMetric
from galaxydit.pipelines.video import AAC_RATES, Sound

RATE = 16000
SOUND_METRICS = [metric for metric in METRICS.values() if isinstance(metric, SoundMetric)]
FRAMES = np.zeros((1, 16, 16, 3), np.float32)
each_metric = pytest.mark.parametrize("metric", SOUND_METRICS, ids=lambda metric: metric.name)
ten_signals = pytest.mark.parametrize("seed", range(10))


def noise(seed: int, channels: int = 1, samples: int = 9001) -> Sound:
    values = np.random.default_rng(seed).normal(0, 0.2, (channels, samples)).clip(-1, 1)
    return Sound(values.astype(np.float32), RATE)


def pair(seed: int, channels: int = 1) -> tuple[Sound, Sound]:
    """A sound and its reference: from 0.05 to 0.5 times another noise is added."""
    reference, other = noise(seed, channels), noise(seed + 100, channels)
    mixed = reference.samples + np.float32(0.05 * (seed + 1)) * other.samples
    return Sound(mixed.clip(-1, 1), RATE), reference


def with_samples(sound: Sound, samples: Any) -> Sound:
    return Sound(np.ascontiguousarray(samples, np.float32), sound.rate)


@ten_signals
def test_si_sdr_agrees_with_torchmetrics(seed: int) -> None:
    sound, reference = pair(seed)
    tensors = (torch.from_numpy(each.samples[0].astype(float)) for each in (sound, reference))
    assert SI_SDR(sound, reference) == pytest.approx(float(scale_invariant_signal_distortion_ratio(*tensors)), abs=1e-4)


@ten_signals
def test_si_sdr_of_two_channels_is_that_of_one_signal_with_one_scale(seed: int) -> None:
    sound, reference = pair(seed, channels=2)
    tensors = (torch.from_numpy(each.samples.astype(float)) for each in (sound, reference))
    expected = source_aggregated_signal_distortion_ratio(*tensors)
    assert SI_SDR(sound, reference) == pytest.approx(float(expected), abs=1e-4)


def reference_log_mel(samples: np.ndarray, rate: int) -> np.ndarray:
    length = optimal_fft_length(int(0.04 * rate))
    filters = mel_filter_bank(length // 2 + 1, 80, 0, rate / 2, rate)
    window = window_function(length, "hann")
    options = {"power": 2.0, "mel_filters": filters, "log_mel": "dB", "pad_mode": "constant", "dtype": np.float64}
    return spectrogram(samples.astype(float), window / window.sum(), length, length // 4, **options)


@ten_signals
def test_log_mel_agrees_with_the_spectrograms_of_transformers(seed: int) -> None:
    sound, reference = pair(seed, channels=2)
    levels = [[reference_log_mel(channel, RATE) for channel in each.samples] for each in (sound, reference)]
    assert LOG_MEL(sound, reference) == pytest.approx(np.abs(np.subtract(*levels)).mean(), rel=1e-4)


@pytest.mark.parametrize("rate", [8000, 24000, 48000])
def test_the_levels_themselves_agree_at_other_rates(rate: int) -> None:
    (samples,) = noise(0).samples
    np.testing.assert_allclose(
        log_mel(samples[None].astype(float), rate)[0], reference_log_mel(samples, rate), atol=1e-4
    )


@ten_signals
def test_the_rms_ratio_agrees_with_torch(seed: int) -> None:
    sound, reference = pair(seed, channels=2)
    squares = [torch.from_numpy(each.samples.astype(float)).square().mean() for each in (sound, reference)]
    assert RMS_RATIO(sound, reference) == pytest.approx(float((squares[0] / squares[1]).sqrt()), abs=1e-5)


@each_metric
def test_equal_sounds_have_the_best_value(metric: SoundMetric) -> None:
    best = {"si_sdr": 120.0, "log_mel": 0.0, "rms_ratio": 1.0}
    assert metric(noise(0), noise(0)) == best[metric.name]


def test_loudness_changes_the_rms_ratio_and_not_si_sdr() -> None:
    sound, reference = pair(3)
    quieter = with_samples(sound, sound.samples / 2)
    assert SI_SDR(quieter, reference) == pytest.approx(SI_SDR(sound, reference), abs=1e-4)
    assert RMS_RATIO(quieter, reference) == pytest.approx(RMS_RATIO(sound, reference) / 2, abs=1e-5)
    assert LOG_MEL(with_samples(reference, reference.samples / 2), reference) == pytest.approx(6.02, abs=0.01)


def test_a_sound_that_is_reversed_in_time_is_as_loud_and_shares_nothing() -> None:
    reference = noise(0)
    reversed_sound = with_samples(reference, reference.samples[:, ::-1])
    assert SI_SDR(reversed_sound, reference) < -10
    assert RMS_RATIO(reversed_sound, reference) == pytest.approx(1.0)
    assert LOG_MEL(reversed_sound, reference) > 1


def test_what_shares_nothing_with_the_plain_sound_has_a_finite_value() -> None:
    one, other = np.zeros((1, 100), np.float32), np.zeros((1, 100), np.float32)
    one[0, ::2], other[0, 1::2] = 0.5, 0.5
    assert SI_SDR(Sound(one, RATE), Sound(other, RATE)) == -120.0


@each_metric
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sound: with_samples(sound, sound.samples[:, :-1]), r"sounds=.* expected equal .channels, samples."),
        (lambda sound: with_samples(sound, np.repeat(sound.samples, 2, axis=0)), r"sounds=.* expected equal"),
        (lambda sound: Sound(sound.samples, 48000), r"rates=.* expected equal ones"),
    ],
    ids=["length", "channels", "rate"],
)
def test_another_length_rate_or_number_of_channels_is_refused(metric: SoundMetric, change: Any, message: str) -> None:
    with pytest.raises(GalaxyDiTError, match=message):
        metric(change(noise(0)), noise(0))
    values, skipped, failures = measure(FRAMES, FRAMES, "", [metric], sound=change(noise(0)), reference_sound=noise(0))
    assert (values, skipped, list(failures)) == ({}, {}, [metric.name])


@each_metric
@pytest.mark.parametrize(
    ("sound", "reference", "reason"),
    [
        (None, None, "the video has no sound"),
        (None, noise(0), "its sound is missing"),
        (noise(0), None, "the sound of the plain video is missing"),
        (Sound(np.zeros((1, 9001), np.float32), RATE), noise(0), "its sound is silent"),
        (noise(0), Sound(np.full((1, 9001), 2.0**-25, np.float32), RATE), "the sound of the plain video is silent"),
    ],
)
def test_missing_sound_and_silence_have_no_value_and_a_reason(
    metric: SoundMetric, sound: Sound | None, reference: Sound | None, reason: str
) -> None:
    values, skipped, failures = measure(FRAMES, FRAMES, "", [metric], sound=sound, reference_sound=reference)
    assert (values, skipped, failures) == ({}, {metric.name: reason}, {})
    with pytest.raises(ValueError, match=f"{reason}$"):
        metric(sound, reference)


@each_metric
@pytest.mark.parametrize("samples", [np.zeros((6, 9), np.float32), np.full((1, 9), np.nan, np.float32)])
def test_what_is_no_sound_is_refused(metric: SoundMetric, samples: np.ndarray) -> None:
    with pytest.raises(GalaxyDiTError, match=r"sound\.samples.*expected"):
        metric(Sound(samples, RATE), noise(0))


@each_metric
def test_a_plain_video_is_compared_with_nothing(metric: SoundMetric) -> None:
    _, skipped, _ = measure(FRAMES, None, "", [metric], sound=noise(0))
    assert "which this video is" in skipped[metric.name]


@pytest.mark.parametrize("rate", AAC_RATES)
def test_no_band_is_empty_at_any_rate(rate: int) -> None:
    filters = mel_filters(window_length(rate), rate)
    assert filters.max(axis=0).min() > 0.4
    assert (filters >= 0).all()


@each_metric
def test_the_shortest_sounds_have_values(metric: SoundMetric) -> None:
    one = Sound(np.full((2, 1), 0.5, np.float32), RATE)
    assert np.isfinite(metric(one, one))
