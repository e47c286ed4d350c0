"""Decide whether the videos of a placed call are reused, and why not: add a reason to `REASONS`, or to a policy.

Why a call has no place in a loop is said in undeclared.py and loop_watch.py.
"""

from collections.abc import Callable

from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import agree_to_reuse
from galaxydit.families import Family
from galaxydit.policies.policy import FEW_STEPS, Controller, Decision, Observation, Reason
from galaxydit.runtime.clean import Mix, mix_of
from galaxydit.runtime.latent_check import Latent
from galaxydit.runtime.session import Session
from galaxydit.runtime.videos import read
from galaxydit.runtime.work import Work, computed
from galaxydit.schedulers import Noise

MOST_RESIZED = 2  # calls with another batch size than before, of which nothing is said
NEW_LATENT = (
    "the latent of a step does not continue that of the step before (another window or another loop began, or the "
    "latent was rolled, replaced or resized), so nothing before it is reused; name windows and tiles, and give a "
    "window at another place another name"
)
UNKNOWN_LATENT = (
    "no value of the transformer's input is one that scheduler.step returned, so it is not known whose latent it is, "
    "and the steps are computed in full; give the transformer what scheduler.step or scheduler.scale_model_input "
    "returned, and name windows and tiles, such as cache_context('window 2/cond')"
)
RESIZED = (
    "the batch changed its size in several steps (guidance in one batch, but not in every step), and steps of another "
    "size cannot be reused, so each step after a change is computed"
)


class Decider:
    """Decides the calls of one transformer."""

    def __init__(self, transformer: nn.Module, family: Family, session: Session) -> None:
        self._transformer = transformer
        self._family = family
        self._session = session

    # Reasons that hold for all videos of a call, before the policy is asked

    def refuse(self, work: Work) -> Reason | None:
        """Why a call is computed whatever the policy decides, with a warning; None if it may be reused."""
        if work.window.resized > MOST_RESIZED:
            self._warn(work, RESIZED)
        for applies, reason in REASONS:
            if applies(self, work):
                work.decisions = (Decision(False, reason),)
                work.is_stored = False
                return reason
        return None

    def has_few_steps(self, work: Work) -> bool:
        steps = work.call.info.steps
        config = work.generation.config
        if steps > config.most_in_full:
            return False
        self._warn(work, too_few(steps, config))
        return True

    def has_unknown_noise(self, work: Work) -> bool:
        """Choose whether clean predictions are reused (`work.mix`); True if noise is drawn and they cannot be."""
        generation = work.generation
        config = generation.config
        is_asked_for = generation.loop.draws_noise and generation.noise is Noise.POSSIBLE
        if not config.history_length or generation.noise in (Noise.NONE, Noise.UNKNOWN):
            return False
        mix = mix_of(generation.scheduler, work.call.info.step)
        if config.reuse == "output" and generation.reuses_clean:
            work.mix = mix
        if generation.noise is not Noise.DRAWN and not is_asked_for:
            return False
        generation.cannot_reuse = generation.cannot_reuse or _why_unknown(work, mix)
        if generation.cannot_reuse:
            why = generation.cannot_reuse
            self._warn(work, f"the scheduler draws noise in every step, and {why}; so steps are computed in full")
        return bool(generation.cannot_reuse) or mix is None

    # Reasons of single videos

    def decide(self, work: Work, proxy: Tensor | None = None, distances: Tensor | None = None) -> None:
        """Decide each video of a call; `proxy` and its `distances` are None for a policy that reads none."""
        history = work.history
        if proxy is not None:
            history.proxies[work.scope] = proxy
        due = {}
        for key in list(history.errors):
            if work.is_joint or key[0] == work.call.branch:
                due[key] = history.errors.pop(key)
        work.distances, errors = read(distances, due)
        decisions = []
        for place, video in enumerate(work.videos):
            of_video = [error for key, error in errors.items() if key[1] == video]
            decisions.append(self._ask_policy(work, place, max(of_video, default=None)))
        history.decisions[work.scope] = tuple(decisions)
        self.follow(work, agrees=proxy is not None)

    def _ask_policy(self, work: Work, place: int, error: float | None) -> Decision:
        call, history, generation = work.call, work.history, work.generation
        video = work.videos[place]
        branches = {call.branch}
        if work.is_joint and call.is_guided is not False:
            branches = work.window.expected_branches(call.component)
        elif work.is_joint:  # the pipeline says that it guides no more
            branches = work.window.branches(call.component, 1)
        # A branch that comes back has no full step.
        comes_back = work.is_joint and call.is_guided is True and history.was_guided is False
        past = history.steps.get((call.branch, video))
        observation = Observation(
            step=call.info.step,
            steps=call.info.steps,
            distance=work.distances[place] if work.distances else None,
            has_history=not comes_back and history.can_reuse(branches, video),
            sigmas=generation.sigmas,
            error=error,
            first=generation.first,
            branch=call.branch,
            guidance_scale=call.guidance_scale,
            measured=past[-1].measured if past else {},
        )
        new = Controller(generation.config.policy, generation.config.limits)
        return history.controllers.setdefault((work.scope, video), new).decide(observation)

    def follow(self, work: Work, *, agrees: bool = False) -> None:
        """Take the decisions of the scope for this branch, unless it has nothing to reuse. `agrees` asks ranks."""
        decisions = list(work.history.decisions[work.scope])
        if len(decisions) != len(work.videos):  # they were made for another number of videos: compute if any does
            computes_first = min(decisions, key=lambda decision: decision.reuse)
            decisions = [computes_first] * len(work.videos)
        for place, video in enumerate(work.videos):
            if not work.history.has_newest(work.call.branch, video, joint=work.is_joint):
                decisions[place] = computed(decisions[place], Reason.NO_BRANCH_HISTORY)
        work.decisions = tuple(decisions)
        if not work.is_divisible and not work.is_reused:
            work.compute(Reason.OTHER_SAMPLE)
        if any(decision.reuse for decision in work.decisions):
            self.check_latent(work)
        if agrees and not agree_to_reuse(self._transformer, work.is_reused):
            work.compute(Reason.OTHER_RANK)
            work.history.decisions[work.scope] = work.decisions

    def check_latent(self, work: Work) -> None:
        """Read whether the latents since the last check were those that `step` returned. If not, forget what came
        before; a call with another latent is computed and not stored."""
        was_broken, latent = work.window.check.read()
        if was_broken or latent is Latent.BROKEN:
            work.generation.withdraw_promise("the PSNR of replaced latents was not verified")
            work.generation.forget(work.window.name, work.call.info.step)
            self._warn(work, NEW_LATENT)
            work.compute(Reason.NO_HISTORY)
        if latent is Latent.BROKEN:
            work.is_stored = False
        if latent is Latent.UNKNOWN and self._family.compares_latent:
            self._warn(work, UNKNOWN_LATENT)
            work.compute(Reason.UNKNOWN_LATENT)
            work.is_stored = False

    def _warn(self, work: Work, text: str) -> None:
        self._session.warn_and_note(text, of=work.generation)


