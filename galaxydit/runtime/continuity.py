"""Tell whether a call continues the generation under way. No function here has side effects."""

from enum import Enum

from galaxydit.runtime.generation import Generation, TransformerState
from galaxydit.runtime.identity import CallIdentity


class Discontinuity(Enum):
    """Why a call begins a new generation; the value is the reason in the words of the report."""

    ENDED = "the one before has ended"
    TIMESTEPS = "its timesteps are those of another call of a pipeline"
    STEPS = "the steps were set anew"
    BRANCH_NAMES = "its branches are named otherwise"
    SIGNATURE = "shape, dtype, device or adapters have changed"
    TEXT = "its text is another tensor"
    REPEATED = "it repeats a step"
    LATENT = "its latent is another tensor"
    ORDER = "the steps do not follow on each other"


def branch_of(generation: Generation, call: CallIdentity) -> str:
    """Name of the guidance branch of a call. If the pipeline names none, "call 0", "call 1" and so on by the order of
    the transformer's calls in the step.
    """
    earlier = [name for name, _ in generation.seen if name == call.component and call.info.step == generation.step]
    return call.branch or f"call {len(earlier)}"


def switches_guidance(generation: Generation, call: CallIdentity) -> bool:
    """Whether this call is the first of the next step and has half or twice the batch size of its branch's last call,
    because guidance with both branches in one batch was switched off or on.
    """
    known = _state_of(generation, call).signatures.get(branch_of(generation, call), call.signature)
    return call.info.step == generation.step + 1 and known.switches_guidance(call.signature)


def discontinuity(generation: Generation, call: CallIdentity) -> Discontinuity | None:
    """Why a call begins a new generation; None if it continues `generation`."""
    info, branch, state = call.info, branch_of(generation, call), _state_of(generation, call)
    if generation.finished:
        return Discontinuity.ENDED
    addresses = {generation.timesteps_address, call.timesteps_address}
    if None not in addresses and len(addresses) > 1:
        return Discontinuity.TIMESTEPS
    if info.steps != generation.steps or getattr(call.scheduler, "timesteps", None) is not generation.timesteps:
        return Discontinuity.STEPS
    if generation.names_branches != (call.branch is not None):
        return Discontinuity.BRANCH_NAMES
    if not switches_guidance(generation, call):
        if state.signatures.get(branch, call.signature) != call.signature:
            return Discontinuity.SIGNATURE
        if branch in state.texts and not state.texts[branch].goes_on_as(call.text):
            return Discontinuity.TEXT
    if info.step == generation.step:
        if (call.component, branch) in generation.seen:
            return Discontinuity.REPEATED
        # Unnamed branches of interleaved generations are told apart by the latent, which all calls of a step share.
        same = generation.names_branches or generation.latent is None or generation.latent.equals(call.latent)
        return None if same else Discontinuity.LATENT
    follows = info.step == generation.step + 1 and info.sigma <= generation.sigma
    return None if follows else Discontinuity.ORDER


def _state_of(generation: Generation, call: CallIdentity) -> TransformerState:
    return generation.states.get(call.component) or TransformerState()
