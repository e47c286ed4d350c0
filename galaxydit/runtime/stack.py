"""The blocks of a transformer during a call: read proxies there, and skip the rest if the call is reused. With output
reuse, a reused call leaves the forward pass; with residual reuse, only the blocks are skipped, and the predicted
residual is added instead. A call that reuses only some samples leaves it, too, and the engine divides it."""

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from galaxydit.extrapolation import Reuse
from galaxydit.families import Family
from galaxydit.proxies import PROXIES, Place, Proxy
from galaxydit.runtime.call import Call, LeaveForward
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.recognition import blocks_of
from galaxydit.runtime.reuse import OutputReuse
from galaxydit.runtime.samples import Samples
from galaxydit.runtime.session import Session
from galaxydit.torch_compile import around_the_model, beside_the_model


class Stack:
    """Runs the hooked modules of one transformer, and reads proxies and module outputs there.

    Attributes:
        call, blocks: the transformer call under way in this thread, None between calls; number of blocks.
        watched_proxies, hooked_blocks: those that the policy or the observer reads; indices of those with a hook.
    """

    def __init__(
        self,
        transformer: nn.Module,
        family: Family,
        session: Session,
        observer: Observer,
        reuse: OutputReuse,
        samples: Samples,
        *,
        policy_proxy: Proxy | None,
    ) -> None:
        self._family, self._session, self._observer = family, session, observer
        self._reuse, self._samples = reuse, samples
        self._policy_proxy = policy_proxy
        self.blocks = len(blocks_of(transformer, family))
        self._kept = session.config.reuse.proxies if isinstance(session.config.reuse, Reuse) else ()
        self.watched_proxies = [proxy for name, proxy in PROXIES.items() if name in {*observer.proxies, *self._kept}]
        if policy_proxy is not None and policy_proxy not in self.watched_proxies:
            self.watched_proxies.append(policy_proxy)
        reads_inside = any(proxy.place is not Place.LATENT for proxy in self.watched_proxies)
        self.hooked_blocks = range(self.blocks if reuse.runs_forward else int(reads_inside))
        self._thread = threading.local()

    @property
    @beside_the_model
    def call(self) -> Call | None:
        """The call under way in this thread: servers share a transformer among pipelines in several threads."""
        return getattr(self._thread, "call", None)

    @call.setter
    def call(self, call: Call | None) -> None:
        self._thread.call = call

    def read(self, place: Place, *tensors: Any, part: str | None = None) -> None:
        """Compute the watched proxies of a place from its tensors (`Place`), in a `part` of the first block such as
        "self_attention". Raises LeaveForward if all samples are then reused, except before the forward pass."""
        for proxy in self.watched_proxies:
            if self.call is not None and proxy.place is place and proxy.part == part:
                self._read(self.call, proxy, tensors)

    @beside_the_model
    def _read(self, call: Call, proxy: Proxy, tensors: tuple[Any, ...]) -> None:
        # The proxy of the policy is read once in each step, in the branch that is called first.
        drives = not call.decisions and proxy is self._policy_proxy
        is_observed, is_kept = proxy.name in self._observer.proxies, proxy.name in self._kept
        if not drives and not is_observed and not is_kept:
            return
        needed = (*tensors, call.block_input) if proxy.needs_block_input else tensors
        current = proxy.tensor(*needed).detach()
        if is_kept:
            call.proxies[proxy.name] = current
        if is_observed:
            self._observer.on_proxy(call, proxy.name, current)
        if drives:
            self._samples.decide(call, current)
        if call.is_reused and not call.skips_stack:
            call.blocks_run = proxy.cost
            if proxy.place is not Place.LATENT:
                call.skips_stack = True
                if proxy.place is not Place.MODULE or not self._reuse.runs_forward:
                    raise LeaveForward

    @around_the_model
    def run_module(self, path: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a module outside the blocks; reads the proxies there. May raise LeaveForward."""
        output = forward(*args, **kwargs)
        if self.call is not None and not self.call.is_repeated:
            self._show_module(self.call, path, output)
            self.read(Place.MODULE, output, part=path)
        return output

    @beside_the_model
    def _show_module(self, call: Call, path: str, output: Any) -> None:
        if path in self._observer.modules:
            self._observer.on_module(call, path, output)

    @around_the_model
    def run_part(self, part: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a part of the first block; reads the proxies around it. May raise LeaveForward."""
        self.read(Place.PART_INPUT, args[0] if args else kwargs["hidden_states"], part=part)
        output = forward(*args, **kwargs)
        self.read(Place.PART_OUTPUT, output if isinstance(output, Tensor) else output[0], part=part)
        return output

    @around_the_model
    def run_block(self, index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a block. A skipped block returns its input; the last one adds the predicted residual to it. The
        first block may raise LeaveForward."""
        call = self.call
        if call is None:
            return forward(*args, **kwargs)
        hidden = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(hidden, Tensor):
            self._session.warn_and_note("a block was called without hidden states, so the model is computed in full")
            return forward(*args, **kwargs)
        is_last = index == self.blocks - 1
        if call.skips_stack:
            return hidden + self._reuse.predict(call) if is_last else hidden
        if index == 0:
            return self._run_first(call, hidden, forward, args, kwargs)
        output = forward(*args, **kwargs)
        if is_last and call.before is not None:
            call.residual = (output - call.before.to(output.device)).detach()  # blocks may lie on several GPUs
            self._observer.on_stack(call, call.before, output)
        return output

    @around_the_model
    def _run_first(
        self, call: Call, hidden: Tensor, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The output of the first block; reads the proxies at its input and output. Raises LeaveForward once only some
        samples, or with output reuse all, are decided for reuse; then its output is kept for the computed samples."""
        if self._reuse.runs_forward:
            call.before = hidden
        if any(proxy.needs_block_input for proxy in self.watched_proxies):
            call.block_input = hidden
        if call.first_output is not None:
            return call.first_output
        try:
            self.read(Place.BLOCK_INPUT, hidden, self._family.time_embedding_of(args, kwargs))
            self._samples.leave_if_mixed(call, None, 0.0)
            output = forward(*args, **kwargs)
            outputs = (output,) if isinstance(output, Tensor) else output  # some models return the text first
            same = (tensor for tensor in outputs if isinstance(tensor, Tensor) and tensor.shape == hidden.shape)
            if (after := next(same, None)) is not None:
                self.read(Place.BLOCK_OUTPUT, hidden, after)
            self._samples.leave_if_mixed(call, output, 1.0)
        except LeaveForward:
            if self._reuse.runs_forward and call.skips_stack:
                return hidden
            raise
        return output
