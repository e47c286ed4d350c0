"""Runs a part of the measurements turn by turn, as far as the time limit allows."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from galaxydit.errors import GalaxyDiTError, short_reason
from galaxydit.eval.gpu.gpu_file import GpuFile
from galaxydit.eval.gpu.gpu_state import clocks_of
from galaxydit.foreign_text import logger_of

logger = logger_of(__name__)
PREPARATION = "preparation"
MARGIN = 1.05  # of an expected time
RESERVE = 2.0  # seconds for the end of the command


class OutOfTimeError(Exception):
    """The time limit ended a measurement that continues in the next call."""


@dataclass(frozen=True)
class TimeLimit:
    """Seconds that the command may take, None for any, and `time.monotonic` at its start."""

    seconds: float | None
    started: float

    def allows(self, expected: float) -> bool:
        """Whether work that is expected to take so many seconds ends within the limit."""
        if self.seconds is None:
            return True
        return time.monotonic() - self.started + MARGIN * expected + RESERVE <= self.seconds


@dataclass(frozen=True)
class Turn:
    """One measurement of a variant; `measure` returns its row, and may raise OutOfTimeError after it wrote a part."""

    variant: str
    round: int  # from 1
    seconds: float  # expected on one H100
    measure: Callable[[], dict[str, Any]]
    least: float | None = None  # seconds that it needs to begin, if it can stop within and be continued


@dataclass(frozen=True)
class MeasuredPart:
    """Turns that share a model; `prepare` builds it, warms it up and returns a row."""

    name: str  # such as "a"
    about: str
    prepare: Callable[[], dict[str, Any]]
    prepare_seconds: float  # expected on one H100
    turns: tuple[Turn, ...]

    @property
    def seconds(self) -> float:
        """Expected on one H100."""
        return self.prepare_seconds + sum(turn.seconds for turn in self.turns)


def run_part(part: MeasuredPart, file: GpuFile, limit: TimeLimit, device: torch.device) -> None:
    """Measure what the file lacks. A variant that fails is noted with its error and left out of all rounds."""
    missing = []
    for turn in part.turns:
        row = file.find(part.name, turn.variant, turn.round)
        if row is not None and row["finished"]:
            logger.info("skipped: %s %s, round %s is in %s", part.name, turn.variant, turn.round, file.path)
        else:
            missing.append(turn)
    if not missing:
        logger.info("part %s is complete", part.name)
        return
    logger.info("part %s, %s: %.0f s expected on one H100", part.name, part.about, part.seconds)
    before = [row for row in file.rows if (row["part"], row["variant"]) == (part.name, PREPARATION)]
    preparation = Turn(PREPARATION, 1 + len(before), part.prepare_seconds, part.prepare)
    if not limit.allows(preparation.seconds + expected_seconds(missing[0], part, file)):
        logger.info("stopped: the limit of %s s leaves no time for the preparation and one turn", limit.seconds)
        return
    if not _measured(preparation, part, file, device):
        return
    failed = set[str]()
    for turn in missing:
        if turn.variant in failed:
            continue
        expected = expected_seconds(turn, part, file)
        if not limit.allows(expected):
            logger.info("stopped: %s takes %.0f s, which the limit of %s s does not leave", turn.variant, expected,
                        limit.seconds)  # fmt: skip
            return
        try:
            if not _measured(turn, part, file, device):
                failed.add(turn.variant)
        except OutOfTimeError:
            logger.info("stopped within %s: the next call continues it", turn.variant)
            return
    logger.info("part %s ended", part.name)


def expected_seconds(turn: Turn, part: MeasuredPart, file: GpuFile) -> float:
    """Seconds that a turn took before; else those of one H100, scaled by the slowest turn of the part so far.

    For a turn that can be continued, the seconds that it needs to begin.
    """
    if turn.least is not None:
        return turn.least
    walls: dict[str, list[float]] = {}
    for row in file.rows:
        if row["part"] == part.name and row["finished"]:
            walls.setdefault(row["variant"], []).append(row["wall_seconds"])
    if turn.variant in walls:
        return fmean(walls[turn.variant])
    scales = [fmean(walls[other.variant]) / other.seconds for other in part.turns if other.variant in walls]
    return turn.seconds * max([1.0, *scales])


def _measured(turn: Turn, part: MeasuredPart, file: GpuFile, device: torch.device) -> bool:
    """Measure a turn and write its row; False if it failed, which the file says."""
    start = time.monotonic()
    try:
        measured = turn.measure()
    except OutOfTimeError:
        raise
    except Exception as error:  # whatever a backend raises: the other variants are still measured
        if isinstance(error, GalaxyDiTError):
            logger.info("left out: %s (%s)", turn.variant, error)
        else:
            logger.exception("%s failed", turn.variant)
        file.leave_out(part.name, turn.variant, short_reason(error, 300))
        return False
    wall = time.monotonic() - start
    file.add(part.name, turn.variant, turn.round,
             {"finished": True, "wall_seconds": wall, "clocks": clocks_of(device)} | measured)  # fmt: skip
    logger.info("%s %s, round %s: %.1f s", part.name, turn.variant, turn.round, wall)
    return True
