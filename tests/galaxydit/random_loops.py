"""Random denoising loops on an exact toy model: no call may be predicted from another trajectory or branch.

The toy's data are Gaussian around a picture for each text, so its velocity is known at every call. A loop draws its
scheduler, steps, windows, guidance, contexts, interruptions and other loops in between at random. The error of each
predicted call is compared with the error of a prediction from the last full steps of its own latent, and where that is
smaller, with the worst error at this step of undisturbed loops that compute the same steps.

    python -m tests.galaxydit.random_loops --minutes 60
"""

import argparse
import copy
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    FlowMatchLCMScheduler,
    SASolverScheduler,
    UniPCMultistepScheduler,
)
from diffusers.models.cache_utils import CacheMixin
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.extrapolation import CachedStep, predict
from galaxydit.policies.general_schedule import general_schedule

SHAPE = (1, 4, 4, 8, 8)
SPREAD = 0.5  # standard deviation of the data around their picture
ROUNDING = 1e-3  # relative error below which nothing counts as a mistake
SPEEDUPS = (1.5, 2.0, 3.0)
SIBLINGS = 0.3  # relative distance of two latents at one step below which a mistake does not count
FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
PLAIN: dict[str, Callable[[], Any]] = {
    "Euler": lambda: FlowMatchEulerDiscreteScheduler(shift=3.0),
    "UniPC": lambda: UniPCMultistepScheduler(**FLOW),
    "DPM++": lambda: DPMSolverMultistepScheduler(**FLOW),
    "Heun": lambda: FlowMatchHeunDiscreteScheduler(shift=3.0),
}
NOISY: dict[str, Callable[[], Any]] = {
    "stochastic Euler": lambda: FlowMatchEulerDiscreteScheduler(shift=3.0, stochastic_sampling=True),
    "LCM": lambda: FlowMatchLCMScheduler(shift=3.0),
    "DPM++ SDE": lambda: DPMSolverMultistepScheduler(**FLOW, algorithm_type="sde-dpmsolver++"),
    "SA-Solver": lambda: SASolverScheduler(**FLOW),
}
GUIDED: dict[str, Callable[[int, int], bool]] = {
    "always": lambda step, steps: True,
    "never": lambda step, steps: False,
    "first half": lambda step, steps: step < steps // 2,
    "from the third step on": lambda step, steps: step > 2,
    "every second step": lambda step, steps: step % 2 == 0,
    "all but one": lambda step, steps: step != steps // 2,
}


class Block(nn.Module):
    def forward(self, hidden_states: Tensor, text: Tensor, temb: Tensor, rope: Any = None) -> Tensor:
        self.ran = True
        return hidden_states