def too_few(steps: int, config: GalaxyDiTConfig) -> str:
    """Warning text of a generation in which nothing is reused because of the number of its steps."""
    most = config.most_in_full
    if config.few_steps is None and config.follows_general_schedule and steps > FEW_STEPS:
        return (
            f"{steps} steps are too few to reuse any without a profile (in {most} or fewer, plain steps of the same "
            f"cost are as good), so all are computed: `galaxydit calibrate --steps {steps}` measures a profile, "
            "few_steps=0 reuses all the same"
        )
    because = f"few_steps={most}"
    if config.few_steps is None:
        because = f"neighbouring steps differ too much at {most} or fewer"
    return f"{steps} steps are too few to reuse any ({because}), so all are computed"


def _why_unknown(work: Work, mix: Mix | None) -> str:
    """Why no clean prediction can be reused under drawn noise, or ""; the first and last step may lack it."""
    if work.generation.config.reuse != "output":
        return 'use reuse="output", because what the blocks add belongs to the drawn noise'
    if mix is None and 0 < work.call.info.step < work.call.info.steps - 1:
        return f"the clean prediction of {type(work.generation.scheduler).__name__} is not known"
    return ""


REASONS: tuple[tuple[Callable[[Decider, Work], bool], Reason], ...] = (
    (Decider.has_few_steps, Reason.FEW_STEPS),
    (Decider.has_unknown_noise, Reason.DRAWN_NOISE),
)
"""Why a call is computed whatever the policy decides, the first that applies."""
