"""Apply the decisions and predictions of another method within this plugin.

The plugin's engine computes or reuses each transformer call. Here the engine asks a driver, which implements the other
method, for the decision and for the output of a reused call.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.acceleration import Acceleration
from galaxydit.policies.policy import Decision, Reason
from galaxydit.runtime.call import Call
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.reuse import OutputReuse


class Driver(Protocol):
    """Decides and predicts transformer calls. A driver is also an `Observer`, to receive the tensors that it needs."""

    def decide(self, call: Call) -> bool | None:
        """True to reuse this transformer call, False to compute it, None to be asked again later in the call.

        Asked before the transformer runs, and after each tensor that the driver receives as an observer (`modules` and
        `proxies`). A call for which all answers are None is computed.
        """

    def predict(self, call: Call) -> Tensor:
        """The output of a reused call, or what its block stack adds to its input (`driven` with `reuse="residual"`)."""


class DrivenReuse(OutputReuse):
    """Takes the predictions of reused calls from a driver; caches and corrects nothing itself.

    `runs_forward` says whether a reused call still runs the forward pass, with the blocks skipped; otherwise the call
    leaves the forward pass.
    """

    def __init__(self, driver: Driver, *, runs_forward: bool) -> None:
        self._driver = driver
        self.runs_forward = runs_forward  # type: ignore[misc]

    def has_history(self, call: Call) -> tuple[bool, ...]:
        return (True,)

    def predict(self, call: Call) -> Tensor:
        return self._driver.predict(call)

    def store(self, call: Call, outputs: tuple[Tensor, ...]) -> None:
        return

    def correct(self, call: Call, outputs: tuple[Tensor, ...], forward: Callable[[], Any]) -> None:
        return None


class DrivenEngine(Engine):
    """Engine that asks `driver`, not the policy, whether a call is reused, and takes predictions from `driver`.

    The driver is asked in short generations too, whose steps `Engine` would all compute. `arguments` are those of
    `Engine`: transformer, its name in the pipeline, its family, session and observer.
    """

    few_steps = 0

    def __init__(self, *arguments: Any, driver: Driver) -> None:
        self._driver = driver
        super().__init__(*arguments)

    def _make_reuse(self) -> OutputReuse:
        return DrivenReuse(self._driver, runs_forward=self.config.reuse == "residual")

    def consider(self, call: Call) -> None:
        call.decisions = call.decisions or self._ask(call)

    def _ask(self, call: Call) -> tuple[Decision, ...]:
        reuse = self._driver.decide(call)
        return () if reuse is None else (Decision(reuse, Reason.CUSTOM),)


def driven(pipe: Any, driver: Any, reuse: str = "output") -> Acceleration:
    """Attach a driver to a pipeline until the returned context manager ends.

    The driver is an `Observer` that also has the methods of `Driver`: `decide(call)` says whether a transformer call is
    reused, and `predict(call)` returns the tensor of a reused call. `reuse` says which tensor: the transformer's
    "output", or the "residual", what its block stack adds to its input. Raises GalaxyDiTError for a transformer that
    has a cache already.
    """
    # The policy is never asked. This one reads no proxy.
    config = GalaxyDiTConfig(FixedSteps(()), reuse=reuse)
    return Acceleration(pipe, config, observer=driver, engine=partial(DrivenEngine, driver=driver))
