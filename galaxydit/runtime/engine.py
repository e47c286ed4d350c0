"""The engine of one transformer: decide a call, compute or predict it, and keep what later steps need."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from diffusers.models.modeling_outputs import Transformer2DModelOutput
from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import agree_before, shares_weights
from galaxydit.families import Family
from galaxydit.policies.policy import Decision, Reason
from galaxydit.proxies import Place
from galaxydit.runtime.call import Call
from galaxydit.runtime.correction_weights import correction_weights, has_weight
from galaxydit.runtime.decision import Decider
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.outputs import build_output, tensors_of
from galaxydit.runtime.reuse import StepReuse
from galaxydit.runtime.rows import join_rows, take_inputs
from galaxydit.runtime.session import Session
from galaxydit.runtime.stack import Stack
from galaxydit.runtime.videos import Videos, split
from galaxydit.runtime.window import Window
from galaxydit.runtime.work import LeaveForward, Work
from galaxydit.torch_compile import around_the_model, beside_the_model


class Engine:
    """Runs the calls of one transformer under one configuration; all state between calls is in the generation. A
    subclass may override its methods; pass it to `galaxydit.acceleration.Acceleration` as `engine`."""

    def __init__(
        self,
        transformer: nn.Module,
        component: str,
        family: Family,
        session: Session,
        config: GalaxyDiTConfig,
        observer: Observer | None = None,
    ) -> None:
        self.transformer = transformer
        self.component = component
        self.family = family
        self.session = session
        self.config = config
        self.observer = observer or Observer()
        self.reuse = StepReuse(transformer, config, session.warn_and_note)
        self.decider = Decider(transformer, family, session)
        self.videos = Videos(transformer, family, session, whole_batches=observer is not None)
        self.stack = Stack(
            transformer, family, config, self.observer, self.reuse, self.videos, self.decider, session.warn_and_note
        )
        self._output_kinds: dict[bool, type] = {}  # by the argument `return_dict` of the call

    @around_the_model
    def run(
        self,
        call: Call,
        window: Window,
        generation: Generation,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The output of a call, computed or predicted, in the type that the transformer returns."""
        work = self._decide_before(call, window, generation)
        if shares_weights(self.transformer):
            self._agree(work)
        self.stack.under_way.work = work  # there the hooks on blocks and modules find it
        try:
            output = self._compute(work, partial(forward, *args, **kwargs))
            if output is not None:
                self._output_kinds[_wants_dict(call.inputs)] = type(output)
            elif work.is_mixed:
                output = self._as_usual(call.inputs, self._run_parts(work, forward))
            else:
                output = self._as_usual(call.inputs, self.reuse.outputs(work))
        finally:
            self.stack.under_way.work = None
        self._record(work)
        return output

    def agree_to_compute(self) -> None:
        """Tell ranks that share the weights that this one does not know its step."""
        if shares_weights(self.transformer):
            agree_before(self.transformer, is_decided=False, is_reused=False, corrects=False, is_known=False)

    @beside_the_model
    def _decide_before(self, call: Call, window: Window, generation: Generation) -> Work:
        """The call with its videos, decided if that needs no proxy."""
        history = generation.enter(call, window)
        if call.changed:
            text = f"{', '.join(call.changed)} changed between two steps, so the next step is computed"
            self.session.warn_and_note(text, of=generation)
            history.forget(call.info.step)
        scope = window.name if self.config.guidance_alignment else call.branch
        work = Work(call, generation, window, history, scope)
        if self.decider.refuse(work):
            return work
        if self.stack.policy_proxy is not None:
            self.videos.divide(work)
        if scope in history.decisions:  # the step's first branch has decided for all
            self.decider.follow(work)
        elif self.stack.policy_proxy is None:
            self.decider.decide(work)
        return work  # with a proxy, it is decided within the forward pass

    @beside_the_model
    def _agree(self, work: Work) -> None:
        """Make the decision before the forward pass the same on all ranks that share the weights."""
        corrects = work.is_stored and has_weight(self._weights(work))
        is_decided = bool(work.decisions)
        computes, work.may_correct = agree_before(
            self.transformer, is_decided=is_decided, is_reused=work.is_reused, corrects=corrects
        )
        if computes:
            if not work.decisions:  # `compute` changes decisions to reuse alone
                work.decisions = (Decision(True, Reason.OTHER_RANK),) * len(work.videos)
            work.compute(Reason.OTHER_RANK)

    @around_the_model
    def _compute(self, work: Work, forward: Callable[[], Any]) -> Any | None:
        """The output, corrected at full steps; None if the forward pass did not end, because videos are reused."""
        call = work.call
        self.stack.read(Place.LATENT, call.latent, call.info.sigma)
        if work.is_mixed or (work.is_reused and not self.reuse.runs_forward):
            return None
        try:
            output = forward()
        except LeaveForward:
            return None
        if work.is_reused:  # by the residual, so the forward pass ended, and there is nothing to store
            return output
        if work.first_output is not None:
            work.blocks_run = 0  # the first block, which ran for the whole batch, is one of the blocks
        work.blocks_run += self.stack.blocks
        outputs = tensors_of(output)
        if outputs:
            self._show(work, outputs)
        corrected = self._finish(work, outputs, forward)
        return output if corrected is None else build_output(corrected, type(output))

    @around_the_model
    def _finish(self, work: Work, outputs: tuple[Tensor, ...], forward: Callable[[], Any]) -> tuple[Tensor, ...] | None:
        """Correct and store a full step; its corrected outputs, or None if there is nothing to correct."""
        if not work.is_stored:
            return None
        weights: list[tuple[float, ...]] = []
        if outputs and work.may_correct:
            weights = self._weights(work)
        corrected = None
        if has_weight(weights):
            corrected = self.reuse.correct(work, outputs, weights, forward)
        if work.is_stored:  # asked again, because the check of the latents for the weights may have forbidden it
            self.reuse.store(work, outputs)
        return corrected

    @beside_the_model
    def _weights(self, work: Work) -> list[tuple[float, ...]]:
        """The weights of corrections, if the latents since the last full step are those of this loop."""
        weights = correction_weights(work, self.config)
        if not has_weight(weights):
            return []
        self.decider.check_latent(work)  # it may forget the full step and what was reused after it
        return correction_weights(work, self.config) if work.is_stored else []

    @around_the_model
    def _run_parts(self, work: Work, forward: Callable[..., Any]) -> tuple[Tensor, ...]:
        """The outputs of a batch whose computed videos and whose reused videos run one after the other."""
        outputs = []
        rows_of_parts = []
        for part, rows in split(work):
            self.stack.under_way.work = part
            inputs = take_inputs(work.call.inputs, rows, len(work.call.latent))
            output = self._compute(part, partial(forward, **inputs))
            outputs.append(self.reuse.outputs(part) if output is None else tensors_of(output))
            rows_of_parts.append(rows)
        return join_rows(outputs, rows_of_parts)

    def _as_usual(self, inputs: Mapping[str, Any], tensors: tuple[Tensor, ...]) -> Any:
        """Predicted tensors, in the type that the transformer returned for this `return_dict`."""
        wants_dict = _wants_dict(inputs)
        usual = Transformer2DModelOutput if wants_dict else tuple
        return build_output(tensors, self._output_kinds.get(wants_dict, usual))

    @beside_the_model
    def _show(self, work: Work, outputs: tuple[Tensor, ...]) -> None:
        work.generation.loop.pairing.note_outputs(outputs)
        self.observer.on_output(work.call, outputs[0])
        for index, output in enumerate(outputs[1:], start=1):
            self.observer.on_further_output(work.call, index, output)

    @beside_the_model
    def _record(self, work: Work) -> None:
        call, generation = work.call, work.generation
        if not work.decisions and self.stack.policy_proxy is not None:
            text = f"proxy {self.stack.policy_proxy.name!r} was not read in a call, so it was computed in full"
            self.session.warn_and_note(text, of=generation)
        for video, decision in zip(work.videos, work.decisions, strict=False):
            if decision.reuse:
                work.history.missed.setdefault((call.branch, video), []).append(call.info.step)
        if call.info.is_last:
            self.session.check_afterwards(generation)
            work.history.release(call.branch, work.scope)
        self.session.leave(generation, work.records(self.stack.blocks))


def _wants_dict(inputs: Mapping[str, Any]) -> bool:
    return inputs.get("return_dict") is not False
