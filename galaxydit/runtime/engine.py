"""The engine of one transformer: find generation and step of each call, decide the call, compute or reuse it."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from diffusers.hooks.hooks import CacheContext
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from torch import Tensor, nn

from galaxydit.context_parallel import agree_before, shares_weights, token_group
from galaxydit.families import Family
from galaxydit.policies.policy import Decision
from galaxydit.proxies import Place
from galaxydit.runtime.call import Call, LeaveForward
from galaxydit.runtime.full_compute import why_computed
from galaxydit.runtime.guidance import says_guided
from galaxydit.runtime.identity import CallIdentity, KnownValue, UnknownCallError, identify
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.outputs import build_output, tensors_of
from galaxydit.runtime.reuse import StepReuse
from galaxydit.runtime.rows import join_rows, take_inputs
from galaxydit.runtime.samples import Samples, split
from galaxydit.runtime.session import Session
from galaxydit.runtime.stack import Stack
from galaxydit.torch_compile import around_the_model, beside_the_model


class Engine:
    """Runs the calls of one transformer; all state between calls is in the session's generation. A subclass may
    override its methods; pass it to `galaxydit.acceleration.Acceleration` as `engine`."""

    def __init__(
        self, transformer: nn.Module, component: str, family: Family, session: Session, observer: Observer | None = None
    ) -> None:
        self.transformer, self.component, self.family = transformer, component, family
        self.session, self.config, self.observer = session, session.config, observer or Observer()
        self.reuse = StepReuse(transformer, session)
        self.samples = Samples(transformer, family, session, whole_batches=observer is not None)
        self.stack = Stack(transformer, family, session, self.observer, self.reuse, self.samples)
        self._output_kinds: dict[bool, type] = {}  # by the argument `return_dict` of the call
        self._inputs = list(inspect.signature(type(transformer).forward).parameters)[1:]

    def end_generation(self) -> None:
        """End the current generation; the transformer's hook calls this when the pipeline has finished."""
        self.session.end()
        self.observer.on_end()
        self.session.listener.tell()

    @around_the_model
    def run_transformer(
        self, context: CacheContext | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The output, computed or predicted, in the type that the transformer returns for the call's `return_dict`."""
        inputs = self._named(args, kwargs)
        call = self._locate(context, inputs)
        if shares_weights(self.transformer):
            self._agree(call)
        if call is None:
            return forward(*args, **kwargs)
        return_dict = inputs.get("return_dict") is not False
        self.stack.under_way.call = call
        try:
            output = self._compute(call, partial(forward, *args, **kwargs))
            if output is not None:
                self._output_kinds[return_dict] = type(output)
            else:
                tensors = self._run_mixed(call, forward, inputs) if call.is_mixed else self.reuse.outputs(call)
                usual = Transformer2DModelOutput if return_dict else tuple
                output = build_output(tensors, self._output_kinds.get(return_dict, usual))
        finally:
            self.stack.under_way.call = None
        self._record(call)
        return output

    def continues(self, context: CacheContext | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call may belong to a generation of the session; True if it is unknown."""
        try:
            return self.session.continues(self._identify(context, self._named(args, kwargs)))
        except UnknownCallError:
            return True

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(self._inputs, args, strict=False)) | kwargs

    def _identify(self, context: CacheContext | None, inputs: dict[str, Any]) -> CallIdentity:
        return identify(self.component, self.transformer, self.family, self.session.source, context, inputs)

    @beside_the_model
    def _locate(self, context: CacheContext | None, inputs: dict[str, Any]) -> Call | None:
        """The call with its step and samples, decided if that needs no proxy; None, with a note, if it is unknown."""
        try:
            identity = self._identify(context, inputs)
            generation, trajectory = self.session.enter(identity, token_group(self.transformer))
        except UnknownCallError as error:
            self.session.warn_and_note(str(error))
            self.session.leave_unknown(self.component, self.stack.blocks, error.latent)
            return None
        branch = trajectory.branch_of(identity)
        state = trajectory.enter(identity, branch)
        if branch in state.conditions and (changed := identity.changed(state.conditions[branch])):
            self.session.warn_and_note(f"{', '.join(changed)} changed between two steps, so the next step is computed")
            state.forget(identity.info.step)
        state.conditions[branch] = {name: KnownValue(value) for name, value in identity.conditions.items()}
        scope = "all branches" if self.config.guidance_alignment else branch
        call = Call(
            generation, trajectory, self.component, state, branch, scope, identity.info, inputs["hidden_states"]
        )
        source = self.session.source
        call.is_guided = says_guided(source.pipe) if source.may_be_running else None  # else it is of the last video
        if reason := why_computed(call, self.session):
            call.is_bypassed, call.decisions, call.has_history = True, (Decision(False, reason),), (False,)
            return call
        call.decisions = state.decisions.get(scope, ())
        if self.stack.policy_proxy is not None:
            self.samples.divide(call, inputs)
        is_newest = (state.has_newest(branch, sample, joint=call.is_joint) for sample in call.samples)
        call.has_history = tuple(trajectory.is_certain and newest for newest in is_newest)
        if not call.decisions and self.stack.policy_proxy is None:
            self.samples.decide(call)
        return call

    @beside_the_model
    def _agree(self, call: Call | None) -> None:
        """Make the decision before the forward pass the same on all ranks that share the weights."""
        corrects = call is not None and not call.is_bypassed and any(self.reuse.correction_weights(call))
        agree_before(self.transformer, call, corrects)

    @around_the_model
    def _compute(self, call: Call, forward: Callable[[], Any]) -> Any | None:
        """The output, corrected at full steps; None if the forward pass did not end, because samples are reused."""
        self.stack.read(Place.LATENT, call.latent, call.info.sigma)
        if call.is_mixed or (call.is_reused and not self.reuse.runs_forward):
            return None
        try:
            output = forward()
        except LeaveForward:
            return None
        if call.is_reused:
            return output
        call.blocks_run = self.stack.blocks + (call.blocks_run if call.first_output is None else 0)
        outputs = tensors_of(output)
        if outputs:
            self._show(call, outputs[0])
        if call.is_bypassed:
            return output
        corrected = self.reuse.correct(call, outputs, forward)
        self.reuse.store(call, outputs)
        return output if corrected is None else build_output(corrected, type(output))

    @around_the_model
    def _run_mixed(self, call: Call, forward: Callable[..., Any], inputs: dict[str, Any]) -> tuple[Tensor, ...]:
        """The outputs of a batch whose computed samples and whose reused samples run one after the other."""
        parts, outputs = split(call), []
        for part, rows in parts:
            self.stack.under_way.call = part
            output = self._compute(part, partial(forward, **take_inputs(inputs, rows, len(call.latent))))
            outputs.append(self.reuse.outputs(part) if output is None else tensors_of(output))
        return join_rows(outputs, [rows for _, rows in parts])

    @beside_the_model
    def _show(self, call: Call, output: Tensor) -> None:
        self.observer.on_output(call, output)

    @beside_the_model
    def _record(self, call: Call) -> None:
        if not call.decisions and self.stack.policy_proxy is not None:
            self.session.warn_and_note(
                f"proxy {self.stack.policy_proxy.name!r} was not read in a call, so it was computed in full"
            )
        for sample, is_reused in zip(call.samples, call.reused, strict=False):
            if is_reused:
                call.state.missed.setdefault((call.branch, sample), []).append(call.info.step)
        if call.info.is_last:
            self.session.check_afterwards(call.generation)
            call.state.release(call.branch, call.scope)
        self.session.leave(call.generation, call.records(self.stack.blocks))
