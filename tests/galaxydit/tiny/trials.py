"""Trials of a calibration with numbers of a test's own."""

from galaxydit.calibration.parts import Tried
from galaxydit.pipelines.trial_result import TrialResult


def tried(policy: str, speedup: float, prompt: str, seed: int, fraction: float, psnr: float) -> Tried:
    """A trial that took 1 s, and 2 s without the plugin."""
    metrics = {"psnr": psnr}
    result = TrialResult(compute_fraction=fraction, metrics=metrics, denoise_seconds=1.0, plain_denoise_seconds=2.0)
    return Tried(policy, speedup, prompt, seed, result)
