"""Compare predictions of reused steps on the schedules of the shipped profile.

`python -m galaxydit.eval.studies.predictions --prompts 12` logs the PSNR of each prediction against the plain videos
of captions not used in the training of wan-tiny, the embedded model. Each prediction is a weighted sum of the outputs
of the last computed steps. The weights depend on the places of the steps; the place of a step is its noise level, or a
function of it.
"""

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.eval.compare.rules.rule_engine import driven
from galaxydit.eval.realism.step_lists import Cases
from galaxydit.extrapolation import DAMPING
from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.registry import load_profile
from galaxydit.runtime.call import Call
from galaxydit.runtime.observer import Observer

logger = logging.getLogger(__name__)
SEED, BATCH = 77, 6
Weights = Callable[[Sequence[float], float], Sequence[float]]
"""Function of the places of the computed steps, oldest first, and of the predicted step's place.

Returns the weights of the outputs of the last computed steps, oldest first; it may leave out older steps.
"""


def repeated(places: Sequence[float], place: float) -> list[float]:
    """Weights that repeat the output of the last computed step: 1 for this step, none for older ones.

    `places` (of the last computed steps, oldest first) and `place` (of the predicted step) are not used.
    """
    return [1.0]


def line(older: int, damping: float = 1.0) -> Weights:
    """Function that weights the outputs as a straight line through two computed steps: the last, and the `older`-th
    before it.

    It takes the places of the computed steps, oldest first, and the predicted step's place, and returns the weights of
    the last `older` + 1 outputs, oldest first. With fewer computed steps, the line's second step is the oldest; a
    single computed step is repeated. `damping` multiplies the slope.
    """

    def weights(places: Sequence[float], place: float) -> list[float]:
        back = min(older, len(places) - 1)
        if back == 0:
            return [1.0]
        slope = damping * (place - places[-1]) / (places[-1] - places[-1 - back])
        return [-slope, *[0.0] * (back - 1), 1 + slope]

    return weights


def least_squares(places: Sequence[float], place: float) -> Sequence[float]:
    """Weights of the least-squares straight line through the last three computed steps, or all if there are fewer.

    `places` are those of the computed steps, oldest first, and `place` is that of the predicted step. Returns one
    weight for each of the last three steps alone, oldest first.
    """
    x = np.array(places[-3:]) - places[-1]
    rows = np.linalg.pinv(np.stack([np.ones(len(x)), x], axis=1))
    return [float(value) for value in (np.array([1.0, place - places[-1]]) @ rows)]


def by_sigma(sigma: float) -> float:
    """Place of a step: its noise level itself."""
    return sigma


def by_log_ratio(sigma: float) -> float:
    """Place of a step: log((1 - sigma) / sigma), the logarithm of the signal-to-noise ratio of amplitudes.

    Numerator and denominator are at least 0.0001.
    """
    return float(np.log((1 - min(sigma, 0.9999)) / max(sigma, 0.0001)))


@dataclass(frozen=True)
class Variant:
    """One way to predict: a weighted sum of computed outputs.

    Attributes:
        weights: function from the places of the last computed steps, oldest first, and the place of the predicted step
            to the weights of the computed outputs, oldest first (`Weights`).
        place: function from the noise level of a step to its place.
        clean: whether the sum is of the clean videos that the outputs imply, instead of the outputs.
        correction: share of the prediction's error at the last computed step that is added to the prediction (the
            modifier of Hamming's predictor-corrector method, J. ACM 6, 1959, doi:10.1145/320954.320958); used only if
            reused steps came directly before that step.
    """

    weights: Weights
    place: Callable[[float], float] = by_sigma
    clean: bool = False
    correction: float = 0.0


class Prediction(Observer):
    """Computes the steps with the indices `steps`, and predicts the others.

    `variant` has the weights with which computed outputs are summed, and the correction of this sum (`Variant`).
    It is a driver for `driven`, which attaches it to a pipeline: the plugin's engine asks the driver for each decision
    to compute or reuse (`decide`) and for each reused output (`predict`).
    """

    def __init__(self, steps: Sequence[int], variant: Variant) -> None:
        self.steps, self.variant = frozenset(steps), variant
        self.history: dict[str, list[tuple[int, float, Tensor]]] = {}
        self.errors: dict[str, Tensor | None] = {}

    def decide(self, call: Call) -> bool:
        return call.info.step not in self.steps

    def on_output(self, call: Call, output: Tensor) -> None:
        step, branch, sigma = call.info.step, call.branch, call.info.sigma
        history = [] if step == 0 else self.history[branch]
        kept = call.latent.float() - sigma * output.float() if self.variant.clean else output.float()
        reused = bool(history) and step - history[-1][0] > 1
        self.errors[branch] = kept - self._weighted(history, sigma) if reused else None
        self.history[branch] = [*history[-2:], (step, sigma, kept)]

    def predict(self, call: Call) -> Tensor:
        predicted, error = self._weighted(self.history[call.branch], call.info.sigma), self.errors[call.branch]
        if error is not None:
            predicted = predicted + self.variant.correction * error
        predicted = (call.latent.float() - predicted) / call.info.sigma if self.variant.clean else predicted
        return predicted.to(call.latent.dtype)

    def _weighted(self, history: Sequence[tuple[int, float, Tensor]], sigma: float) -> Tensor:
        place = self.variant.place
        weights = self.variant.weights([place(sigma_of) for _, sigma_of, _ in history], place(sigma))
        kept = zip(weights, history[-len(weights) :], strict=True)
        return torch.stack([weight * tensor for weight, (*_, tensor) in kept]).sum(0)


VARIANTS = {
    "order 1: the last slope, damped (the default)": Variant(line(1, DAMPING)),
    "plus a quarter of the last interval's error": Variant(line(1, DAMPING), correction=0.25),
    "damped to 0.7": Variant(line(1, 0.7)),
    "not damped": Variant(line(1)),
    "slope over the last three, damped": Variant(line(2, DAMPING)),
    "least squares through the last three": Variant(least_squares),
    "order 0: the last computed step repeated": Variant(repeated),
    "the clean video, slope damped": Variant(line(1, DAMPING), clean=True),
    "in the logarithm of signal to noise, damped": Variant(line(1, DAMPING), by_log_ratio),
}


def measure(pipe: WanPipeline, prompts: Sequence[str], speedups: Sequence[float]) -> None:
    """Log the mean and the worst PSNR in dB over the prompts, for each of `VARIANTS` at each speedup."""
    profile, settings = load_profile("wan-tiny"), recommended_settings(pipe)
    batches = Cases(tuple(prompts), tuple(range(SEED, SEED + len(prompts))), BATCH).batches
    plain = [generate_batch(pipe, *batch, settings) for batch in batches]
    for speedup in speedups:
        sigmas = profile.target_for(speedup).sigmas
        steps = [profile.conditions.sigmas.index(sigma) for sigma in sigmas]
        for name, variant in VARIANTS.items():
            with driven(pipe, Prediction(steps, variant)):
                videos = [generate_batch(pipe, *batch, settings) for batch in batches]
            psnrs = [psnr(*pair) for pair in zip(np.concatenate(videos), np.concatenate(plain), strict=True)]
            logger.info("%gx  %-60s %.1f dB, worst %.1f", speedup, name, np.mean(psnrs), min(psnrs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--speedups", type=float, nargs="+", default=[2.0, 2.5, 3.0])
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load_pipeline("wan-tiny", dtype=getattr(torch, arguments.dtype))
    measure(pipe, draw_prompts(arguments.prompts, SEED), arguments.speedups)


if __name__ == "__main__":
    main()
