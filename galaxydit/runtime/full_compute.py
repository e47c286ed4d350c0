"""Calls that are computed whatever the policy decides: too few steps, drawn noise, latents that do not continue."""

from galaxydit.policies.policy import Reason
from galaxydit.runtime.call import Call
from galaxydit.runtime.clean import mix_of
from galaxydit.runtime.generation import NEW_TRAJECTORY
from galaxydit.runtime.session import Session
from galaxydit.runtime.step import Noise

MOST_BREAKS = 2  # steps that no latent continued into; with more, each step rolls the latent or draws noise
BROKEN = (
    f"no latent continued into more than {MOST_BREAKS} steps (rolled, replaced, or with new noise), so all are computed"
)


def why_computed(call: Call, session: Session) -> Reason | None:
    """Why a call is computed whatever the policy decides, with a warning; None if it may be reused."""
    generation, info, config = call.generation, call.info, session.config
    if info.steps <= config.few_steps:
        session.warn_and_note(
            f"{info.steps} steps are too few to reuse any (neighbouring steps differ too much at "
            f"{config.few_steps} or fewer), so all are computed"
        )
        return Reason.FEW_STEPS
    generation.is_broken = generation.is_broken or len(generation.breaks) > MOST_BREAKS
    if generation.is_broken:
        session.warn_and_note(BROKEN)
        return Reason.NO_HISTORY
    if generation.noise in (Noise.NONE, Noise.UNKNOWN) or config.history_length == 0:
        return None
    mix = mix_of(generation.scheduler, info)
    if config.reuse == "output" and generation.reuses_clean:
        call.mix = mix
    if generation.noise is Noise.POSSIBLE:
        return None
    if config.reuse != "output":
        generation.cannot_reuse = 'use reuse="output", because what the blocks add belongs to the drawn noise'
    elif len(generation.trajectories) > 1:
        generation.cannot_reuse = "its latents (windows, tiles, rolled latents) cannot be told apart by their noise"
    elif mix is None and not generation.cannot_reuse and 0 < info.step < info.steps - 1:
        generation.cannot_reuse = f"the clean prediction of {type(generation.scheduler).__name__} is not known"
    if generation.cannot_reuse:
        session.warn_and_note(
            f"the scheduler draws noise in every step, and {generation.cannot_reuse}; so steps are computed in full"
        )
    return Reason.DRAWN_NOISE if generation.cannot_reuse or mix is None else None


def confirm_continuity(session: Session, call: Call) -> None:
    """Read postponed comparisons of latents before the first reuse; if one fails, compute and compare all steps."""
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


def check_continuity_afterwards(session: Session, call: Call) -> None:
    if not call.generation.is_continuous(call.trajectory, call.generation.first + 2):
        session.warn_and_note(NEW_TRAJECTORY + "; this was found after the generation")
