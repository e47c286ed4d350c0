"""What a request leads to: the configuration of the plugin, and what reports say about it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from galaxydit.config import GalaxyDiTConfig
from galaxydit.outcome import Goal
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.conditions import notes_and_warnings
from galaxydit.profiles.schema import Profile
from galaxydit.report import Report
from galaxydit.runtime.session import Session
from galaxydit.runtime.source import Source


@dataclass(frozen=True)
class Settings:
    """The configuration that a request leads to, with texts for every report; `warnings` are raised, too."""

    config: GalaxyDiTConfig
    profile: Profile | None = None  # of `config`; reports say how a generation differs from its conditions
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    goal: Goal | None = None  # the request, such as a speedup; None for a `GalaxyDiTConfig` by hand
    given: Profile | None = None  # the profile, if the request named one

    def session(
        self,
        source: Source,
        keep_reports: int | None,
        on_report: Callable[[Report], None] | None,
        peers: list[Session],
    ) -> Session:
        policy = self.config.policy
        schedule = policy.schedule if isinstance(policy, ProxyThreshold) else policy
        in_full = isinstance(schedule, Schedule) and schedule.fewest_steps > 0
        compared = None if self.profile is None else partial(notes_and_warnings, self.profile, in_full)
        texts = self.notes, compared, keep_reports, self.warnings, self.goal
        return Session(self.config, source, *texts, on_report, peers)
