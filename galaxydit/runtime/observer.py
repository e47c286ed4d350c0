"""Observers receive proxies, outputs and hidden states of every transformer call, for example for a calibration."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call


class Observer:
    """Base class of observers; its methods do nothing until they are overridden.

    Attach an observer with `Acceleration(pipe, config, observer=...)`. One decision then serves the whole batch.

    Most methods receive the call under way (`galaxydit.runtime.call.Call`), which holds the generation, the step, the
    number of steps, sigma, branch and latent. A computed call runs the transformer; a reused call predicts its output.

    Attributes:
        proxies: names of proxies (`galaxydit.PROXIES`) that `on_proxy` receives. The transformer's family must offer
            them (`galaxydit.proxies.proxies_of`).
        modules: paths below the transformer, outside its blocks, whose outputs `on_module` receives.
    """

    proxies: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()

    def on_proxy(self, call: "Call", name: str, tensor: Tensor) -> None:
        """Receive the tensor of the proxy `name`, one of `proxies`; it may be kept.

        Proxies of the transformer's input (`Place.LATENT`) arrive in every call, before its forward pass. Other proxies
        arrive only until the call is decided for reuse: none of them if that happens before the forward pass, such as
        by a schedule or by an earlier branch of the step.
        """

    def on_module(self, call: "Call", path: str, output: Any) -> None:
        """Receive the output of the module at `path`, one of `modules`."""

    def on_stack(self, call: "Call", before: Tensor, after: Tensor) -> None:
        """Receive the hidden states `(batch, tokens, dim)` before and after the blocks of a computed call.

        Called only with `reuse="residual"`.
        """

    def on_output(self, call: "Call", output: Tensor) -> None:
        """Receive the first tensor of a computed call's output, with the batch size of `call.latent`.

        It is the transformer's own output, before the plugin corrects it for errors of reused steps.
        """

    def on_end(self) -> None:
        """Called for each transformer when the pipeline resets its caches: after a generation that raised no error."""
