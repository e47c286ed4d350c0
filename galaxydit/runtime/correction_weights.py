"""How much of the error of reused steps a full step makes up for."""

from galaxydit.extrapolation import missed
from galaxydit.runtime.call import Call
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.session import Session
from galaxydit.runtime.step import Noise
from galaxydit.torch_compile import beside_the_model


@beside_the_model
def correction_weights(session: Session, call: Call) -> list[float]:
    """For each sample, the accumulated error of the steps reused since its last full step / the error of reuse at this
    step, without the configured share; 0 without such steps. Empty if nothing may be corrected, and at the last step,
    because no later step would remove the noise of a correction."""
    if not session.config.correction or call.info.is_last:
        return []
    generation, keys = call.generation, [(call.branch, sample) for sample in call.samples]
    if call.is_guided != call.state.was_guided:
        return []  # the guidance weights of the reused steps were other ones
    steady = call.trajectory.steady_since
    missing = [call.state.missed.get(key, []) if call.state.history.get(key) else [] for key in keys]
    reused = [[step for step in steps if step >= steady] for steps in missing]
    if not any(reused) or not _corrects(session, generation):
        return []
    sigmas, response = generation.sigmas, generation.response
    return [
        missed(sigmas, response, call.state.history[key][-1].step, call.info.step, steps) if steps else 0.0
        for key, steps in zip(keys, reused, strict=True)
    ]


def _corrects(session: Session, generation: Generation) -> bool:
    """Whether the scheduler is known and draws no noise; if not, notes the reason."""
    if generation.scheduler is None:
        another = "another scheduler drives this generation than the accelerated pipeline's, so full steps correct "
        unknown = "the scheduler is unknown, so full steps correct nothing: pass scheduler=... to `accelerate`"
        cure = "nothing: accelerate the pipeline that generates"
        session.note(unknown if session.source.scheduler is None else another + cure)
        return False
    if generation.noise is Noise.DRAWN:
        session.note("the scheduler draws noise in every step, so full steps correct nothing, and reuse is of order 0")
        return False
    return True
