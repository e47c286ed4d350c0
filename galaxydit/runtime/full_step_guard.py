"""The guard of one transformer: measure at full steps how predictions would have erred, and limit later predictions.

A prediction follows the slope between the last two full steps. The correction makes a full step compensate the error of
the reused steps before it (`galaxydit.extrapolation`).
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from galaxydit.context_parallel import token_group
from galaxydit.families import Family
from galaxydit.policies.safeguard import GuardRecord, Safeguard
from galaxydit.runtime.guidance import branches_of, guidance_of
from galaxydit.runtime.hindsight import Trail, measure, sampled
from galaxydit.torch_compile import beside_the_model

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call
    from galaxydit.runtime.session import Session


class FullStepGuard:
    """Limits slope and correction of one transformer's predictions, separately for each sample and decision scope.

    A sample is one video of the batch. A decision scope is one guidance branch, or all branches jointly. Under context
    parallelism, the measurements are summed over the ranks, so that all ranks set the same limits. `component` is the
    transformer's name in the pipeline, `family` says how the guidance branches reach it, and `session` holds the
    configuration and the pipeline.
    """

    acts = True
    """Whether the guard limits predictions; set to False (by studies), it only measures."""

    def __init__(self, transformer: nn.Module, component: str, family: Family, session: "Session") -> None:
        self._transformer, self._component, self._family, self._session = transformer, component, family, session

    def limits_for(self, call: "Call", sample: int) -> Safeguard:
        """The current limits for the sample of this index in the call's decision scope: the share of the slope that
        predictions follow (`slope`), and whether full steps may be corrected (`corrects`).

        The whole slope and corrections are allowed before the first measurement, and for a guard that only measures
        (`acts` is False; studies set it).
        """
        trail = call.state.trails.get((call.scope, sample))
        return Safeguard(call.generation.order) if trail is None or not self.acts else trail.guard

    @beside_the_model
    def observe(self, call: "Call", outputs: tuple[Tensor, ...]) -> None:
        """Measure prediction errors with the outputs of one call of a full step. Once the outputs of all branches are
        known, set the limits of each sample for the following steps, and add its `GuardRecord` to the generation.
        """
        count, scale = len(call.samples), guidance_of(self._session.source.pipe, self._component)
        if count > 1 and any(len(output) != len(call.latent) for output in outputs):
            return  # the samples cannot be told apart
        for place, sample in enumerate(call.samples):
            trails, key = call.state.trails, (call.scope, sample)
            trail = trails.setdefault(key, Trail(Safeguard(call.generation.order)))
            branches: dict[str, list[Tensor]] = {}
            for output in outputs:
                for name, rows in branches_of(output[place::count], call.branch, self._family, scale).items():
                    branches.setdefault(name, []).append(rows)
            samples = {name: sampled(rows) for name, rows in branches.items()}
            epsilon = torch.finfo(outputs[0].dtype).eps
            if trail.add(call.info.step, call.info.sigma, samples, scale, epsilon):
                self._judge(call, sample, trail)

    def _judge(self, call: "Call", sample: int, trail: Trail) -> None:
        step = trail.steps[-1].step
        reused = step - trail.steps[-2].step - 1
        config = self._session.config
        hindsight = measure(trail.steps, token_group(self._transformer), config.slope, config.largest_ahead)
        followed = trail.guard.followed if self.acts else float(trail.guard.order)
        trail.guard, actions = trail.guard.after(hindsight)
        record = GuardRecord(
            step=step,
            transformer=self._component,
            scope=call.scope,
            sample=sample,
            reused=reused,
            error=hindsight.error(followed),
            slope_ratio=hindsight.slope_ratio(),
            correction_share=hindsight.correction_share(followed),
            slope=trail.guard.followed,
            corrects=trail.guard.corrects,
            actions=actions,
        )
        call.generation.guard.append(record)
