"""A policy that keeps what it is shown."""

from collections.abc import Callable

from galaxydit.policies.policy import Decision, Observation, Reason


class Seeing:
    """Reuses the steps for which `reuses_step` holds, and keeps every observation in `seen`."""

    reuses, learns_errors = True, False

    def __init__(self, reuses_step: Callable[[int], bool], *, reads_proxy: bool) -> None:
        self.reuses_step, self.reads_proxy = reuses_step, reads_proxy
        self.seen: list[Observation] = []

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        self.seen.append(observation)
        return Decision(self.reuses_step(observation.step), Reason.CUSTOM), None
