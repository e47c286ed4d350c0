"""Distance of two sounds on logarithmic mel spectrograms, which tell what is heard at which time and pitch."""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from galaxydit.eval.metrics.metric import Samples, SoundMetric

BANDS = 80
WINDOW_SECONDS = 0.04  # at least, so that no band of any rate is empty
HOPS = 4  # in a window
FLOOR = 1e-10  # of the power, -100 dB: silence has no logarithm


def log_mel(samples: Samples, rate: int) -> NDArray[np.float64]:
    """Levels `(channels, BANDS, times)` in dB, at least -100.

    10 log10 of the power spectrum |X|^2, summed by `mel_filters`, under periodic Hann windows with a sum of 1. A window
    has `window_length` samples, and the next one begins a quarter of it later. Zeros surround the sound, so that the
    first window is centred at the first sample.
    """
    length = window_length(rate)
    window = np.hanning(length + 1)[:-1]
    padded = np.pad(samples, ((0, 0), (length // 2, length // 2)))
    filters = mel_filters(length, rate)
    levels = []
    for channel in padded:  # one at a time, because the windows of a minute take 200 MB
        windows = sliding_window_view(channel, length)[:: length // HOPS]
        power = np.abs(np.fft.rfft(windows * (window / window.sum()))) ** 2
        levels.append(10 * np.log10(np.maximum(power @ filters, FLOOR)).T)
    return np.stack(levels)


def window_length(rate: int) -> int:
    """Samples of a window, the first power of two that lasts `WINDOW_SECONDS`."""
    return int(2 ** math.ceil(math.log2(WINDOW_SECONDS * rate)))


def mel_filters(length: int, rate: int) -> NDArray[np.float64]:
    """Triangles `(length / 2 + 1, BANDS)` over the frequencies of a window, equally spaced in mel from 0 to rate / 2.

    mel = 2595 log10(1 + Hz / 700) (O'Shaughnessy 1987, as in HTK). A triangle is 1 at its centre, 0 at the next ones.
    """
    highest = 2595 * math.log10(1 + rate / 2 / 700)
    centres = 700 * (10 ** (np.linspace(0, highest, BANDS + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(length, 1 / rate)[:, None]
    left, centre, right = centres[:-2], centres[1:-1], centres[2:]
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    return np.maximum(0, np.minimum(rising, falling))


def _distance(sound: Samples, reference: Samples, rate: int) -> float:
    return float(np.abs(log_mel(sound, rate) - log_mel(reference, rate)).mean())


LOG_MEL = SoundMetric(
    name="log_mel",
    title="log-mel distance",
    unit="dB",
    high=math.inf,
    higher_is_better=False,
    function=_distance,
)
"""Mean absolute difference of `log_mel` in dB over channels, bands and times; from 0, which means equal.

The L1 distance of the mel loss of vocoders (Kong et al. 2020, arXiv 2010.05646), in dB, with windows of at least 0.04 s
at every rate.
"""
