"""Observers: code that watches every transformer call, and may decide and predict in the engine's place."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call


class Observer:
    """Attached with `Acceleration(pipe, config, observer=...)`. Override what is needed; the defaults do nothing.

    The engine passes the call under way, see `galaxydit.runtime.call.Call`: its generation, step, number of steps,
    sigma, branch and latent.

    Attributes:
        proxies: names of proxies that `on_proxy` receives; the family must offer them.
        modules: paths below the transformer, outside its blocks, whose outputs `on_module` receives.
        decides: the observer replaces policy, cache and extrapolation: the engine asks `decide`, caches nothing, and
            takes the tensors of reused calls from `predict`.
    """

    proxies: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()
    decides = False

    def on_proxy(self, call: "Call", name: str, tensor: Tensor) -> None:
        """Receive a proxy's tensor, which the observer may keep. A reused call reads none after its decision."""

    def on_module(self, call: "Call", path: str, output: Any) -> None:
        """Receive what one of `modules` returned."""

    def on_stack(self, call: "Call", before: Tensor, after: Tensor) -> None:
        """With `reuse="residual"`: receive the hidden states `(batch, tokens, dim)` around a computed block stack."""

    def on_output(self, call: "Call", output: Tensor) -> None:
        """Receive the output of a computed call, in the shape of `call.latent`."""

    def on_end(self) -> None:
        """A generation has ended."""

    def decide(self, call: "Call") -> bool | None:
        """With `decides`: True to reuse this call, False to compute it, None to be asked again.

        Asked before the transformer runs, and after each of `modules` and `proxies`. A call without an answer is
        computed.
        """

    def predict(self, call: "Call") -> Tensor:
        """With `decides`: the output of a reused call, or with `reuse="residual"` what the block stack adds to its
        input.
        """
        raise NotImplementedError
