"""The hooked modules of a transformer during a call: read proxies there, and skip the rest if the call is reused. With
output reuse, a reused call leaves the forward pass; with residual reuse, only the blocks are skipped, and the predicted
residual is added instead. A call that reuses only some samples leaves it, too, and the engine divides it."""

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.families import Family
from galaxydit.proxies import PROXIES, Place, Proxy
from galaxydit.runtime.decision import Decider
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.recognition import blocks_of
from galaxydit.runtime.reuse import StepReuse, Warn
from galaxydit.runtime.videos import Videos
from galaxydit.runtime.work import LeaveForward, Work
from galaxydit.torch_compile import around_the_model, beside_the_model


class _UnderWay(threading.local):
    work: Work | None = None


class Stack:
    """Runs the hooked modules of one transformer, and reads proxies and module outputs there.

    Attributes:
        blocks, hooked_blocks: number of blocks; indices of those with a hook.
        policy_proxy, watched_proxies: the proxy that the policy reads, or None; those that anything reads.
        under_way: its `work` is the call under way in this thread; servers share a transformer among threads.
    """

    def __init__(
        self,
        transformer: nn.Module,
        family: Family,
        config: GalaxyDiTConfig,
        observer: Observer,
        reuse: StepReuse,
        videos: Videos,
        decider: Decider,
        warn: Warn,
    ) -> None:
        self._family = family
        self._observer = observer
        self._warn = warn
        self._reuse = reuse
        self._videos = videos
        self._decider = decider
        self.blocks = len(blocks_of(transformer, family))
        self.policy_proxy: Proxy | None = None
        if config.policy.reads_proxy:
            self.policy_proxy = config.watched
        names = {*observer.proxies, *reuse.custom.proxies}
        self.watched_proxies = [proxy for name, proxy in PROXIES.items() if name in names]
        if self.policy_proxy is not None and self.policy_proxy not in self.watched_proxies:
            # A proxy that the user defined is not in `PROXIES`.
            self.watched_proxies.append(self.policy_proxy)
        reads_inside = any(proxy.place is not Place.LATENT for proxy in self.watched_proxies)
        # Residual reuse skips each block; with output reuse, a proxy needs the first block at most.
        self.hooked_blocks = range(self.blocks if reuse.runs_forward else int(reads_inside))
        self.under_way = _UnderWay()

    @beside_the_model
    def read(self, place: Place, *tensors: Any, part: str | None = None) -> None:
        """Compute the watched proxies of a place from its tensors (`Place`), in a `part` of the first block such as
        "self_attention". Raises LeaveForward once it is known what is reused, unless this is known only at the end of
        the first block, or the forward pass has not begun."""
        work = self.under_way.work
        if work is None or work.is_repeated:
            return
        if place is Place.MODULE and part in self._observer.modules:
            self._observer.on_module(work.call, part, tensors[0])
        for proxy in self.watched_proxies:
            if proxy.place is place and proxy.part == part:
                self._read(work, proxy, tensors)

    def _read(self, work: Work, proxy: Proxy, tensors: tuple[Any, ...]) -> None:
        # The proxy of the policy is read once in each step, in the branch that is called first.
        drives = not work.decisions and proxy is self.policy_proxy
        is_observed = proxy.name in self._observer.proxies
        is_kept = proxy.name in self._reuse.custom.proxies
        if not drives and not is_observed and not is_kept:
            return
        if proxy.needs_block_input:
            tensors = (*tensors, work.block_input)
        current = proxy.tensor(*tensors).detach()
        if is_kept:
            work.keep_proxy(proxy.name, current)
        if is_observed:
            self._observer.on_proxy(work.call, proxy.name, current)
        if drives:
            self._decide(work, proxy, current)

    def _decide(self, work: Work, proxy: Proxy, current: Tensor) -> None:
        """Decide a call by its proxy. Raises LeaveForward where nothing more of the forward pass is needed."""
        self._decider.decide(work, current, self._videos.distances(work, current))
        work.blocks_run = proxy.cost if work.is_reused else 0.0
        if work.is_reused:
            # Before the forward pass there is none to leave; before the blocks, the skipped stack adds the residual.
            goes_on = proxy.place is Place.MODULE and self._reuse.runs_forward
            if proxy.place is not Place.LATENT and not goes_on:
                raise LeaveForward
        if work.is_mixed and proxy.place in (Place.MODULE, Place.BLOCK_INPUT):
            raise LeaveForward

    @around_the_model
    def run_module(self, path: str, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a module outside the blocks; reads the proxies there. May raise LeaveForward."""
        output = forward(*args, **kwargs)
        self.read(Place.MODULE, output, part=path)
        return output

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
        work = self.under_way.work
        if work is None:
            return forward(*args, **kwargs)
        hidden = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(hidden, Tensor):
            self._warn("a block was called without hidden states, so the model is computed in full", work.generation)
            return forward(*args, **kwargs)
        is_last = index == self.blocks - 1
        if work.skips_stack:
            if is_last:
                return hidden + self._reuse.predict(work)
            return hidden
        if index == 0:
            return self._run_first(work, hidden, forward, args, kwargs)
        output = forward(*args, **kwargs)
        if is_last and self._reuse.runs_forward and work.block_input is not None:
            work.residual = (output - work.block_input.to(output.device)).detach()  # blocks may lie on several GPUs
            self._observer.on_stack(work.call, work.block_input, output)
        return output

    @around_the_model
    def _run_first(
        self, work: Work, hidden: Tensor, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The output of the first block; reads the proxies at its input and output. Raises LeaveForward once only some
        samples, or with output reuse all, are decided for reuse; then its output is kept for the computed samples."""
        if self._reuse.runs_forward or any(proxy.needs_block_input for proxy in self.watched_proxies):
            work.block_input = hidden
        if work.first_output is not None:
            return work.first_output
        try:
            self.read(Place.BLOCK_INPUT, hidden, self._family.time_embedding_of(args, kwargs))
            output = forward(*args, **kwargs)
            hidden_after = _hidden_in(output, hidden)
            if hidden_after is not None:
                self.read(Place.BLOCK_OUTPUT, hidden, hidden_after)
            if work.is_mixed:
                work.first_output = output
                work.blocks_run = 1.0
                raise LeaveForward
        except LeaveForward:
            if self._reuse.runs_forward and work.skips_stack:
                return hidden
            raise
        return output


def _hidden_in(output: Any, hidden: Tensor) -> Tensor | None:
    """The hidden states in a block's output; some models return the text first."""
    outputs = (output,) if isinstance(output, Tensor) else output
    for tensor in outputs:
        if isinstance(tensor, Tensor) and tensor.shape == hidden.shape:
            return tensor
    return None
