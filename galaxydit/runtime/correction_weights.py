"""How much full steps correct: the error of the steps reused since the last full step, as a multiple of what reuse
would have done wrong at this step (`galaxydit.extrapolation.missed`)."""

from collections.abc import Sequence

from galaxydit.config import GalaxyDiTConfig
from galaxydit.extrapolation import missed
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.history import Key
from galaxydit.runtime.streams import Clock
from galaxydit.runtime.work import Work
from galaxydit.schedulers import Noise
from galaxydit.torch_compile import beside_the_model

UNKNOWN_SCHEDULER = "the scheduler is unknown, so full steps correct nothing: pass scheduler=... to `accelerate`"
DRAWN_NOISE = "the scheduler draws noise in every step, so full steps correct nothing, and reuse is of order 0"


@beside_the_model
def correction_weights(work: Work, config: GalaxyDiTConfig) -> list[tuple[float, ...]]:
    """For each video, by stream: the accumulated error of the steps reused since its last full step / the error of
    reuse at this step, without the configured share; 0 without such steps. Empty if nothing may be corrected, and at
    the last step, because no later step would remove the noise of a correction."""
    call, history = work.call, work.history
    if not config.correction or call.info.is_last:
        return []
    if call.is_guided != history.was_guided:
        return []  # the guidance weights of the reused steps were other ones
    reused = {}
    for video in work.videos:
        key = (call.branch, video)
        reused[key] = _reused_since_full(work, key)
    if not any(reused.values()) or not may_correct(work.generation):
        return []
    weights = []
    for key, steps in reused.items():
        of_streams = []
        for clock in work.generation.clocks:
            of_streams.append(_weight(work, clock, key, steps))
        weights.append(tuple(of_streams))
    return weights


def has_weight(weights: Sequence[Sequence[float]]) -> bool:
    """Whether anything is corrected."""
    return any(any(of_streams) for of_streams in weights)


def may_correct(generation: Generation) -> bool:
    """Whether the scheduler is known and draws no noise; if not, notes the reason."""
    if generation.scheduler is None:
        generation.note(UNKNOWN_SCHEDULER)
        return False
    if generation.noise is Noise.DRAWN:
        generation.note(DRAWN_NOISE)
        return False
    return True


def _reused_since_full(work: Work, key: Key) -> list[int]:
    """Steps that were reused since the last full step, with the branches and the guidance scale of this one."""
    if not work.history.steps.get(key):
        return []
    return [step for step in work.history.missed.get(key, []) if step >= work.window.steady_since]


def _weight(work: Work, clock: Clock, key: Key, reused: Sequence[int]) -> float:
    if not reused:
        return 0.0
    newest = work.history.steps[key][-1].step
    return missed(clock.sigmas, clock.response, newest, work.call.info.step, reused)
