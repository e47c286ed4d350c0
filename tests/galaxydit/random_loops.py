"""Random denoising loops on an exact toy model: no call may be predicted from another latent's full steps.

The toy's data are Gaussian around a picture for each text, so its velocity is known at every call. A loop draws its
scheduler, steps, windows, guidance, contexts, threads, interruptions, edits of its latent and other loops in between
at random. Whatever a prediction or a correction reads of full steps has to be what this loop's own full steps gave
since its latent was last edited.

    python -m tests.galaxydit.random_loops --minutes 60
"""

import argparse
import random
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

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
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.runtime.reuse import StepReuse
from galaxydit.runtime.work import Work

SHAPE = (1, 4, 4, 8, 8)
PREDICT, KEEP = StepReuse.predict, StepReuse._keep_video
SPREAD = 0.5  # standard deviation of the data around their picture
SPEEDUPS = (1.5, 2.0, 3.0)
SIBLINGS = (1e-4, 1e-3, 0.1)  # relative distances of first latents
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
WHOLE = ((0, 4),)
WINDOWS = (WHOLE, WHOLE, ((0, 2), (2, 4)), ((0, 3), (1, 4)), ((0, 2), (1, 3), (2, 4)))
EDITS = ("no", "no", "no", "no", "no", "roll each step", "roll", "replace", "region")


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
    """One loop: its scheduler, steps and guidance, and what disturbs it.

    Attributes:
        sibling: the first latent is that of seed 0, changed by so much of its norm; None draws another one.
        windows, names_windows: of frames; whether contexts name them.
        named: contexts tell branch, step, number of steps and sigma.
        copies: conditions and timesteps are new objects in each step.
        thread: "main", "own" (one beside the main thread) or "hops" (two take turns).
        is_observed: the plugin observes its scheduler.
        full: computes these steps instead of a schedule's.
    """

    scheduler: str
    steps: int
    speedup: float
    order: int
    guided: str = "always"
    seed: int = 0
    sibling: float | None = None
    windows: tuple[tuple[int, int], ...] = WHOLE
    names_windows: bool = False
    edits: str = "no"
    named: bool = False
    one_batch: bool = False
    copies: bool = False
    stops_at: int | None = None
    texts: int = 0
    thread: str = "main"
    is_observed: bool = True
    full: tuple[int, ...] = ()

    @property
    def is_declared(self) -> bool:
        """Whether all that the plugin needs is told, if nothing else uses the transformer."""
        tells = self.is_observed or self.named
        return tells and self.thread != "hops" and (len(self.windows) == 1 or self.names_windows)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is drawn, edited or interrupted."""
        return self.scheduler in PLAIN and self.edits == "no" and self.stops_at is None


Place = tuple[int, int, str]
"""Loop, window and branch."""


@dataclass
class Watch:
    """Calls the transformer, and checks what every prediction is made from.

    Attributes:
        own: tensors of full steps that the plugin kept, by place, since the last edit.
        predicted: predicted calls by loop. foreign: texts of predictions from something else.
    """

    model: WanTransformer3DModel
    predicted: Counter[int] = field(default_factory=Counter)
    foreign: list[str] = field(default_factory=list)
    own: dict[Place, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    asking: Place = (0, 0, "")

    def __call__(self, place: Place, latent: Tensor, t: Tensor, text: Tensor) -> Tensor:
        last = self.model.blocks[-1]
        last.ran = False
        self.asking = place
        output: Tensor = self.model(latent, t, text, return_dict=False)[0]
        if not last.ran:
            self.predicted[place[0]] += 1
        return output

    def keep(self, reuse: StepReuse, work: Work, video: int, rows: Tensor) -> None:
        """The plugin keeps a full step of the call under way."""
        self.own[self.asking].append(rows)
        KEEP(reuse, work, video, rows)

    def predict(self, reuse: StepReuse, work: Work) -> Tensor:
        """The prediction of a reused or corrected step, once the full steps behind it were found among its own."""
        for video in work.videos:
            for known in work.history.steps[work.call.branch, video]:
                if all(known.tensor is not rows for rows in self.own[self.asking]):
                    self.foreign.append(f"{self.asking} step {work.call.info.step} from step {known.step}")
        return PREDICT(reuse, work)

    def edited(self, loop: int) -> None:
        for place in [place for place in self.own if place[0] == loop]:
            self.own[place].clear()


def _first_latent(plan: Plan) -> Tensor:
    drawn = torch.randn(SHAPE, generator=torch.Generator().manual_seed(plan.seed))
    if plan.sibling is None:
        return drawn
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)) + plan.sibling * drawn


def _edit(plan: Plan, step: int, latent: Tensor, scheduler: Any, generator: torch.Generator) -> Tensor | None:
    """The latent as a user changes it before a step, or None."""
    if plan.edits == "roll each step" or (plan.edits == "roll" and step == plan.steps // 2):
        by = int(torch.randint(1, 8, (1,), generator=generator))
        _roll_memory(scheduler, by)
        return latent.roll(by, -1)
    if plan.edits not in ("replace", "region") or step != plan.steps // 2:
        return None
    other = latent + 1e-3 * torch.randn(SHAPE, generator=generator)
    if plan.edits == "replace":
        return other
    return torch.cat([latent[..., :4], other[..., 4:]], dim=-1)


def _roll_memory(scheduler: Any, shift: int) -> None:
    """Roll the latents and outputs of earlier steps that a scheduler keeps, or its steps would mix both latents."""
    for name, kept in list(vars(scheduler).items()):
        parts = [
            part.roll(shift, -1) if isinstance(part, Tensor) and part.shape == SHAPE else part
            for part in (kept if isinstance(kept, list) else [kept])
        ]
        setattr(scheduler, name, parts if isinstance(kept, list) else parts[0])


def run_loop(index: int, plan: Plan, call: Watch, scheduler: Any) -> Iterator[None]:
    """Denoise as planned, and hand over after every step."""
    generator = torch.Generator().manual_seed(plan.seed + 1)
    pictures = torch.randn(2, 1, 1, 4 * 4 * 8 * 8, generator=torch.Generator().manual_seed(10**6 + plan.texts))
    texts = {"cond": pictures[0], "uncond": pictures[1]}
    scheduler.set_timesteps(plan.steps)
    latent = _first_latent(plan)
    guided, model = GUIDED[plan.guided], call.model
    for step, t in enumerate(scheduler.timesteps):
        if step == plan.stops_at:
            return
        edited = _edit(plan, step, latent, scheduler, generator) if step else None
        if edited is not None:
            latent = edited
            call.edited(index)
        total, count = torch.zeros(SHAPE), torch.zeros(4)
        for window, (low, high) in enumerate(plan.windows):
            given = t.clone()[None] if plan.copies else t.expand(1)

            def ask(branch: str, latent: Tensor, text: Tensor, place: Any = (step, window, given)) -> Tensor:
                step, window, given = place
                where: dict[str, Any] = {}
                if plan.named:
                    where = {"step_index": step, "num_inference_steps": len(scheduler.timesteps)}
                    where["sigma"] = float(scheduler.sigmas[step])
                name = f"window {window}/{branch}" if plan.names_windows else branch
                is_named = plan.named or plan.names_windows
                with model.cache_context(name, **where) if is_named else nullcontext():
                    return call((index, window, branch), latent, given.expand(len(latent)), text)

            words = {name: text.clone() if plan.copies else text for name, text in texts.items()}
            part = latent[:, :, low:high]
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
        latent = scheduler.step(mixed, t, latent, return_dict=False, **more)[0]
        yield


def draw(rng: random.Random) -> list[Plan]:
    """One to three loops that take turns."""
    shared = Plan(
        scheduler=rng.choice(list(PLAIN) * 3 + list(NOISY)),
        steps=rng.choice((12, 20)),
        speedup=rng.choice(SPEEDUPS),
        order=1,
        guided=rng.choice(list(GUIDED)),
        one_batch=rng.random() < 0.25,
        named=(named := rng.random() < 0.4),
        is_observed=not named or rng.random() < 0.5,
        copies=rng.random() < 0.3,
    )
    windows, names_windows = rng.choice(WINDOWS), rng.random() < 0.5
    are_siblings, in_threads = rng.random() < 0.4, rng.random() < 0.3
    plans = []
    for index in range(rng.choice((1, 1, 2, 2, 3))):
        plans.append(
            replace(
                shared,
                seed=rng.randrange(1, 10**6),
                sibling=rng.choice(SIBLINGS) if are_siblings else None,
                texts=0 if are_siblings else rng.randrange(3),
                windows=windows if rng.random() < 0.5 else WHOLE,
                names_windows=names_windows,
                # Without a scheduler, nothing tells which latent comes next.
                edits=rng.choice(EDITS) if shared.is_observed else "no",
                stops_at=rng.randrange(1, shared.steps) if index and rng.random() < 0.5 else None,
                thread=rng.choice(("main", "own", "hops")) if in_threads else "main",
                is_observed=shared.is_observed and (index == 0 or rng.random() < 0.5),
            )
        )
    return plans


def run(plans: list[Plan], rng: random.Random) -> Watch:
    """Run loops that take turns at random on one accelerated transformer; each has a scheduler of its own."""
    model = WanTransformer3DModel()
    watch = Watch(model)
    kinds = PLAIN | NOISY
    schedulers = [kinds[plan.scheduler]() for plan in plans]
    observed = [scheduler for plan, scheduler in zip(plans, schedulers, strict=True) if plan.is_observed]
    policy = FixedSteps(plans[0].full) if plans[0].full else general_schedule(plans[0].speedup)
    config = GalaxyDiTConfig(policy, warmup=0.1, order=plans[0].order, few_steps=0)
    main = observed[0] if observed else None
    with ExitStack() as stack:
        stack.enter_context(patch.object(StepReuse, "predict", lambda *given: watch.predict(*given)))
        stack.enter_context(patch.object(StepReuse, "_keep_video", lambda *given: watch.keep(*given)))
        stack.enter_context(galaxydit.accelerate(model, config=config, scheduler=main, schedulers=observed[1:]))
        pools = [[stack.enter_context(ThreadPoolExecutor(1)) for _ in range(_threads(plan))] for plan in plans]
        loops = []
        for index, (plan, scheduler) in enumerate(zip(plans, schedulers, strict=True)):
            loops.append(run_loop(index, plan, watch, scheduler))
        left = list(range(len(loops)))
        turns = 0
        while left:
            index = rng.choice(left)
            for _ in range(rng.choice((1, 1, 2, 5))):
                turns += 1
                if _advance(loops[index], pools[index], turns):
                    left.remove(index)
                    break
    return watch


def _threads(plan: Plan) -> int:
    return {"main": 0, "own": 1, "hops": 2}[plan.thread]


def _advance(loop: Iterator[None], pools: list[ThreadPoolExecutor], turn: int) -> bool:
    """Run one step of a loop, in one of its threads; whether it has ended."""
    if not pools:
        return _next(loop)
    return pools[turn % len(pools)].submit(_next, loop).result()


@torch.no_grad()
def _next(loop: Iterator[None]) -> bool:
    return next(loop, loop) is loop


@dataclass
class Tally:
    """What random loops showed.

    Attributes:
        foreign: predictions from another latent's full steps, with their plans.
        expected, reused: predicted calls of single loops that are declared, by an undisturbed loop and here.
        silent: runs with a loop that is not declared, and without any warning.
    """

    loops: int = 0
    predicted: int = 0
    foreign: list[str] = field(default_factory=list)
    expected: int = 0
    reused: int = 0
    silent: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    _alone: dict[Plan, int] = field(default_factory=dict)

    def add(self, plans: list[Plan], rng: random.Random) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            watch = run(plans, rng)
        said = Counter(str(each.message) for each in caught if issubclass(each.category, galaxydit.FullComputeWarning))
        self.loops += len(plans)
        self.predicted += watch.predicted.total()
        self.foreign += [f"{text} of {plans}" for text in watch.foreign]
        self.repeated += [text for text, times in said.items() if times > 1]
        if any(not plan.is_declared and plan.stops_at is None for plan in plans) and not said:
            self.silent.append(str(plans))
        if len(plans) == 1 and plans[0].is_declared and plans[0].is_plain:
            self.expected += self._undisturbed(plans[0])
            self.reused += watch.predicted[0]

    def _undisturbed(self, plan: Plan) -> int:
        alone = replace(plan, seed=1, sibling=None, texts=0, copies=False, thread="main")
        if alone not in self._alone:
            self._alone[alone] = run([alone], random.Random(0)).predicted[0]
        return self._alone[alone]

    def __str__(self) -> str:
        share = self.reused / max(1, self.expected)
        return (
            f"{self.loops} loops, {self.predicted} predicted calls, {len(self.foreign)} from another latent's full "
            f"steps; single declared loops have {share:.1%} of the reuse of undisturbed ones; {len(self.silent)} runs "
            f"with an undeclared loop and no warning; {len(self.repeated)} warnings said twice"
        )


def run_for(seconds: float, seed: int, most: int = 10**9) -> Tally:
    """Draw and run loops for this long, or until there are `most`."""
    tally, rng, end = Tally(), random.Random(seed), time.monotonic() + seconds
    while tally.loops < most and time.monotonic() < end:
        tally.add(draw(rng), rng)
    return tally


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--loops", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = run_for(60 * given.minutes, given.seed, given.loops)
    print(result)  # noqa: T201
    print(*result.foreign[:20], *result.silent[:5], *result.repeated[:5], sep="\n")  # noqa: T201
