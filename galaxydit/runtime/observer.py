"""Observers: code that watches every transformer call, and may decide or predict in the engine's place."""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from galaxydit.runtime.engine import Call


class Observer:
    """Attached with `Acceleration(pipe, config, observer=...)`. Override what is needed; the defaults do nothing.

    The engine passes the call under way, see `galaxydit.runtime.engine.Call`: its generation, step, number of steps,
    sigma, branch, latent, and with `watches_stack` the input and output of the block stack.

    Attributes:
        proxies: names of proxies that `on_proxy` receives at every call that computes as far as their place. The
            family must offer them.
        watches_stack: whether `call.stack_input` and `call.stack_output`, `(batch, tokens, dim)`, are wanted.
        decides: whether `decide` replaces the policy.
    """

    proxies: frozenset[str] = frozenset()
    watches_stack = False
    decides = False

    def on_proxy(self, call: "Call", name: str, tensor: Tensor) -> None:
        """Receive a proxy's tensor, which the observer may keep."""

    def decide(self, call: "Call") -> bool | None:
        """With `decides`: True to reuse this call, False to compute it, None to be asked again after the next proxy.

        Asked before the blocks run and after each of `proxies`. A call without an answer is computed.
        """

    def predict(self, call: "Call") -> Tensor | None:
        """The tensor that a reused call takes (the output, or with reuse="residual" the stack's residual).

        None, the default, extrapolates from the cached steps.
        """

    def on_output(self, call: "Call", output: Tensor) -> None:
        """Receive the output of a computed call, in the shape of `call.latent`."""

    def on_end(self) -> None:
        """A generation has ended."""
