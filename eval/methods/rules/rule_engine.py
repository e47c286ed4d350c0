"""Apply the decisions and predictions of another method, a driver, within this plugin's engine."""

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
    """An `Observer` that also decides and predicts transformer calls."""

    def decide(self, call: Call) -> bool | None:
        """True to reuse this call, False to compute it, None to be asked again when the next tensor arrives.

        A call for which all answers are None is computed.
        """

    def predict(self, call: Call) -> Tensor:
        """The output of a reused call, or the residual of its block stack (`driven` with `reuse="residual"`)."""


class DrivenReuse(OutputReuse):
    """Takes predictions from a driver; `runs_forward`: a reused call runs the forward pass without the blocks."""

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
    """Asks the driver, not the policy, whether a call is reused, also in generations of few steps."""

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
    """Attach a driver until the returned context ends; it predicts the "output", or the block stack's "residual".

    Raises GalaxyDiTError for a transformer that has a cache already.
    """
    # The policy is never asked. This one reads no proxy.
    config = GalaxyDiTConfig(FixedSteps(()), reuse=reuse)
    return Acceleration(pipe, config, observer=driver, engine=partial(DrivenEngine, driver=driver))
