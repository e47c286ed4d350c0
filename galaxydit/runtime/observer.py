"""Observers watch every transformer call."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call


class Observer:
    """Base class of observers; its methods do nothing until they are overridden.

    Attach an observer with `Acceleration(pipe, config, observer=...)`. One decision then serves the whole batch.

    The engine passes the call under way, see `galaxydit.runtime.call.Call`: its generation, step, number of steps,
    sigma, branch and latent.

    Attributes:
        proxies: names of proxies that `on_proxy` receives; the family must offer them.
        modules: paths below the transformer, outside its blocks, whose outputs `on_module` receives.
    """

    proxies: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()

    def on_proxy(self, call: "Call", name: str, tensor: Tensor) -> None:
        """Receive a proxy's tensor, which the observer may keep. A reused call reads no proxy after its decision."""

    def on_module(self, call: "Call", path: str, output: Any) -> None:
        """Receive the output of one of `modules`."""

    def on_stack(self, call: "Call", before: Tensor, after: Tensor) -> None:
        """With `reuse="residual"`: receive the hidden states `(batch, tokens, dim)` around a computed block stack."""

    def on_output(self, call: "Call", output: Tensor) -> None:
        """Receive the first tensor of the output of a computed call, before the correction, with the batch size of
        `call.latent`.
        """

    def on_end(self) -> None:
        """Called when a generation has ended."""
