"""Observers watch every transformer call."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call


class Observer:
    """Attached with `Acceleration(pipe, config, observer=...)`. Methods do nothing until they are overridden.

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
        """Receive the output of a computed call, in the shape of `call.latent`."""

    def on_end(self) -> None:
        """A generation has ended."""
