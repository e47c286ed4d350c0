"""The engine of one transformer: for each call it reads the proxy, asks the policy, and computes or reuses."""

import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.context_parallel import token_group
from galaxydit.extrapolation import ORDERS, predict, remember
from galaxydit.families import CONCATENATED, Family, blocks_of
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.policies.policy import FEW_STEPS, Decision
from galaxydit.proxies import PROXIES, Place, Proxy, relative_l1, relative_l2
from galaxydit.report import CallRecord
from galaxydit.runtime.generation import Generation, Session, TransformerState
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.outputs import OutputForms, pack, tensors_of, unpack
from galaxydit.runtime.step import StepInfo, locate, signature_of
from galaxydit.torch_compile import around_the_model, beside_the_model


class ReuseStep(Exception):  # noqa: N818  (it is no error)
    """Leaves a forward pass as soon as its step is known to be reused; never seen outside the plugin."""


@dataclass
class Call:
    """The transformer call under way.

    Attributes:
        generation, state: the generation it belongs to, and what this transformer remembers of it.
        branch: guidance branch, "cond" or "uncond", or "call 0", "call 1" where the pipeline names none.
        info: step, number of steps and sigma.
        latent: the transformer's `hidden_states`.
        conditional_half: whether only the second half of the batch, the conditional one, counts in distances.
        decision: None until the step is decided.
        distance: relative L1 distance of the proxy; None where it was not read.
        blocks_run: block evaluations done.
        skips_stack: whether the block stack is reused.
        before, after: hidden states `(batch, tokens, dim)` around the last segment of the stack that began, where they
            are watched.
    """

    generation: Generation
    state: TransformerState
    branch: str
    info: StepInfo
    latent: Tensor
    conditional_half: bool = False
    decision: Decision | None = None
    distance: float | None = None
    blocks_run: float = 0.0
    skips_stack: bool = False
    before: Tensor | None = None
    after: Tensor | None = None