class WanTransformer3DModel(nn.Module, CacheMixin):
    """The exact velocity of data that are Gaussian around the picture in the text."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, return_dict: bool = True
    ) -> tuple[Tensor]:
        latent = hidden_states
        for block in self.blocks:
            latent = block(latent, encoder_hidden_states, timestep)
        return (velocity(latent, float(timestep.max()) / 1000, encoder_hidden_states),)


def velocity(latent: Tensor, sigma: float, text: Tensor) -> Tensor:
    picture = text.view(len(text), *SHAPE[1:])[: len(latent), :, : latent.shape[2]]
    signal = 1 - sigma
    clean = picture + signal * SPREAD**2 / (signal**2 * SPREAD**2 + sigma**2) * (latent - signal * picture)
    return (latent - clean) / max(sigma, 1e-4)


@dataclass(frozen=True)
class Plan:
    """One loop: its scheduler, steps and guidance, and what disturbs it."""

    scheduler: str
    steps: int
    speedup: float
    order: int
    guided: str = "always"
    seed: int = 0
    windows: tuple[tuple[int, int], ...] = ((0, 4),)
    rolls: str = "no"
    named: bool = False
    one_batch: bool = False
    copies: bool = False
    stops_at: int | None = None
    texts: int = 0
    blind: bool = False  # the plugin does not know the scheduler
    full: tuple[int, ...] = ()  # computes these steps instead of a schedule's

    @property
    def key(self) -> tuple[Any, ...]:
        """What an undisturbed loop has in common with this one."""
        return self.scheduler, self.steps, self.guided, self.one_batch, self.blind


@dataclass
class Seen:
    """A predicted call: its loop, window, branch and step, its error, that from its own full steps, and its latent."""

    loop: int
    window: int
    branch: str
    step: int
    error: float
    own_error: float
    latent: Tensor

    def __str__(self) -> str:
        where = f"loop {self.loop} window {self.window} {self.branch} step {self.step}"
        return f"{where}: error {self.error:.3f}"


@dataclass
class Watch:
    """Calls the transformer and keeps the errors of predicted calls and the latents of all.

    Attributes:
        full: the last two full steps by loop, window, branch and shift of the latent.
        drawn: by loop, the latest step into which noise was drawn; later full steps may be reused as they are, if the
            plugin does not know the scheduler.
    """

    model: WanTransformer3DModel
    draws_noise: bool
    blind: bool = False
    predicted: list[Seen] = field(default_factory=list)
    computed: dict[tuple[int, int, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    latents: dict[int, list[tuple[tuple[int, int], Tensor]]] = field(default_factory=lambda: defaultdict(list))
    full: dict[tuple[int, int, str, int], tuple[CachedStep, ...]] = field(default_factory=lambda: defaultdict(tuple))
    drawn: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def __call__(
        self, loop: int, window: int, branch: str, step: int, shift: int, latent: Tensor, t: Tensor, text: Tensor
    ) -> Tensor:
        """The output; `shift` says how far the latent is rolled, because full steps of other shifts are not its own."""
        last, place, sigma = self.model.blocks[-1], (loop, window, branch, shift), float(t.max()) / 1000
        last.ran = False
        output: Tensor = self.model(latent, t, text, return_dict=False)[0]
        self.latents[step].append(((loop, window), latent))
        exact = velocity(latent, sigma, text)

        def error(predicted: Tensor) -> float:
            return float((predicted - exact).norm() / exact.norm())

        if last.ran:
            clean = latent - sigma * exact  # does not depend on the noise
            self.full[place] = (*self.full[place][-1:], CachedStep(step, sigma, exact, clean))
            self.computed[place[:3]].add(step)
        else:
            alike = [one for one in self.full[place] if one.tensor.shape == exact.shape]
            errors = []
            if self.draws_noise:
                cleans = tuple(one._replace(tensor=one.side) for one in alike)
                errors = [error((latent - predict(cleans, sigma, order)) / sigma) for order in (0, 1) if alike]
            if not self.draws_noise or self.blind or loop:
                alike = [one for one in alike if one.step >= self.drawn[loop]]
                errors += [error(predict(tuple(alike), sigma, order)) for order in (0, 1) if alike]
            self.predicted.append(Seen(loop, window, branch, step, error(output), max(errors, default=0.0), latent))
        return output


def _roll_memory(scheduler: Any, shift: int) -> None:
    """Roll the latents and outputs of earlier steps that a scheduler keeps, or its steps would mix both latents."""
    for name, kept in list(vars(scheduler).items()):
        parts = [
            part.roll(shift, -1) if isinstance(part, Tensor) and part.shape == SHAPE else part
            for part in (kept if isinstance(kept, list) else [kept])
        ]
        setattr(scheduler, name, parts if isinstance(kept, list) else parts[0])


def _draws_now(scheduler: Any, *step: Any) -> bool:
    """Whether this step of the scheduler depends on the generator."""
    results = [
        copy.deepcopy(scheduler).step(*step, return_dict=False, generator=torch.Generator().manual_seed(seed))[0]
        for seed in (0, 1)
    ]
    return not torch.equal(*results)


def run_loop(index: int, plan: Plan, call: Watch, scheduler: Any) -> Iterator[None]:
    """Denoise as planned, and hand over after every step."""
    generator = torch.Generator().manual_seed(plan.seed)
    pictures = torch.randn(2, 1, 1, 4 * 4 * 8 * 8, generator=torch.Generator().manual_seed(10**6 + plan.texts))
    texts = {"cond": pictures[0], "uncond": pictures[1]}
    scheduler.set_timesteps(plan.steps)
    latent = torch.randn(SHAPE, generator=generator)
    guided, model, shift = GUIDED[plan.guided], call.model, 0
    for step, t in enumerate(scheduler.timesteps):
        if step == plan.stops_at:
            return
        if plan.rolls == "every step" or (plan.rolls == "once" and step == plan.steps // 2):
            by = int(torch.randint(1, 8, (1,), generator=generator))
            shift, latent = (shift + by) % 8, latent.roll(by, -1)
            _roll_memory(scheduler, by)
        total, count = torch.zeros(SHAPE), torch.zeros(4)
        for window, (low, high) in enumerate(plan.windows):
            part = latent[:, :, low:high]
            given = t.clone()[None] if plan.copies else t.expand(1)

            def ask(branch: str, latent: Tensor, text: Tensor, place: Any = (step, window, shift, given)) -> Tensor:
                step, window, shift, given = place
                where = {"step_index": step, "num_inference_steps": len(scheduler.timesteps)}
                where["sigma"] = float(scheduler.sigmas[step])
                with model.cache_context(branch, **where) if plan.named else nullcontext():
                    return call(index, window, branch, step, shift, latent, given.expand(len(latent)), text)

            words = {name: text.clone() if plan.copies else text for name, text in texts.items()}
            if not guided(step, plan.steps):
                output = ask("cond", part, words["cond"])
            elif plan.one_batch:
                both = ask("both", torch.cat([part, part]), torch.cat([words["uncond"], words["cond"]]))
                output = both[:1] + 2.0 * (both[1:] - both[:1])
            else:
                conditional, other = ask("cond", part, words["cond"]), ask("uncond", part, words["uncond"])
                output = other + 2.0 * (conditional - other)
            total[:, :, low:high] += output
            count[low:high] += 1
        mixed = total / count.clamp_min(1).view(1, 1, 4, 1, 1)
        more = {"generator": generator} if plan.scheduler in NOISY else {}
        if more and _draws_now(scheduler, mixed, t, latent):
            call.drawn[index] = step + 1
        latent = scheduler.step(mixed, t, latent, return_dict=False, **more)[0]
        yield


def draw(rng: random.Random) -> list[Plan]:
    """One to three loops that take turns."""
    names = list(PLAIN) * 3 + list(NOISY)
    shared = Plan(
        scheduler=rng.choice(names),
        steps=rng.choice((12, 20)),
        speedup=rng.choice(SPEEDUPS),
        order=1,
        guided=rng.choice(list(GUIDED)),
        one_batch=rng.random() < 0.25,
        named=(named := rng.random() < 0.4),
        blind=named and rng.random() < 0.5,
        copies=rng.random() < 0.3,
    )
    windows = rng.choice((((0, 4),), ((0, 4),), ((0, 2), (2, 4)), ((0, 3), (1, 4)), ((0, 2), (1, 3), (2, 4))))
    plans = []
    for index in range(rng.choice((1, 1, 2, 2, 3))):
        alone = rng.random() < 0.5
        plans.append(
            replace(
                shared,
                seed=rng.randrange(10**6),
                texts=rng.randrange(3),
                windows=windows if not alone else ((0, 4),),
                rolls=rng.choice(("no", "no", "no", "no", "every step", "once")),
                stops_at=rng.randrange(1, shared.steps) if index and rng.random() < 0.5 else None,
            )
        )
    return plans


def run(plans: list[Plan], rng: random.Random) -> Watch:
    """Run loops that take turns at random on one accelerated transformer; each has a scheduler of its own."""
    model = WanTransformer3DModel()
    watch = Watch(model, plans[0].scheduler in NOISY, plans[0].blind)
    kinds = PLAIN | NOISY
    schedulers = [kinds[plan.scheduler]() for plan in plans]
    policy = FixedSteps(plans[0].full) if plans[0].full else general_schedule(plans[0].speedup)
    config = GalaxyDiTConfig(policy, warmup=0.1, order=plans[0].order)
    own = None if plans[0].blind else schedulers[0]
    with torch.no_grad(), galaxydit.accelerate(model, config=config, scheduler=own):
        loops = [
            run_loop(index, plan, watch, scheduler)
            for index, (plan, scheduler) in enumerate(zip(plans, schedulers, strict=True))
        ]
        while loops:
            loop = rng.choice(loops)
            for _ in range(rng.choice((1, 1, 2, 5))):
                if next(loop, loop) is loop:
                    loops.remove(loop)
                    break
    return watch


class Undisturbed:
    """Worst error by step, and predicted calls by speedup, of loops of the same kind that nothing disturbs."""

    def __init__(self) -> None:
        self._worst: dict[tuple[Any, ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._ran: set[tuple[Any, ...]] = set()
        self._reused: dict[tuple[Any, ...], int] = {}

    def limit(self, plan: Plan, step: int) -> float:
        """Worst error at this step over the loops until now."""
        return self._worst[plan.key][step]

    def run(self, plan: Plan, full: tuple[int, ...]) -> None:
        """Add loops that compute these steps, of both orders and several seeds."""
        if (plan.key, full) in self._ran:
            return
        self._ran.add((plan.key, full))
        for order in (0, 1):
            for seed in range(3):
                alone = replace(self._alone(plan), full=full, order=order, seed=seed, texts=seed)
                for seen in run([alone], random.Random(0)).predicted:
                    self._worst[plan.key][seen.step] = max(self.limit(plan, seen.step), seen.error)

    def reused(self, plan: Plan) -> int:
        """Number of predicted calls of this loop's kind and speedup."""
        key = (*plan.key, plan.speedup)
        if key not in self._reused:
            self._reused[key] = len(run([self._alone(plan)], random.Random(0)).predicted)
        return self._reused[key]

    @staticmethod
    def _alone(plan: Plan) -> Plan:
        one_batch, blind = plan.one_batch, plan.blind
        return Plan(
            plan.scheduler, plan.steps, plan.speedup, 1, plan.guided, one_batch=one_batch, blind=blind, named=blind
        )


