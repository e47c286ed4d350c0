"""Store tensors of full steps, predict those of reused steps, and correct full steps (`galaxydit.extrapolation`).
Several output tensors are packed: flattened and joined to one tensor.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import sum_over, token_group
from galaxydit.extrapolation import CachedStep, Reuse, correction, missed, predict
from galaxydit.proxies import relative_l2
from galaxydit.runtime.clean import from_clean, to_clean
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.history import History
from galaxydit.runtime.latents import HostCopy
from galaxydit.runtime.outputs import pack, tensors_of, unpack
from galaxydit.runtime.rows import join_samples
from galaxydit.runtime.work import Work
from galaxydit.schedulers import Noise
from galaxydit.torch_compile import around_the_model, beside_the_model

Warn = Callable[[str, Generation], None]
"""Warn of a text, and note it in the report of a generation."""

# The slope has failed where order 1 errs so many times as much as order 0 (root mean square); it is not followed after
# this number of failures among this number of last full steps.
WORSE, FAILURES, AMONG = 3.0, 3, 8
SAMPLED = 2**16  # values of a cached tensor
GIVEN_UP = (
    f"predictions of order 1 erred more than {WORSE:g} times as much as those of order 0 at {FAILURES} of "
    f"{AMONG} full steps, so reused steps repeat the last full step until it does so less often"
)


class StepReuse:
    """Stores full steps of one transformer, and predicts and corrects from them.

    Attributes:
        own: the user's `Reuse`, else the base class, which keeps nothing beside the tensor.
        runs_forward: whether reused steps run embedding and output head around the predicted residual of the blocks;
            otherwise they leave the forward pass as soon as they are decided, and the output is predicted.
    """

    def __init__(self, transformer: nn.Module, config: GalaxyDiTConfig, warn: Warn) -> None:
        self._transformer, self._config, self._warn = transformer, config, warn
        self._is_own = isinstance(config.reuse, Reuse)
        self.own = config.reuse if isinstance(config.reuse, Reuse) else Reuse()
        self.runs_forward = config.predicts == "residual"

    # Reused steps

    @beside_the_model
    def predict(self, work: Work) -> Tensor:
        """The predicted tensor `(rows, ...)`: the output, packed to `(rows, elements)` if several, or the residual."""
        return join_samples([self._predict(work, video) for video in work.videos])

    def _predict(self, work: Work, video: int) -> Tensor:
        history, config = work.history.steps[work.call.branch, video], self._config
        if self._is_own:
            return self.own.predict(work.call, history)
        order = work.generation.order if self.follows_slope(work, video) else 0
        return predict(history, work.call.info.sigma, order, config.slope, config.largest_ahead)

    @beside_the_model
    def outputs(self, work: Work) -> tuple[Tensor, ...]:
        """The predicted outputs, one tensor for each that the transformer returns; for output reuse only."""
        predicted = self.predict(work)
        if work.mix is not None:
            return (from_clean(predicted, work.call.latent, work.mix),)
        return unpack(predicted, work.history.shapes.get(work.call.branch, ()))

    # The slope's guard

    @beside_the_model
    def follows_slope(self, work: Work, video: int) -> bool:
        """Whether predictions follow the slope: it failed at less than `FAILURES` of the last `AMONG` full steps of
        each branch in the scope. The host waits for the errors of the newest full step only where they decide.
        """
        newest = work.history.steps[work.call.branch, video][-1].step
        for until in (0, newest, work.call.info.step):
            self._judge_slopes(work.history, until)
            if self._most_failures(work, video) < FAILURES:
                return True
        self._warn(GIVEN_UP, work.generation)
        return False

    @staticmethod
    def _most_failures(work: Work, video: int) -> int:
        """Number of failures in one branch of the scope, the largest, if all full steps that are not judged failed."""
        failed = work.history.slope_failures
        unread = [key for step, key, _ in work.history.slope_errors if step < work.call.info.step]
        most = 0
        for key in {*failed, *unread}:
            if (work.is_joint or key[0] == work.call.branch) and key[1] == video:
                most = max(most, sum(failed.get(key, ())) + unread.count(key))
        return most

    @staticmethod
    def _judge_slopes(history: History, until: int) -> None:
        """Read the errors of the full steps before the step `until`."""
        due = [one for one in history.slope_errors if one[0] < until]
        history.slope_errors = history.slope_errors[len(due) :]
        read = torch.stack([errors.tensor() for *_, errors in due]).tolist() if due else []
        for (_, key, _), (sloped, repeated) in zip(due, read, strict=True):
            failed = sloped > WORSE**2 * repeated
            history.slope_failures[key] = (*history.slope_failures.get(key, ()), failed)[-AMONG:]

    def _slope_errors(self, work: Work, past: tuple[CachedStep, ...], rows: Tensor) -> Tensor:
        """Squared errors of predictions of `rows` of order 1 and 0, summed over sampled values, `(2,)`."""
        sampled, config = tuple(step._replace(tensor=_sampled(step.tensor)) for step in past), self._config
        sigma = work.call.info.sigma
        predicted = [predict(sampled, sigma, order, config.slope, config.largest_ahead) for order in (1, 0)]
        return (torch.stack(predicted) - _sampled(rows)).square().sum(1)

    # Full steps

    @beside_the_model
    def store(self, work: Work, outputs: tuple[Tensor, ...]) -> None:
        """Keep the tensor of a full step, except the last, which no step reuses, and the errors of predicting it."""
        if not outputs:
            self._warn("the transformer returned more than tensors, so it is computed in full", work.generation)
            return
        if self._config.history_length == 0:
            return
        if work.mix is not None:
            clean = to_clean(outputs[0], work.call.latent, work.mix) if len(outputs) == 1 else None
            if clean is not None:
                outputs = (clean,)
            elif work.generation.noise is Noise.POSSIBLE:
                work.generation.reuses_clean, work.mix = False, None
            else:
                work.generation.cannot_reuse = "the output of this model does not have the shape of its latent"
                return
        if not work.call.info.is_last:
            self._keep(work, outputs)

    def _keep(self, work: Work, outputs: tuple[Tensor, ...]) -> None:
        call, history, count = work.call, work.history, len(work.videos)
        history.shapes[call.branch] = tuple(output.shape for output in outputs)
        tensor = work.residual if self.runs_forward else pack([output.detach() for output in outputs])
        if tensor is None:
            self._warn("the block stack did not run as expected, so nothing of it is reused", work.generation)
            return
        if count > 1 and len(tensor) != len(call.latent):
            text = "the samples of a batch cannot be told apart in the output, so it is computed in full"
            self._warn(text, work.generation)
            return
        for place, video in enumerate(work.videos):
            rows = tensor if count == 1 else tensor[place::count].clone()
            self._keep_video(work, video, rows)
        history.was_guided = call.is_guided

    def _keep_video(self, work: Work, video: int, rows: Tensor) -> None:
        call, history, group = work.call, work.history, token_group(self._transformer)
        key = (call.branch, video)
        past = history.steps.get(key, ())
        if past and past[-1].tensor.shape != rows.shape:
            past = ()
        if self._config.policy.learns_errors and past:
            history.errors[key] = relative_l2(rows, self._predict(work, video), group)
        if not self._is_own and work.generation.order == 1 and len(past) > 1:
            errors = sum_over(group, self._slope_errors(work, past, rows))
            history.slope_errors.append((call.info.step, key, HostCopy(errors)))
        measured, side = self.own.measure(call, rows, past), self.own.side(call)
        step = CachedStep(call.info.step, call.info.sigma, rows, side, measured)
        history.steps[key] = (*past, step)[-self._config.history_length :]
        history.missed.pop(key, None)

    # Corrections

    @beside_the_model
    def correction_weights(self, work: Work) -> list[float]:
        """For each video, the accumulated error of the steps reused since its last full step / the error of reuse at
        this step, without the configured share; 0 without such steps. Empty if nothing may be corrected, and at the
        last step, because no later step would remove the noise of a correction."""
        call, history, generation = work.call, work.history, work.generation
        if not self._config.correction or call.info.is_last:
            return []
        if call.is_guided != history.was_guided:
            return []  # the guidance weights of the reused steps were other ones
        keys = [(call.branch, video) for video in work.videos]
        reused = []
        for key in keys:
            missing = history.missed.get(key, []) if history.steps.get(key) else []
            reused.append([step for step in missing if step >= work.window.steady_since])
        if not any(reused) or not self._corrects(generation):
            return []
        weights = []
        for key, steps in zip(keys, reused, strict=True):
            newest = history.steps[key][-1].step if steps else 0
            weight = missed(generation.sigmas, generation.response, newest, call.info.step, steps) if steps else 0.0
            weights.append(weight)
        return weights

    @staticmethod
    def _corrects(generation: Generation) -> bool:
        """Whether the scheduler is known and draws no noise; if not, notes the reason."""
        if generation.scheduler is None:
            generation.note(
                "the scheduler is unknown, so full steps correct nothing: pass scheduler=... to `accelerate`"
            )
            return False
        if generation.noise is Noise.DRAWN:
            generation.note(
                "the scheduler draws noise in every step, so full steps correct nothing, and reuse is of order 0"
            )
            return False
        return True

    @around_the_model
    def correct(
        self, work: Work, outputs: tuple[Tensor, ...], weights: list[float], forward: Callable[[], Any]
    ) -> tuple[Tensor, ...]:
        """A full step's outputs plus their correction, in the same shapes."""
        if not self.runs_forward:
            return self._corrected(work, outputs, self.outputs(work), weights)
        outputs = tuple(output.clone() for output in outputs)  # a CUDA graph may write its next output there
        work.is_repeated = True
        try:
            return self._corrected(work, outputs, tensors_of(forward()), weights)
        finally:
            work.is_repeated = False

    @beside_the_model
    def _corrected(
        self, work: Work, outputs: tuple[Tensor, ...], reused: tuple[Tensor, ...], weights: list[float]
    ) -> tuple[Tensor, ...]:
        count, computed, predicted = len(work.videos), pack(outputs), pack(reused)
        videos = []
        for place, weight in enumerate(weights):
            rows = computed[place::count]
            if weight:
                video, config = work.videos[place], self._config
                known = len(work.history.steps[work.call.branch, video])
                order = min(config.order, known - 1 if self.follows_slope(work, video) else 0)
                added = correction(rows, predicted[place::count], weight, order, config.correction_share)
                rows = added.add_(rows)
            videos.append(rows)
        return unpack(join_samples(videos), tuple(output.shape for output in outputs))


def _sampled(tensor: Tensor) -> Tensor:
    """At most `SAMPLED` values, flat, in float32; the stride is coprime to the last axis to sample all columns."""
    stride = -(-tensor.numel() // SAMPLED)
    while math.gcd(stride, tensor.shape[-1]) > 1:
        stride += 1
    return tensor.detach().flatten()[::stride].float()
