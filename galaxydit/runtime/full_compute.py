"""Calls that are computed whatever the policy decides: too few steps, drawn noise, latents that do not continue."""

from galaxydit.config import GalaxyDiTConfig
from galaxydit.policies.policy import FEW_STEPS, Reason
from galaxydit.runtime.call import Call
from galaxydit.runtime.clean import Mix, mix_of
from galaxydit.runtime.generation import MOST_BREAKS, NEW_TRAJECTORY
from galaxydit.runtime.session import Session
from galaxydit.runtime.step import Noise

RESIZED = (
    "the batch changed its size in several steps (guidance in one batch, but not in every step), and steps of another "
    "size cannot be reused, so each step after a change is computed"
)


def why_computed(call: Call, session: Session) -> Reason | None:
    """Why a call is computed whatever the policy decides, with a warning; None if it may be reused."""
    generation, info, config = call.generation, call.info, session.config
    if info.steps <= config.most_in_full:
        session.warn_and_note(too_few(info.steps, config))
        return Reason.FEW_STEPS
    if call.trajectory.resized > MOST_BREAKS:
        session.warn_and_note(RESIZED)
    drawn, mix = generation.noise is Noise.DRAWN, None
    if config.history_length and generation.noise in (Noise.DRAWN, Noise.POSSIBLE):
        mix = mix_of(generation.scheduler, info)
        if config.reuse == "output" and generation.reuses_clean:
            call.mix = mix
        if drawn and not generation.cannot_reuse:
            generation.cannot_reuse = _why_unknown(call, config.reuse, mix)
    if generation.cannot_reuse:
        cause = "the scheduler draws noise in every step, and " * drawn + generation.cannot_reuse
        session.warn_and_note(f"{cause}; so steps are computed in full")
    if generation.cannot_reuse or (drawn and config.history_length and mix is None):
        return Reason.DRAWN_NOISE if drawn else Reason.NO_HISTORY
    return None


def too_few(steps: int, config: GalaxyDiTConfig) -> str:
    """Warning text of a generation in which nothing is reused because of the number of its steps."""
    most = config.most_in_full
    if config.few_steps is None and config.follows_general_schedule and steps > FEW_STEPS:
        return (
            f"{steps} steps are too few to reuse any without a profile (in {most} or fewer, plain steps of the same "
            f"cost are as good), so all are computed: `galaxydit calibrate --steps {steps}` measures a profile, "
            "few_steps=0 reuses all the same"
        )
    because = (
        f"neighbouring steps differ too much at {most} or fewer" if config.few_steps is None else f"few_steps={most}"
    )
    return f"{steps} steps are too few to reuse any ({because}), so all are computed"


def _why_unknown(call: Call, reuse: object, mix: Mix | None) -> str:
    """Why no clean prediction can be reused under drawn noise, or ""; the first and last step may lack it."""
    if reuse != "output":
        return 'use reuse="output", because what the blocks add belongs to the drawn noise'
    if len(call.generation.trajectories) > 1 or call.generation.strays:
        return "its latents (windows, tiles, rolled latents, other loops) cannot be told apart by their noise"
    if mix is None and 0 < call.info.step < call.info.steps - 1:
        return f"the clean prediction of {type(call.generation.scheduler).__name__} is not known"
    return ""


def confirm_continuity(session: Session, call: Call) -> None:
    """Read postponed comparisons of latents before the first reuse; if one fails, compute this call
    and compare the latent of every later one."""
    generation = call.generation
    if generation.is_checked or generation.is_trusted or not call.is_reused:
        return
    oldest = min(steps[0].step for steps in call.state.history.values())
    generation.is_trusted = generation.is_continuous(call.trajectory, oldest)
    if not generation.is_trusted:
        generation.is_checked = True
        call.state.forget(call.info.step)
        call.has_history = tuple(False for _ in call.has_history)
        session.warn_and_note(NEW_TRAJECTORY)