@dataclass
class Tally:
    loops: int = 0
    predicted: int = 0
    mixed: int = 0
    siblings: int = 0
    expected: int = 0
    reused: int = 0
    worst: list[str] = field(default_factory=list)

    def add(self, plans: list[Plan], watch: Watch, undisturbed: Undisturbed) -> None:
        self.loops += len(plans)
        self.predicted += len(watch.predicted)
        for seen in watch.predicted:
            if seen.error <= max(2 * seen.own_error, ROUNDING):
                continue
            own, full = plans[seen.loop], tuple(sorted(watch.computed[seen.loop, seen.window, seen.branch]))
            # The plugin knows the scheduler of the first loop, and takes it for that of others with equal timesteps.
            kinds = [replace(own, blind=blind) for blind in (False, True)]
            for kind in kinds:
                undisturbed.run(kind, full)
            limit = max(undisturbed.limit(kind, seen.step) for kind in kinds)
            if seen.error > 2 * limit:
                near = any(
                    other != (seen.loop, seen.window)
                    and latent.shape == seen.latent.shape
                    and float((latent - seen.latent).norm() / seen.latent.norm()) < SIBLINGS
                    for other, latent in watch.latents[seen.step]
                )
                self.siblings += near
                self.mixed += not near
                if not near:
                    self.worst.append(f"{own} {seen} > 2 x {limit:.3f}")
        for index, plan in enumerate(plans):
            is_located = index == 0 or plan.named  # else its step is unknown, so it is computed in full with a warning
            if is_located and plan.scheduler in PLAIN and plan.stops_at is None and plan.rolls == "no":
                self.expected += undisturbed.reused(plan) * len(plan.windows)
                self.reused += sum(seen.loop == index for seen in watch.predicted)

    def __str__(self) -> str:
        share = self.reused / max(1, self.expected)
        return (
            f"{self.loops} loops, {self.predicted} predicted calls, "
            f"{self.mixed} with more than twice the error of undisturbed loops, {self.siblings} of siblings nearer "
            f"than {SIBLINGS}; without drawn noise {share:.1%} of the reuse of undisturbed loops"
        )


def run_for(seconds: float, seed: int, undisturbed: Undisturbed, most: int = 10**9) -> Tally:
    """Draw and run loops for this long, or until there are `most`."""
    tally, rng, end = Tally(), random.Random(seed), time.monotonic() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while tally.loops < most and time.monotonic() < end:
            plans = draw(rng)
            tally.add(plans, run(plans, rng), undisturbed)
    return tally


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = run_for(60 * given.minutes, given.seed, Undisturbed())
    print(result)  # noqa: T201
    print(*result.worst[:20], sep="\n")  # noqa: T201
