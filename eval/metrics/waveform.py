"""Metrics of the samples of a sound: distortion whatever the loudness, and loudness alone."""

import math

import numpy as np

from galaxydit.eval.metrics.metric import Samples, SoundMetric

HIGHEST_SI_SDR = 120.0  # dB; stands for equal sounds, because JSON has no infinity


def _si_sdr(sound: Samples, reference: Samples, rate: int) -> float:
    estimate = sound.ravel()
    source = reference.ravel()
    # a s, with a = <x, s> / |s|^2
    target = (estimate @ source) / (source @ source) * source
    distortion = target - estimate
    power = float(target @ target)
    error = float(distortion @ distortion)
    smallest = 10 ** (-HIGHEST_SI_SDR / 10)
    if error <= smallest * power:
        return HIGHEST_SI_SDR
    if power <= smallest * error:
        return -HIGHEST_SI_SDR
    return 10 * math.log10(power / error)


def _rms_ratio(sound: Samples, reference: Samples, rate: int) -> float:
    return math.sqrt(float(np.mean(sound**2)) / float(np.mean(reference**2)))


SI_SDR = SoundMetric(
    name="si_sdr",
    title="SI-SDR",
    unit="dB",
    low=-HIGHEST_SI_SDR,
    high=HIGHEST_SI_SDR,
    function=_si_sdr,
)
"""Scale-invariant signal-to-distortion ratio in dB, from -120 to 120, which stands for equal sounds.

10 log10(|a s|^2 / |a s - x|^2) with the sound x, the plain sound s and the scale a = <x, s> / |s|^2, without removing
means (Le Roux et al. 2019, arXiv 1811.02508). Two channels are one signal with one scale, so that a good channel hides
no bad one, and a wrong balance counts (von Neumann et al. 2022, arXiv 2110.15581).
"""

RMS_RATIO = SoundMetric(
    name="rms_ratio",
    title="RMS ratio",
    high=math.inf,
    best=1.0,
    function=_rms_ratio,
)
"""Root mean square of the sound / that of the plain sound, over all samples and channels; from 0, 1 is equally loud."""
