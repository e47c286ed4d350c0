"""Store tensors of full steps, predict those of reused steps, and correct full steps (`galaxydit.extrapolation`).
Several output tensors are packed: flattened and joined to one tensor.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.context_parallel import sum_over, token_group
from galaxydit.extrapolation import CachedStep, Reuse, correction, missed, predict
from galaxydit.proxies import relative_l2
from galaxydit.runtime.call import Call
from galaxydit.runtime.clean import from_clean, to_clean
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.outputs import pack, tensors_of, unpack
from galaxydit.runtime.rows import join_samples
from galaxydit.runtime.session import Session
from galaxydit.runtime.step import Noise
from galaxydit.runtime.transformer_state import HostCopy, TransformerState
from galaxydit.torch_compile import around_the_model, beside_the_model

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

    def __init__(self, transformer: nn.Module, session: Session) -> None:
        self._transformer, self._session, self._config = transformer, session, session.config
        self._is_own = isinstance(session.config.reuse, Reuse)
        self.own = session.config.reuse if isinstance(session.config.reuse, Reuse) else Reuse()
        self.runs_forward = session.config.predicts == "residual"

    @beside_the_model
    def predict(self, call: Call) -> Tensor:
        """The predicted tensor `(rows, ...)`: the output, packed to `(rows, elements)` if several, or the residual."""
        return join_samples([self._predict(call, place) for place in range(len(call.samples))])

    def _predict(self, call: Call, place: int) -> Tensor:
        sample, config = call.samples[place], self._config
        history = call.state.history[call.branch, sample]
        if self._is_own:
            return self.own.predict(call, history)
        order = call.generation.order if self.follows_slope(call, sample) else 0
        return predict(history, call.info.sigma, order, config.slope, config.largest_ahead)

    @beside_the_model
    def follows_slope(self, call: Call, sample: int) -> bool:
        """Whether predictions follow the slope: it failed at less than `FAILURES` of the last `AMONG` full steps of
        each branch in the scope. The host waits for the errors of the newest full step only where they decide.
        """
        for until in (0, call.state.history[call.branch, sample][-1].step, call.info.step):
            self._judge_slopes(call.state, until)
            if self._most_failures(call, sample) < FAILURES:
                return True
        self._session.warn_and_note(GIVEN_UP)
        return False

    @staticmethod
    def _most_failures(call: Call, sample: int) -> int:
        """Number of failures in one branch of the scope, the largest, if all full steps that are not judged failed."""
        failed = call.state.slope_failures
        unread = [key for step, key, _ in call.state.slope_errors if step < call.info.step]
        own = (key for key in {*failed, *unread} if (call.is_joint or key[0] == call.branch) and key[1] == sample)
        return max((sum(failed.get(key, ())) + unread.count(key) for key in own), default=0)

    @staticmethod
    def _judge_slopes(state: TransformerState, until: int) -> None:
        """Read the errors of the full steps before the step `until`."""
        due = [one for one in state.slope_errors if one[0] < until]
        state.slope_errors = state.slope_errors[len(due) :]
        read = torch.stack([errors.tensor() for *_, errors in due]).tolist() if due else []
        for (_, key, _), (sloped, repeated) in zip(due, read, strict=True):
            failed = sloped > WORSE**2 * repeated
            state.slope_failures[key] = (*state.slope_failures.get(key, ()), failed)[-AMONG:]

    def _slope_errors(self, call: Call, history: tuple[CachedStep, ...], rows: Tensor) -> Tensor:
        """Squared errors of predictions of `rows` of order 1 and 0, summed over sampled values, `(2,)`."""
        sampled, config = tuple(step._replace(tensor=_sampled(step.tensor)) for step in history), self._config
        predicted = [predict(sampled, call.info.sigma, order, config.slope, config.largest_ahead) for order in (1, 0)]
        return (torch.stack(predicted) - _sampled(rows)).square().sum(1)

    @beside_the_model
    def outputs(self, call: Call) -> tuple[Tensor, ...]:
        """The predicted outputs, one tensor for each that the transformer returns; for output reuse only."""
        predicted = self.predict(call)
        if call.mix is not None:
            return (from_clean(predicted, call.latent, call.mix),)
        return unpack(predicted, call.state.shapes.get(call.branch, ()))

    @beside_the_model
    def store(self, call: Call, outputs: tuple[Tensor, ...]) -> None:
        """Keep the tensor of a full step, except the last, which no step reuses, and the errors of predicting it."""
        if not outputs:
            self._session.warn_and_note("the transformer returned more than tensors, so it is computed in full")
        elif self._config.history_length > 0:
            if call.mix is not None:
                clean = to_clean(outputs[0], call.latent, call.mix) if len(outputs) == 1 else None
                if clean is not None:
                    outputs = (clean,)
                    if len(call.samples) == 1:
                        call.trajectory.cleans[call.branch] = clean
                elif call.generation.noise is Noise.POSSIBLE:
                    call.generation.reuses_clean, call.mix = False, None
                else:
                    call.generation.cannot_reuse = "the output of this model does not have the shape of its latent"
                    return
            if not call.info.is_last:
                self._keep(call, outputs)

    def _keep(self, call: Call, outputs: tuple[Tensor, ...]) -> None:
        history, count, group = call.state.history, len(call.samples), token_group(self._transformer)
        call.state.shapes[call.branch] = tuple(output.shape for output in outputs)
        tensor = call.residual if self.runs_forward else pack([output.detach() for output in outputs])
        if tensor is None:
            self._session.warn_and_note("the block stack did not run as expected, so nothing of it is reused")
            return
        if count > 1 and len(tensor) != len(call.latent):
            self._session.warn_and_note(
                "the samples of a batch cannot be told apart in the output, so it is computed in full"
            )
            return
        for place, sample in enumerate(call.samples):
            key = (call.branch, sample)
            past = history.get(key, ())
            rows = tensor if count == 1 else tensor[place::count].clone()
            if self._config.policy.learns_errors and past:
                call.state.errors[key] = relative_l2(rows, self._predict(call, place), group)
            if not self._is_own and call.generation.order == 1 and len(past) > 1:
                errors = sum_over(group, self._slope_errors(call, past, rows))
                call.state.slope_errors.append((call.info.step, key, HostCopy(errors)))
            measured, side = self.own.measure(call, rows, past), self.own.side(call)
            step = CachedStep(call.info.step, call.info.sigma, rows, side, measured)
            history[key] = (*past, step)[-self._config.history_length :]
            call.state.missed.pop(key, None)
        call.state.was_guided = call.is_guided

    @beside_the_model
    def correction_weights(self, call: Call) -> list[float]:
        """For each sample, the accumulated error of the steps reused since its last full step / the error of reuse at
        this step, without the configured share; 0 without such steps. Empty if nothing may be corrected, and at the
        last step, because no later step would remove the noise of a correction."""
        if not self._config.correction or call.info.is_last:
            return []
        if call.is_guided != call.state.was_guided:
            return []  # the guidance weights of the reused steps were other ones
        history, generation = call.state.history, call.generation
        keys = [(call.branch, sample) for sample in call.samples]
        missing = [call.state.missed.get(key, []) if history.get(key) else [] for key in keys]
        reused = [[step for step in steps if step >= call.trajectory.steady_since] for steps in missing]
        if not any(reused) or not self._corrects(generation):
            return []
        sigmas, response = generation.sigmas, generation.response
        return [
            missed(sigmas, response, history[key][-1].step, call.info.step, steps) if steps else 0.0
            for key, steps in zip(keys, reused, strict=True)
        ]

    def _corrects(self, generation: Generation) -> bool:
        """Whether the scheduler is known and draws no noise; if not, notes the reason."""
        note = self._session.note
        if generation.scheduler is None and self._session.source.scheduler is None:
            note("the scheduler is unknown, so full steps correct nothing: pass scheduler=... to `accelerate`")
        elif generation.scheduler is None:
            note(
                "another scheduler drives this generation than the accelerated pipeline's, so full steps correct "
                "nothing: accelerate the pipeline that generates"
            )
        elif generation.noise is Noise.DRAWN:
            note("the scheduler draws noise in every step, so full steps correct nothing, and reuse is of order 0")
        return generation.scheduler is not None and generation.noise is not Noise.DRAWN

    @around_the_model
    def correct(self, call: Call, outputs: tuple[Tensor, ...], forward: Callable[[], Any]) -> tuple[Tensor, ...] | None:
        """A full step's outputs plus their correction, in the same shapes; None if there is nothing to correct."""
        weights = self.correction_weights(call) if outputs else []
        if not any(weights) or not call.may_correct:
            return None
        call.trajectory.corrected = call.info.step
        if not self.runs_forward:
            return self._corrected(call, outputs, self.outputs(call), weights)
        outputs = tuple(output.clone() for output in outputs)  # a CUDA graph may write its next output there
        call.is_repeated = True
        try:
            return self._corrected(call, outputs, tensors_of(forward()), weights)
        finally:
            call.is_repeated = False

    @beside_the_model
    def _corrected(
        self, call: Call, outputs: tuple[Tensor, ...], reused: tuple[Tensor, ...], weights: list[float]
    ) -> tuple[Tensor, ...]:
        count, computed, predicted = len(call.samples), pack(outputs), pack(reused)
        samples = []
        for place, weight in enumerate(weights):
            rows = computed[place::count]
            if weight:
                sample, config = call.samples[place], self._config
                slopes = len(call.state.history[call.branch, sample]) - 1 if self.follows_slope(call, sample) else 0
                order = min(config.order, slopes)
                added = correction(rows, predicted[place::count], weight, order, config.correction_share)
                rows = added.add_(rows)
            samples.append(rows)
        return unpack(join_samples(samples), tuple(output.shape for output in outputs))


def _sampled(tensor: Tensor) -> Tensor:
    """At most `SAMPLED` values, flat, in float32; the stride is coprime to the last axis to sample all columns."""
    stride = -(-tensor.numel() // SAMPLED)
    while math.gcd(stride, tensor.shape[-1]) > 1:
        stride += 1
    return tensor.detach().flatten()[::stride].float()
