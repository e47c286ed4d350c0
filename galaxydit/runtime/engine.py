"""One transformer under acceleration: reads the proxy, asks the controller, computes or reuses."""

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from torch import Tensor, nn

from galaxydit.budget import decide_with_plan
from galaxydit.compilation import around_the_model, beside_the_model
from galaxydit.config import FEW_STEPS, Config
from galaxydit.controller import ControllerState, Decision, Observation, decide, reads_proxy, reuses
from galaxydit.families import CONCATENATED, Family
from galaxydit.proxies import PROXIES, filter_latent, relative_l1, relative_l2
from galaxydit.ranks import token_group
from galaxydit.report import CallRecord
from galaxydit.reuse import ORDERS, predict, remember
from galaxydit.session import Generation, Session, TransformerState
from galaxydit.trajectory import StepInfo, locate, signature_of


class ReuseStep(Exception):  # noqa: N818  (it is no error)
    """Leaves a forward pass as soon as its step is known to be reused; never seen outside the plugin."""


@dataclass
class Call:
    """The transformer call under way."""

    generation: Generation
    state: TransformerState
    branch: str
    info: StepInfo
    conditional_half: bool = False
    decision: Decision | None = None
    distance: float | None = None
    blocks_run: float = 0.0
    skips_stack: bool = False
    stack_input: Tensor | None = None
    stack_output: Tensor | None = None


