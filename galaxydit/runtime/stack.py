"""The blocks of a transformer during a call: read proxies there, and skip the rest if the call is reused.

A proxy is a tensor in or before the first block; its change since the previous step shows whether to reuse the call.
With `reuse="output"`, a reused call leaves the forward pass. With `reuse="residual"`, only the blocks are skipped, and
the predicted residual, which is what they would have added to the first block's input, is added instead.

A sample is one video of the batch. If only some samples of a call are reused, the call leaves the forward pass, too.
The engine then divides it into two calls (`Samples.run_parts`): one predicts the reused samples, the other computes the
other samples, from the output of the first block on if that block has run.
"""

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from galaxydit.families import Family, blocks_of
from galaxydit.proxies import PROXIES, Place, Proxy
from galaxydit.runtime.call import Call, LeaveForward
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.reuse import OutputReuse
from galaxydit.runtime.samples import Samples
from galaxydit.runtime.session import Session
from galaxydit.torch_compile import around_the_model, beside_the_model


class Stack:
    """Runs the hooked modules of one transformer, and reads proxies and module outputs there.

    The hooked modules are the blocks `hooked_blocks`, the parts of the first block where watched proxies are read, and
    the observer's `modules`.

    `family` says where the blocks are, `session` adds notes to reports, `observer` receives the tensors, `reuse`
    predicts the residual, and `samples`, which holds the policy, decides each sample of a call by the proxy's change.
    `policy_proxy` is the name of the policy's proxy; None if the policy reads none.
    `consider` is called after each tensor that the observer receives, and may decide the call.

    Attributes:
        call: the transformer call under way in this thread; None between calls.
        blocks: number of blocks.
        watched_proxies: the proxies that the policy or the observer reads.
        hooked_blocks: indices of the blocks that need a hook.
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
        policy_proxy: str | None,
        consider: Callable[[Call], None],
    ) -> None:
        self._family, self._session, self._observer = family, session, observer
        self._reuse, self._samples, self._consider = reuse, samples, consider
        self._policy_proxy = policy_proxy
        self.blocks = len(blocks_of(transformer, family))
        self.watched_proxies = [PROXIES[name] for name in PROXIES if name in {*observer.proxies, policy_proxy}]
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
        """Compute the watched proxies of a place. The observer receives its own, and the policy's decides the call.

        `tensors` are those at the place, such as a block's input and output (listed in `Place`). `part` names the part
        of the first block, such as "self_attention", at whose input or output the place is; None for other places.
        Raises LeaveForward if all samples of the call are now decided for reuse; not at Place.LATENT, because the
        forward pass has not begun there.
        """
        for proxy in self.watched_proxies:
            if self.call is not None and proxy.place is place and proxy.part == part:
                self._read(self.call, proxy, tensors)

    @beside_the_model
    def _read(self, call: Call, proxy: Proxy, tensors: tuple[Any, ...]) -> None:
        # The proxy of the policy is read once in each step, in the branch that is called first.
        drives = not call.decisions and proxy.name == self._policy_proxy
        is_observed = proxy.name in self._observer.proxies
        if not drives and not is_observed:
            return
        needed = (*tensors, call.block_input) if proxy.needs_block_input else tensors
        current = proxy.tensor(*needed).detach()
        if is_observed:
            self._observer.on_proxy(call, proxy.name, current)
            self._consider(call)
        if drives:
            self._samples.decide(call, current)
        if call.is_reused and not call.skips_stack:
            call.blocks_run = proxy.cost
            if proxy.place is not Place.LATENT:
                call.skips_stack = True
                raise LeaveForward

    @around_the_model
    def run_module(self, path: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a module outside the blocks; the observer receives this output.

        Raises LeaveForward if all samples are then decided for reuse and `reuse="output"`.
        """
        output = forward(*args, **kwargs)
        self._read_module(path, output)
        return output

    @beside_the_model
    def _read_module(self, path: str, output: Any) -> None:
        call = self.call
        if call is not None and not call.is_repeated:
            self._observer.on_module(call, path, output)
            self._consider(call)
            if call.is_reused and not call.skips_stack:
                call.skips_stack = True
                if not self._reuse.runs_forward:
                    raise LeaveForward

    @around_the_model
    def run_part(self, part: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a part of the first block; reads the proxies at the part's input and output.

        `part` is the part's key in `Family.parts`, such as "self_attention" or "feed_forward". Raises LeaveForward if
        all samples are then decided for reuse.
        """
        self.read(Place.PART_INPUT, args[0] if args else kwargs["hidden_states"], part=part)
        output = forward(*args, **kwargs)
        self.read(Place.PART_OUTPUT, output if isinstance(output, Tensor) else output[0], part=part)
        return output

    @around_the_model
    def run_block(self, index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a block. A skipped block returns its input; the last one adds the predicted residual to it.

        In the first block, raises LeaveForward if only some samples are then decided for reuse, and with
        `reuse="output"` also if all are.
        """
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
        """The output of the first block; reads the proxies at the block's input and output.

        If all samples are then decided for reuse, returns the block's input with `reuse="residual"`, and raises
        LeaveForward with `reuse="output"`. If only some samples are, raises LeaveForward in both cases. In the call
        that then computes the other samples, returns their rows of this block's output if the block has run before.
        """
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
