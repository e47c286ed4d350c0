"""Which scheduler steps which output of a transformer, such as picture and sound."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from galaxydit.runtime.scheduler_trajectory import Trajectory
from galaxydit.schedulers import sigmas_in

# Why a loop is undeclared, with what declares it.
UNPAIRED = (
    "it is not told which scheduler steps which output of the transformer (pass scheduler=(video, audio) to "
    "`accelerate`, or schedulers=[(video, audio)], in the order of the outputs)"
)
WRONG_PAIR = (
    "a scheduler was given a prediction larger than the output that it is paired with (pass scheduler=(video, audio) "
    "in the order of the transformer's outputs)"
)
NOT_ALL_STEPPED = (
    "no observed scheduler stepped one of the transformer's outputs (pass scheduler=(video, audio) to `accelerate`, or "
    "schedulers=[(video, audio)], with the schedulers that step them)"
)
OTHER_COUNTS = "the schedulers of its outputs have different numbers of steps"


class Pairing:
    """The schedulers of one loop's outputs; each method returns why they are not known, or "".

    Attributes:
        steppers: the scheduler of each output, the loop's own first; empty before the first call.
        sizes: number of values of each output of a full call, where several schedulers step them.
    """

    def __init__(self) -> None:
        self.steppers: tuple[Any, ...] = ()
        self.sizes: tuple[int, ...] = ()

    @property
    def has_several(self) -> bool:
        return any(scheduler is not self.steppers[0] for scheduler in self.steppers)

    def pair(self, own: Any, named: Sequence[Any | None], trajectories: Mapping[int, Trajectory]) -> str:
        """Find the scheduler of each output after the first: the one of `named` if it is in this loop, else the loop's
        own where all have equal noise levels, else the only other one, such as a copy that the pipeline made."""
        others = []
        for trajectory in trajectories.values():
            if trajectory.scheduler is not own:
                others.append(trajectory.scheduler)
        levels = sigmas_in(own)
        are_equal = all(sigmas_in(other) == levels for other in others)
        steppers = [own]
        for scheduler in named:
            if scheduler is not None and id(scheduler) in trajectories:
                steppers.append(scheduler)
            elif are_equal:
                steppers.append(own)  # whichever steps it, its noise levels are these
            elif len(others) == 1:
                steppers.append(others[0])
            else:
                return UNPAIRED
        self.steppers = tuple(steppers)
        counts = {len(scheduler.timesteps) for scheduler in steppers}
        return OTHER_COUNTS if len(counts) > 1 else ""

    def note_outputs(self, outputs: Sequence[Tensor]) -> None:
        """Note the sizes of a full call's outputs, with which predictions are compared."""
        if self.has_several and not self.sizes:
            self.sizes = tuple(output.numel() for output in outputs)

    def check_prediction(self, scheduler: Any, prediction: Any) -> str:
        """Compare the prediction that a scheduler is given with the output that it is paired with."""
        if not isinstance(prediction, Tensor):
            return ""
        # A smaller one is allowed: guidance in one batch halves it, and pipelines step single frames or tokens.
        for stepper, size in zip(self.steppers, self.sizes, strict=False):
            if stepper is scheduler and prediction.numel() > size:
                return WRONG_PAIR
        return ""

    def check_stepped(self, trajectories: Mapping[int, Trajectory], outputs: int) -> str:
        """After a step, each of the `outputs` must have been stepped, because its noise levels are its scheduler's."""
        if self.has_several:
            are_stepped = all(trajectories[id(scheduler)].steps for scheduler in self.steppers)
        else:
            stepped = [trajectory for trajectory in trajectories.values() if trajectory.steps > 0]
            are_stepped = len(stepped) >= outputs
        return "" if are_stepped else NOT_ALL_STEPPED