class Engine:
    """Runs one transformer's calls. Between calls all it remembers lies in the session's current generation."""

    def __init__(self, transformer: nn.Module, component: str, family: Family, blocks: int, session: Session) -> None:
        self.transformer = transformer
        self.component = component
        self.family = family
        self.blocks = blocks
        self.session = session
        self._inputs = list(inspect.signature(type(transformer).forward).parameters)[1:]
        self._thread = threading.local()

    @property
    @beside_the_model
    def call(self) -> Call | None:
        """The call that this thread is in: servers share a transformer among pipelines in several threads."""
        return getattr(self._thread, "call", None)

    @call.setter
    def call(self, call: Call | None) -> None:
        self._thread.call = call

    @property
    def config(self) -> Config:
        return self.session.config

    def forget(self) -> None:
        """The pipeline says that its generation has ended: let go of the tensors, keep the records."""
        if self.session.current is not None:
            self.session.current.release()

    @around_the_model
    def run_transformer(
        self, context: CacheContext | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The transformer's forward pass, computed or predicted, in the form the caller asked for."""
        inputs = dict(zip(self._inputs, args, strict=False)) | kwargs
        latent = inputs.get("hidden_states")
        call = self._begin(context, latent, inputs.get("timestep"), inputs.get("encoder_hidden_states"))
        if call is None or latent is None:
            return forward(*args, **kwargs)
        self.call = call
        try:
            output = self._compute_or_reuse(call, latent, forward, args, kwargs)
        finally:
            self.call = None
        if output is None:
            sample = self._predict(call)
            output = (sample,) if inputs.get("return_dict") is False else Transformer2DModelOutput(sample=sample)
        self._book(call, latent)
        return output

    @beside_the_model
    def _begin(self, context: CacheContext | None, latent: Any, timestep: Any, text: Any) -> Call | None:
        """Place the call in its generation; None, with a note, where that cannot be done."""
        if not isinstance(latent, Tensor):
            self.session.note("the transformer was called without hidden_states, so it is computed in full")
            return None
        info = locate(context, self.session.scheduler(), timestep)
        if info is None:
            self.session.note(
                "the step of this call is unknown, so it is computed in full; accelerate the pipeline, pass "
                "scheduler=..., or call the transformer inside cache_context(name, step_index=..., "
                "num_inference_steps=..., sigma=...)"
            )
            return None
        name = context.name if context else None
        signature, text = signature_of(self.transformer, latent), text if isinstance(text, Tensor) else None
        generation, branch = self.session.enter(self.component, name, info, signature, text, latent)
        state = generation.states[self.component]
        call = Call(generation, state, branch, info)
        if self.family.branches == CONCATENATED and len(latent) % 2 == 0 and reads_proxy(self.config):
            # Guidance doubles the batch with the same latents: so the input itself tells whether there is guidance.
            call.conditional_half = torch.equal(*latent.chunk(2))
        call.decision = state.decisions.get(self._decider(branch))
        return call

    def _decider(self, branch: str) -> str:
        return "all branches" if self.config.guidance_alignment else branch

    @around_the_model
    def _compute_or_reuse(
        self, call: Call, latent: Tensor, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any | None:
        """The output of the forward pass; None where that was left, and the output is to be predicted."""
        if call.decision is None and not reads_proxy(self.config):
            self._decide(call, None)
        try:
            self.read("noisy_latent", latent.clone)
            self.read("filtered_latent", lambda: filter_latent(latent, call.info.sigma))
            call.skips_stack = self._reuses(call)
        except ReuseStep:
            call.skips_stack = True
        if call.skips_stack and self.config.reuse == "output":
            return None
        try:
            output = forward(*args, **kwargs)
        except ReuseStep:
            call.skips_stack = True
            return None
        if not call.skips_stack:
            call.blocks_run = self.blocks
            self._keep(call, output)
        return output

    def _predict(self, call: Call) -> Tensor:
        """What reuse gives for this call's branch."""
        weights = call.decision.weights if call.decision else None
        return predict(call.state.history[call.branch], call.info.sigma, weights or ORDERS[self.config.order])

    def _reuses(self, call: Call) -> bool:
        """Whether this branch is reused now: decided, and there is something to reuse."""
        return call.decision is not None and call.decision.reuse and bool(call.state.history.get(call.branch))

    @beside_the_model
    def _keep(self, call: Call, output: Any) -> None:
        """Remember a full step; the last one is never reused, so it frees the memory instead."""
        history = call.state.history
        nothing_to_come = call.info.step == call.info.steps - 1 or call.info.steps <= FEW_STEPS
        if nothing_to_come or not reuses(self.config):
            history.pop(call.branch, None)
            return
        if self.config.reuse == "residual":
            if call.stack_input is None or call.stack_output is None:
                self.session.note("the block stack did not run as expected, so nothing of it is reused")
                return
            kept = (call.stack_output - call.stack_input).detach()
        else:
            kept = (output[0] if isinstance(output, tuple) else output.sample).detach().clone()
        if self.config.plan is not None and self.config.plan.error_map is None and history.get(call.branch):
            guess = self._predict(call)
            call.state.errors[call.branch] = float(relative_l2(kept, guess, token_group(self.transformer)))
        anchor = (call.info.sigma, kept)
        weighed = self.config.plan is not None and self.config.plan.weighs
        history[call.branch] = remember(history.get(call.branch, ()), anchor, 3 if weighed else self.config.order + 1)

    @beside_the_model
    def read(self, proxy: str, tensor: Callable[[], Tensor]) -> None:
        """Offer a proxy's tensor. Raises ReuseStep when it decides the step for reuse.

        Every full and every reused step reads the proxy once, in the branch that decides.
        """
        call = self.call
        if call is None or call.decision is not None or proxy != self.config.proxy or not reads_proxy(self.config):
            return
        current = tensor().detach()
        decider = self._decider(call.branch)
        previous = call.state.proxies.get(decider)
        if previous is not None and previous.shape == current.shape:
            call.distance = self._distance(call, current, previous)
        call.state.proxies[decider] = current
        self._decide(call, call.distance)
        if self._reuses(call):
            call.blocks_run = PROXIES[proxy].cost
            raise ReuseStep

    def _distance(self, call: Call, current: Tensor, previous: Tensor) -> float:
        """The largest distance of any sample: an easy sample must not hide a hard one."""
        distances = relative_l1(current, previous, token_group(self.transformer))
        if call.conditional_half:
            distances = distances[len(distances) // 2 :]
        return float(distances.max())

    @beside_the_model
    def _decide(self, call: Call, distance: float | None) -> None:
        decider = self._decider(call.branch)
        histories = call.state.history
        branches = [call.branch] if decider == call.branch else list(histories) or [call.branch]
        observation = Observation(
            call.info.step,
            call.info.steps,
            distance,
            all(histories.get(branch) for branch in branches),
            call.generation.sigmas,
            max(call.state.errors.values(), default=None),
        )
        call.state.errors.clear()
        before = call.state.controllers.get(decider, ControllerState())
        choose = decide if self.config.plan is None else decide_with_plan
        call.decision, call.state.controllers[decider] = choose(observation, before, self.config)
        call.state.decisions[decider] = call.decision

    @around_the_model
    def run_first_block(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first block, with the proxies around it read."""
        call = self.call
        if call is None:
            return forward(*args, **kwargs)
        hidden = args[0] if args else kwargs["hidden_states"]
        if self.config.reuse == "residual":
            call.stack_input = hidden
        if call.skips_stack:
            return hidden
        try:
            # Tensors of the model are copied: CUDA graphs write the next step's over them.
            self.read("block_input", hidden.clone)
            if self.family.time_embedding is not None:
                name, position = self.family.time_embedding
                self.read("time_embedding", lambda: (args[position] if len(args) > position else kwargs[name]).clone())
            output = forward(*args, **kwargs)
            after = output if isinstance(output, Tensor) else output[0]
            self.read("block_residual", lambda: after - hidden)
            self.read("block_output", after.clone)
        except ReuseStep:
            if self.config.reuse == "output":
                raise
            call.skips_stack = True
            return hidden
        return output

    @around_the_model
    def run_later_block(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], is_last: bool
    ) -> Any:
        """Any other block of a stack whose residual is reused."""
        call = self.call
        if call is None or not call.skips_stack:
            output = forward(*args, **kwargs)
            if call is not None and is_last:
                call.stack_output = output
            return output
        hidden = args[0] if args else kwargs["hidden_states"]
        if is_last:
            return hidden + self._predict(call)
        return hidden

    @beside_the_model
    def _book(self, call: Call, latent: Tensor) -> None:
        decision = call.decision
        reason = decision.reason if decision else "the proxy was not read"
        if decision and decision.reuse and not call.skips_stack:
            reason = "this branch had nothing to reuse"
        if decision is None:
            self.session.note(f"proxy {self.config.proxy!r} was not read in a call, so it was computed in full")
        record = CallRecord(
            step=call.info.step,
            sigma=call.info.sigma,
            transformer=self.component,
            branch=call.branch,
            reused=call.skips_stack,
            reason=reason,
            distance=call.distance,
            accumulated=decision.accumulated if decision and call.distance is not None else None,
            blocks_run=call.blocks_run,
            blocks=self.blocks,
            expected_error=decision.expected_error if decision else None,
        )
        self.session.leave(call.generation, record, latent.device)
