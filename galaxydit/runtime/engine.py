"""The engine of one transformer: for each call it reads the proxy, asks the policy, and computes or reuses."""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from diffusers.hooks.hooks import CacheContext
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from torch import Tensor, nn

from galaxydit.context_parallel import token_group
from galaxydit.extrapolation import missed
from galaxydit.families import FAMILIES, Family, blocks_of
from galaxydit.policies.config import GalaxyDiTConfig
from galaxydit.policies.policy import FEW_STEPS, Decision
from galaxydit.proxies import PROXIES, Place, Proxy
from galaxydit.runtime.cache import (
    build_output,
    correct,
    full_steps_before,
    keep,
    predict_samples,
    tensors_of,
    unpack,
)
from galaxydit.runtime.call import Call, decide, distances_of, divide
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.samples import join_rows, rows_of, take_inputs
from galaxydit.runtime.session import Session
from galaxydit.runtime.step import Arrival, locate, records_gradients, signature_of, timesteps_of
from galaxydit.torch_compile import around_the_model, beside_the_model


class LeaveForward(Exception):  # noqa: N818  (it is no error)
    """Leaves a forward pass as soon as it is known which samples are reused; never seen outside the plugin."""


class Engine:
    """Runs the calls of one transformer. All that it remembers between calls is in the session's generation."""

    def __init__(
        self, transformer: nn.Module, component: str, family: Family, session: Session, observer: Observer | None = None
    ) -> None:
        self.transformer = transformer
        self.component = component
        self.family = family
        self.session = session
        self.config: GalaxyDiTConfig = session.config
        self.observer = observer or Observer()
        self._blocks = len(blocks_of(transformer, family))
        self._watches_stack = self.config.reuse == "residual"
        self._reads_proxy = self.config.policy.reads_proxy and not self.observer.decides
        # Observers see whole batches; of an unknown family it is not known which rows are branches of one sample.
        is_open = observer is None and family.class_name in FAMILIES
        self._decides_by_sample = self.config.per_sample and self._reads_proxy and is_open
        self.watched_proxies = [
            proxy
            for name, proxy in PROXIES.items()
            if name in self.observer.proxies or (name == self.config.proxy and self._reads_proxy)
        ]
        self._output_kinds: dict[bool, type] = {}  # by the argument `return_dict` of the call
        self._inputs = list(inspect.signature(type(transformer).forward).parameters)[1:]
        self._thread = threading.local()
        reads_inside = any(proxy.place is not Place.LATENT for proxy in self.watched_proxies)
        self.hooked_blocks = range(self._blocks if self._watches_stack else int(reads_inside))

    @property
    @beside_the_model
    def call(self) -> Call | None:
        """The call of this thread, because servers share a transformer among pipelines in several threads."""
        return getattr(self._thread, "call", None)

    @call.setter
    def call(self, call: Call | None) -> None:
        self._thread.call = call

    def end_generation(self) -> None:
        """The pipeline reports the end of its generation."""
        self.session.end()
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
        return_dict = inputs.get("return_dict") is not False
        self.call = call
        try:
            output = self._compute_or_reuse(call, partial(forward, *args, **kwargs))
            if output is not None:
                self._output_kinds[return_dict] = type(output)
            else:
                tensors = self._run_parts(call, forward, inputs) if call.is_mixed else self._predict_outputs(call)
                usual = Transformer2DModelOutput if return_dict else tuple
                output = build_output(tensors, self._output_kinds.get(return_dict, usual))
        finally:
            self.call = None
        self._record(call)
        return output

    @beside_the_model
    def _begin(self, context: CacheContext | None, inputs: dict[str, Any]) -> Call | None:
        """Find the generation and step of a call; None, with a note, where that cannot be done."""
        latent, text = inputs.get("hidden_states"), inputs.get("encoder_hidden_states")
        if not isinstance(latent, Tensor):
            self.session.note("the transformer was called without hidden_states, so it is computed in full")
            return None
        if records_gradients(self.transformer, inputs):
            self.session.note(
                "gradients are recorded through this call, and a prediction has none, so it is computed in full; call "
                "inside torch.no_grad() to reuse steps"
            )
            return None
        timestep = inputs.get("timestep")
        scheduler = self.session.source.scheduler_of(context, timestep)
        info = locate(context, scheduler, timestep)
        if info is None:
            self.session.note(
                "the step of this call is unknown (frames at different noise levels have none), so it is computed in "
                "full; accelerate the pipeline, pass scheduler=..., or call the transformer inside cache_context(name, "
                "step_index=..., num_inference_steps=..., sigma=...)"
            )
            return None
        name, signature = context.name if context else None, signature_of(self.transformer, latent)
        text, shared = text if isinstance(text, Tensor) else None, latent if self.family.shares_latent else None
        generation, state, branch = self.session.enter(
            Arrival(self.component, name, info, signature, text, shared, timesteps_of(timestep), scheduler)
        )
        if info.steps <= FEW_STEPS and not self.observer.decides:
            self.session.note(
                f"{info.steps} steps are too few to reuse any (neighbouring steps differ too much at {FEW_STEPS} or "
                "fewer), so all are computed"
            )
        scope = "all branches" if self.config.guidance_alignment else branch
        call = Call(generation, state, branch, scope, info, latent, is_cached=not self.observer.decides)
        call.decisions = state.decisions.get(scope, ())
        if self._reads_proxy and not divide(call, self.family, inputs, by_sample=self._decides_by_sample):
            self.session.note(
                "it is not known how to divide the inputs of this model among the samples of a batch, so a step that "
                "one sample needs is computed for all"
            )
        return call

    @around_the_model
    def _compute_or_reuse(self, call: Call, forward: Callable[[], Any]) -> Any | None:
        """The output of the forward pass; None where it was left, because all samples are reused, or only some."""
        self._ask_observer(call)
        if not call.decisions and not self._reads_proxy and not self.observer.decides:
            decide(call, self.config, ())
        self.read(Place.LATENT, call.latent, call.info.sigma)
        call.skips_stack = call.is_reused
        if call.is_mixed or (call.skips_stack and self.config.reuse == "output"):
            return None
        try:
            output = forward()
        except LeaveForward:
            return None
        if call.skips_stack:
            return output
        call.blocks_run = self._blocks + (call.blocks_run if call.first_output is None else 0)
        outputs = tensors_of(output)
        shares = self._take(call, outputs)
        corrected = self._correct(call, outputs, shares, forward) if any(shares) else None
        self._keep(call, outputs)
        return output if corrected is None else build_output(corrected, type(output))

    @beside_the_model
    def _take(self, call: Call, outputs: tuple[Tensor, ...]) -> list[float]:
        """Show an output to the observer; returns for each sample what share of its error of reuse corrects it for the
        steps that were reused before, see `missed`.

        The last step is left alone: no later one would remove the noise that a correction has.
        """
        if outputs:
            self.observer.on_output(call, outputs[0])
        if not outputs or not self.config.correction or not call.is_cached or call.info.is_last:
            return []
        step, full = call.info.step, full_steps_before(call)
        if max(step - one for one in full) < 2 or not self.session.corrects(call.generation):
            return []
        sigmas, response = call.generation.sigmas, self.session.response(call.generation)
        return [missed(sigmas, response, one, step) for one in full]

    @around_the_model
    def _correct(
        self, call: Call, outputs: tuple[Tensor, ...], shares: Sequence[float], forward: Callable[[], Any]
    ) -> tuple[Tensor, ...]:
        """The outputs corrected for the steps that were reused before this one."""
        if self.config.reuse == "output":
            return correct(call, outputs, self._predict_outputs(call), shares, self.config.order)
        outputs = tuple(output.clone() for output in outputs)  # a CUDA graph may write its next output there
        # Embedding and output head run again, around what reuse would have given.
        call.skips_stack = call.is_repeated = True
        try:
            predicted = tensors_of(forward())
        finally:
            call.skips_stack = call.is_repeated = False
        return correct(call, outputs, predicted, shares, self.config.order)

    @around_the_model
    def _run_parts(self, call: Call, forward: Callable[..., Any], inputs: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """The predictions of a batch of which some samples are computed and the others reused."""
        reused, count = call.reused, len(call.latent)
        places = [[place for place, is_reused in enumerate(reused) if is_reused == kind] for kind in (False, True)]
        rows = [rows_of(each, len(reused), count) for each in places]
        call.parts = [call.part(each) for each in places]
        call.first_output = None
        outputs = []
        for part, taken in zip(call.parts, rows, strict=True):
            self.call = part
            output = self._compute_or_reuse(part, partial(forward, **take_inputs(inputs, taken, count)))
            outputs.append(self._predict_outputs(part) if output is None else tensors_of(output))
        return join_rows(outputs, rows)

    def _predict(self, call: Call) -> Tensor:
        """What reuse gives for the branch of this call."""
        return predict_samples(call, self.config.order) if call.is_cached else self.observer.predict(call)

    def _predict_outputs(self, call: Call) -> tuple[Tensor, ...]:
        return unpack(self._predict(call), call.state.shapes.get(call.branch, ()))

    @beside_the_model
    def _keep(self, call: Call, outputs: tuple[Tensor, ...]) -> None:
        """Remember a full step."""
        if not outputs:
            self.session.note("the transformer returned more than tensors, so it is computed in full")
            return
        problem = keep(call, outputs, self.config, token_group(self.transformer)) if call.is_cached else None
        if problem is not None:
            self.session.note(problem)

    def read(self, place: Place, *tensors: Any, part: str | None = None) -> None:
        """Read the proxies of a place from the tensors at hand there. Raises LeaveForward inside the first block where
        that decides the step for reuse.
        """
        for proxy in self.watched_proxies:
            if self.call is not None and proxy.place is place and proxy.part == part:
                self._read(self.call, proxy, tensors)

    @beside_the_model
    def _read(self, call: Call, proxy: Proxy, tensors: tuple[Any, ...]) -> None:
        # The engine reads its proxy once in each step, in the branch that decides.
        drives = not call.decisions and self._reads_proxy and proxy.name == self.config.proxy
        watched = proxy.name in self.observer.proxies
        if not drives and not watched:
            return
        current = proxy.tensor(*tensors).detach()
        if watched:
            self.observer.on_proxy(call, proxy.name, current)
            self._ask_observer(call)
        if drives:
            previous = call.state.proxies.get(call.scope)
            call.state.proxies[call.scope] = current
            decide(call, self.config, distances_of(call, current, previous, token_group(self.transformer)))
        if call.is_reused and not call.skips_stack:
            call.blocks_run = proxy.cost
            if proxy.place is not Place.LATENT:
                call.skips_stack = True
                raise LeaveForward

    @around_the_model
    def run_module(self, path: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module outside the blocks that the observer watches. Raises LeaveForward as `read` does."""
        output = forward(*args, **kwargs)
        self._read_module(path, output)
        return output

    @beside_the_model
    def _read_module(self, path: str, output: Any) -> None:
        call = self.call
        if call is not None and not call.is_repeated:
            self.observer.on_module(call, path, output)
            self._ask_observer(call)
            if call.is_reused and not call.skips_stack:
                call.skips_stack = True
                if self.config.reuse == "output":
                    raise LeaveForward

    @around_the_model
    def run_part(self, part: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A part of the first block, with the proxies at its input and output read."""
        self.read(Place.PART_INPUT, args[0] if args else kwargs["hidden_states"], part=part)
        output = forward(*args, **kwargs)
        self.read(Place.PART_OUTPUT, output if isinstance(output, Tensor) else output[0], part=part)
        return output

    def _ask_observer(self, call: Call) -> None:
        chosen = self.observer.decide(call) if self.observer.decides and not call.decisions else None
        if chosen is not None:
            call.decisions = (Decision(chosen, "decided by the observer"),)

    @around_the_model
    def run_block(self, index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A block; skipped blocks pass their input through to the last one, which adds the prediction."""
        call = self.call
        if call is None:
            return forward(*args, **kwargs)
        hidden = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(hidden, Tensor):
            self.session.note("a block was called without hidden states, so the model is computed in full")
            return forward(*args, **kwargs)
        is_last = index == self._blocks - 1
        if call.skips_stack:
            return hidden + self._predict(call) if is_last else hidden
        if index == 0:
            return self._run_first(call, hidden, forward, args, kwargs)
        output = forward(*args, **kwargs)
        if is_last and call.before is not None:
            call.residual = (output - call.before.to(output.device)).detach()  # blocks may lie on several GPUs
            self.observer.on_stack(call, call.before, output)
        return output

    @around_the_model
    def _run_first(
        self, call: Call, hidden: Tensor, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The first block, with the proxies around it read. Raises LeaveForward where they decide that some samples are
        reused, or all of them and no other block has to run.
        """
        if self._watches_stack:
            call.before = hidden
        if call.first_output is not None:
            return call.first_output
        try:
            self.read(Place.BLOCK_INPUT, hidden, self.family.time_embedding_of(args, kwargs))
            self._leave_where_mixed(call, None, 0.0)
            output = forward(*args, **kwargs)
            outputs = (output,) if isinstance(output, Tensor) else output  # of some models the text comes first
            after = next((one for one in outputs if isinstance(one, Tensor) and one.shape == hidden.shape), None)
            if after is not None:
                self.read(Place.BLOCK_OUTPUT, hidden, after)
            self._leave_where_mixed(call, output, 1.0)
        except LeaveForward:
            if self._watches_stack and call.skips_stack:
                return hidden
            raise
        return output

    def _leave_where_mixed(self, call: Call, first_output: Any, blocks_run: float) -> None:
        if call.is_mixed:
            call.first_output, call.blocks_run = first_output, blocks_run
            raise LeaveForward

    @beside_the_model
    def _record(self, call: Call) -> None:
        if not call.decisions and not self.observer.decides:
            self.session.note(f"proxy {self.config.proxy!r} was not read in a call, so it was computed in full")
        if call.info.is_last:
            call.state.release(call.branch, call.scope)
        self.session.leave(call.generation, call.records(self.component, self._blocks), call.latent.device)