class Engine:
    """Runs the calls of one transformer. All that it remembers between calls is in the session's generation."""

    def __init__(
        self,
        transformer: nn.Module,
        component: str,
        family: Family,
        session: Session,
        observer: Observer | None = None,
    ) -> None:
        self.transformer = transformer
        self.component = component
        self.family = family
        self.session = session
        self.config: GalaxyDiTConfig = session.config
        self.observer = observer or Observer()
        self._blocks = len(blocks_of(transformer, family))
        segments = self.observer.segments or ((0, self._blocks - 1),)
        self._segment_of = {
            index: one for one, (first, last) in enumerate(segments) for index in range(first, last + 1)
        }
        self._segments = segments
        self._watches_segments = self.config.reuse == "residual" or self.observer.watches_segments
        self._reads_proxy = self.config.policy.reads_proxy and not self.observer.decides
        self.watched_proxies = tuple(self._find_watched_proxies())
        self._forms = OutputForms()
        self._inputs = list(inspect.signature(type(transformer).forward).parameters)[1:]
        self._thread = threading.local()

    def _find_watched_proxies(self) -> Iterator[Proxy]:
        """The proxy of the configuration, if the policy needs it, and those of the observer."""
        for name, proxy in PROXIES.items():
            if name in self.observer.proxies or (name == self.config.proxy and self._reads_proxy):
                yield proxy

    @property
    def hooked_blocks(self) -> list[int]:
        """Indices of the blocks that need a hook."""
        reads_inside = any(proxy.place is not Place.LATENT for proxy in self.watched_proxies)
        return sorted({*([0] if reads_inside else []), *(self._segment_of if self._watches_segments else [])})

    @property
    @beside_the_model
    def call(self) -> Call | None:
        """The call of this thread, because servers share a transformer among pipelines in several threads."""
        return getattr(self._thread, "call", None)

    @call.setter
    def call(self, call: Call | None) -> None:
        self._thread.call = call

    def end_generation(self) -> None:
        """The pipeline reports the end of its generation: drop the tensors, keep the records."""
        if self.session.current is not None:
            self.session.current.release()
        self.observer.on_end()

    @around_the_model
    def run_transformer(
        self, context: CacheContext | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The transformer's forward pass, computed or predicted, in the form the caller asked for."""
        inputs = dict(zip(self._inputs, args, strict=False)) | kwargs
        call = self._begin(context, inputs)
        if call is None:
            return forward(*args, **kwargs)
        self.call = call
        try:
            output = self._compute_or_reuse(call, forward, args, kwargs)
        finally:
            self.call = None
        return_dict = inputs.get("return_dict") is not False
        if output is None:
            predicted = unpack(self._predict(call), call.state.shapes.get(call.branch, ()))
            output = self._forms.build(predicted, return_dict)
        else:
            self._forms.learn(output, return_dict)
        self._record(call)
        return output

    @beside_the_model
    def _begin(self, context: CacheContext | None, inputs: dict[str, Any]) -> Call | None:
        """Find the generation and step of a call; None, with a note, where that cannot be done."""
        latent, text = inputs.get("hidden_states"), inputs.get("encoder_hidden_states")
        if not isinstance(latent, Tensor):
            self.session.note("the transformer was called without hidden_states, so it is computed in full")
            return None
        if self._records_gradients(inputs):
            self.session.note(
                "gradients are recorded through this call, and a prediction has none, so it is computed in full; call "
                "inside torch.no_grad() to reuse steps"
            )
            return None
        info = locate(context, self.session.source.scheduler, inputs.get("timestep"))
        if info is None:
            self.session.note(
                "the step of this call is unknown (frames at different noise levels have none), so it is computed in "
                "full; accelerate the pipeline, pass scheduler=..., or call the transformer inside cache_context(name, "
                "step_index=..., num_inference_steps=..., sigma=...)"
            )
            return None
        name = context.name if context else None
        signature, text = signature_of(self.transformer, latent), text if isinstance(text, Tensor) else None
        shared_latent = latent if self.family.shares_latent else None
        generation, branch = self.session.enter(self.component, name, info, signature, text, shared_latent)
        if info.steps <= FEW_STEPS and not self.observer.decides:
            self.session.note(
                f"{info.steps} steps are too few to reuse any (neighbouring steps differ too much at {FEW_STEPS} or "
                "fewer), so all are computed"
            )
        state = generation.states[self.component]
        call = Call(generation, state, branch, info, latent)
        if self.family.branches == CONCATENATED and len(latent) % 2 == 0 and self._reads_proxy:
            # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
            call.conditional_half = torch.equal(*latent.chunk(2))
        call.decision = state.decisions.get(self._scope(branch))
        return call

    def _records_gradients(self, inputs: dict[str, Any]) -> bool:
        """Whether the output of this call is part of a graph for backward."""
        if not torch.is_grad_enabled():
            return False
        tensors = (value for value in inputs.values() if isinstance(value, Tensor))
        return any(one.requires_grad for one in (*tensors, *self.transformer.parameters()))

    def _scope(self, branch: str) -> str:
        return "all branches" if self.config.guidance_alignment else branch

    @around_the_model
    def _compute_or_reuse(
        self, call: Call, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any | None:
        """The output of the forward pass; None where that was left, and the output is to be predicted."""
        self._ask_observer(call)
        if call.decision is None and not self._reads_proxy and not self.observer.decides:
            self._decide(call, None)
        self.read(Place.LATENT, call.latent, call.info.sigma)
        call.skips_stack = self._reuses(call)
        if call.skips_stack and self.config.reuse == "output":
            return None
        try:
            output = forward(*args, **kwargs)
        except ReuseStep:
            call.skips_stack = True
            return None
        if not call.skips_stack:
            call.blocks_run = self._blocks
            self._keep(call, tensors_of(output))
        return output

    def _predict(self, call: Call, segment: int = 0) -> Tensor:
        """What reuse gives for the branch of this call."""
        if self.observer.decides:
            return self.observer.predict(call, segment)
        coefficients = call.decision.coefficients if call.decision else None
        return predict(call.state.history[call.branch], call.info.sigma, coefficients or ORDERS[self.config.order])

    def _reuses(self, call: Call) -> bool:
        """Whether this branch is reused now: decided, and there is something to reuse."""
        cached = self.observer.decides or bool(call.state.history.get(call.branch))
        return call.decision is not None and call.decision.reuse and cached

    @beside_the_model
    def _keep(self, call: Call, outputs: tuple[Tensor, ...]) -> None:
        """Remember a full step. The last step is never reused, so it frees the memory instead."""
        if not outputs:
            self.session.note("the transformer returned more than tensors, so it is computed in full")
            return
        self.observer.on_output(call, outputs[0])
        if self.observer.decides:
            return
        history, length = call.state.history, self.config.history_length
        is_last = call.info.step == call.info.steps - 1 or call.info.steps <= FEW_STEPS
        if is_last or length == 0:
            history.pop(call.branch, None)
            return
        kept = pack([output.detach() for output in outputs]) if self.config.reuse == "output" else None
        call.state.shapes[call.branch] = tuple(output.shape for output in outputs)
        if kept is None:
            if call.before is None or call.after is None:
                self.session.note("the block stack did not run as expected, so nothing of it is reused")
                return
            kept = (call.after - call.before).detach()
        if self.config.policy.learns_errors and history.get(call.branch):
            error = relative_l2(kept, self._predict(call), token_group(self.transformer))
            call.state.errors[call.branch] = float(error)
        history[call.branch] = remember(history.get(call.branch, ()), (call.info.sigma, kept), length)

    def read(self, place: Place, *tensors: Any, part: str | None = None) -> None:
        """Read the proxies of a place from the tensors at hand there.

        The engine reads its proxy once in each step, in the branch that decides. Raises ReuseStep inside the first
        block where that decides the step for reuse.
        """
        if self.call is not None:
            for proxy in self.watched_proxies:
                if proxy.place is place and proxy.part == part:
                    self._read(self.call, proxy, tensors)

    @beside_the_model
    def _read(self, call: Call, proxy: Proxy, tensors: tuple[Any, ...]) -> None:
        drives = call.decision is None and self._reads_proxy and proxy.name == self.config.proxy
        watched = proxy.name in self.observer.proxies
        if not drives and not watched:
            return
        current = proxy.tensor(*tensors).detach()
        if watched:
            self.observer.on_proxy(call, proxy.name, current)
            self._ask_observer(call)
        if drives:
            scope = self._scope(call.branch)
            previous = call.state.proxies.get(scope)
            if previous is not None and previous.shape == current.shape:
                call.distance = self._distance(call, current, previous)
            call.state.proxies[scope] = current
            self._decide(call, call.distance)
        if self._reuses(call) and not call.skips_stack:
            call.blocks_run = proxy.cost
            if proxy.place is not Place.LATENT:
                self._leave(call, inside_segment=0 in self._segment_of)

    @beside_the_model
    def read_module(self, path: str, output: Any) -> None:
        """Pass on the output of one of the observer's modules. Raises ReuseStep as `read` does."""
        call = self.call
        if call is not None:
            self.observer.on_module(call, path, output)
            self._ask_observer(call)
            if self._reuses(call) and not call.skips_stack:
                self._leave(call, inside_segment=False)

    def _leave(self, call: Call, *, inside_segment: bool) -> None:
        """Leave the forward pass, or go on with it to where the next segment is skipped."""
        call.skips_stack = True
        if self.config.reuse == "output" or inside_segment:
            raise ReuseStep

    def _distance(self, call: Call, current: Tensor, previous: Tensor) -> float:
        """The largest distance of any sample, so that an easy sample does not hide a hard one."""
        distances = relative_l1(current, previous, token_group(self.transformer))
        if call.conditional_half:
            distances = distances[len(distances) // 2 :]
        return float(distances.max())

    @beside_the_model
    def _decide(self, call: Call, distance: float | None) -> None:
        state, scope = call.state, self._scope(call.branch)
        branches = [call.branch] if scope == call.branch else list(state.history) or [call.branch]
        controller = self._controller(call, scope)
        call.decision = state.decisions[scope] = controller.decide(
            call.info.step,
            call.info.steps,
            distance,
            all(state.history.get(branch) for branch in branches),
            call.generation.sigmas,
            max(state.errors.values(), default=None),
            self._reused_cost(state.calls),
        )
        state.errors.clear()

    def _controller(self, call: Call, scope: str) -> Controller:
        controllers = call.state.controllers
        if scope not in controllers:
            of_others = [record for record in call.generation.calls if record.transformer != self.component]
            computed = len({record.step for record in of_others if not record.reused}) if of_others else None
            controllers[scope] = Controller(self.config, call.info.step, computed)
        return controllers[scope]

    def _reused_cost(self, calls: int) -> float | None:
        """Block evaluations of a reused step / those of a full one, which has this many calls; None for 0 calls."""
        if not calls or not self._reads_proxy:
            return None
        reading = 1 if self.config.guidance_alignment else calls
        return reading * PROXIES[self.config.proxy].cost / (self._blocks * calls)

    def _ask_observer(self, call: Call) -> None:
        chosen = self.observer.decide(call) if self.observer.decides and call.decision is None else None
        if chosen is not None:
            call.decision = Decision(chosen, "decided by the observer")

    @around_the_model
    def run_block(self, index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A block, with the proxies around the first one read; a segment of skipped blocks passes its input through to
        its last block, which adds the prediction.
        """
        call = self.call
        if call is None:
            return forward(*args, **kwargs)
        hidden = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(hidden, Tensor):
            self.session.note("a block was called without hidden states, so the model is computed in full")
            return forward(*args, **kwargs)
        segment = self._segment_of.get(index) if self._watches_segments else None
        first, last = (-1, -1) if segment is None else self._segments[segment]
        if index == first:
            call.before = hidden
        if not call.skips_stack or segment is None:
            try:
                output = self._compute_block(index, hidden, forward, args, kwargs)
            except ReuseStep:
                if self.config.reuse == "output":
                    raise
            else:
                if segment is not None and index == last and call.before is not None:
                    call.after = output
                    self.observer.on_segment(call, segment, call.before, output)
                return output
        return hidden + self._predict(call, segment or 0) if index == last else hidden

    @around_the_model
    def _compute_block(
        self, index: int, hidden: Tensor, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if index > 0:
            return forward(*args, **kwargs)
        self.read(Place.BLOCK_INPUT, hidden, self._time_embedding(args, kwargs))
        output = forward(*args, **kwargs)
        self.read(Place.BLOCK_OUTPUT, hidden, output if isinstance(output, Tensor) else output[0])
        return output

    def _time_embedding(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if self.family.time_embedding is None:
            return None
        name, position = self.family.time_embedding
        embedding: Tensor = args[position] if len(args) > position else kwargs[name]
        return embedding

    @beside_the_model
    def _record(self, call: Call) -> None:
        decision = call.decision
        reason = decision.reason if decision else "the proxy was not read"
        if decision and decision.reuse and not call.skips_stack:
            reason = "this branch had nothing to reuse"
        if decision is None and not self.observer.decides:
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
            blocks_run=call.blocks_run + (self._blocks - len(self._segment_of) if call.skips_stack else 0),
            blocks=self._blocks,
            expected_error=decision.expected_error if decision else None,
        )
        self.session.leave(call.generation, record, call.latent.device)
