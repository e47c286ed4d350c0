"""Observers receive proxies, outputs and hidden states of every transformer call, for example for a calibration."""

from typing import Any

from torch import Tensor

from galaxydit.runtime.call import Call


class Observer:
    """Base class of observers; its methods do nothing until they are overridden. Attach one with
    `Acceleration(pipe, config, observer=...)`; one decision then serves the whole batch.

    Attributes:
        proxies: names of proxies (`galaxydit.proxies.proxies_of`) that `on_proxy` receives.
        modules: paths below the transformer, outside its blocks, whose outputs `on_module` receives.
    """

    proxies: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        """Receive the tensor of the proxy `name`; it may be kept. Proxies of the transformer's input arrive in every
        call, others only until the call is decided for reuse."""

    def on_module(self, call: Call, path: str, output: Any) -> None:
        """Receive the output of the module at `path`, one of `modules`."""

    def on_stack(self, call: Call, before: Tensor, after: Tensor) -> None:
        """Receive the hidden states `(batch, tokens, dim)` around a computed call's blocks; residual reuse only."""

    def on_output(self, call: Call, output: Tensor) -> None:
        """Receive the first tensor of a computed call's output, before the plugin corrects it."""

    def on_further_output(self, call: Call, index: int, output: Tensor) -> None:
        """Receive a further tensor of the output, such as the prediction of the sound, which has index 1."""

    def on_end(self) -> None:
        """Called for each transformer after a generation that raised no error."""
