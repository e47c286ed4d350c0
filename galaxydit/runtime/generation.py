"""One generation: the trajectories of its latents, and its report."""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.outcome import Goal
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.guidance import UNCONDITIONAL
from galaxydit.runtime.identity import CallIdentity, KnownValue
from galaxydit.runtime.scheduler_response import scheduler_response
from galaxydit.runtime.step import Noise, noise_of, sigmas_of
from galaxydit.runtime.trajectory import DISTINCT, Trajectory
from galaxydit.stopwatch import DECODED, FIRST, LAST, Stopwatch

NEW_TRAJECTORY = (
    "the latent of a step does not continue that of the step before (another window or another loop began, or the "
    "latent was rolled, replaced or resized), so nothing before it is reused"
)
MOST_STRAYS = 8  # latents of other loops that are remembered
MOST_BREAKS = 2  # steps that no latent continued into; with more, each step rolls the latent or draws noise
BROKEN = f"no latent continued into more than {MOST_BREAKS} steps (rolled, replaced, or with new noise)"


class Generation:
    """The state of one run through the denoising steps; a new object each, so that no state leaks into the next run.

    Attributes:
        first, step: the first step that runs, and the latest; `step` is -1 before the first.
        scheduler, timesteps: None if unknown; the tensor and its address in the pipeline identify the generation.
        noise, reuses_clean: whether steps draw noise; whether clean predictions are reused where they may.
        strays: latents of calls whose step is unknown, which the next latents of other loops continue.
        cannot_reuse, breaks: why no step can be reused any more, or ""; steps into which no latent continued.
        is_checked: compare each latent with the last step's, so that the host waits for the device; else comparisons
            are read before the first reused step (`is_trusted`: none failed) and in the last step.
        sigmas: noise level of each step; None where unknown.
        watch, metered: its clock; the stopwatch that reads the energy counter, its own or the caller's of the pipeline.
        text_seconds, bytes_held: text encoding before the first call; peak bytes kept between calls.
    """

    def __init__(
        self,
        call: CallIdentity,
        config: GalaxyDiTConfig,
        watch: Stopwatch,
        metered: Stopwatch | None = None,
        text_seconds: float = 0.0,
        *,
        is_checked: bool = True,
        strays: Iterable[Trajectory] = (),
    ) -> None:
        self.config, self.watch, self.text_seconds = config, watch, text_seconds
        self.metered = metered or watch
        self.first, self.step, self.steps = call.info.step, -1, call.info.steps
        self.scheduler: Any | None = call.scheduler
        self.timesteps, self.timesteps_address = call.timesteps, call.timesteps_address
        self.names_branches, self.thread, self.finished = call.branch is not None, threading.get_ident(), False
        self.noise, self.sigmas = noise_of(call.scheduler), sigmas_of(call.scheduler, call.info.steps)
        self.is_checked, self.is_trusted = is_checked, False
        self.reuses_clean, self.cannot_reuse = True, ""
        self.breaks: set[int] = set()
        self.trajectories: list[Trajectory] = []
        self.strays = deque(strays, maxlen=MOST_STRAYS)
        self.calls: list[CallRecord] = []
        self.notes: list[str] = []
        self.goal: Goal | None = None
        self.guidance: dict[str, float] = {}  # scale of the first call by component
        self.bytes_held = 0

    @property
    def is_metered_here(self) -> bool:
        return self.metered is self.watch

    @property
    def order(self) -> int:
        """Order of predictions: 0 under drawn noise, where a slope would be the difference of two draws."""
        return 0 if self.noise is Noise.DRAWN else self.config.order

    @cached_property
    def response(self) -> tuple[float, ...] | None:
        """`scheduler_response`, measured when it is first read; None without sigmas."""
        return None if self.sigmas is None else scheduler_response(self.scheduler, self.sigmas, self.first)

    def report(self) -> Report:
        energy, decoded = self.metered.energy(), self.watch.seconds(FIRST, DECODED)
        return Report(
            config=self.config,
            steps=self.steps,
            calls=tuple(self.calls),
            notes=tuple(self.notes),
            bytes_held=self.bytes_held,
            denoise_seconds=self.watch.seconds(FIRST, LAST),
            end_to_end_seconds=None if decoded is None else self.text_seconds + decoded,
            energy_joules=energy and replace(energy, end_to_end=None if decoded is None else energy.end_to_end),
            goal=self.goal,
        )

    def holds_now(self) -> int:
        return sum(state.bytes_held() for one in self.trajectories for state in one.states.values())

    def is_under_way(self, pipe: Any, scheduler: Any | None) -> bool:
        """Whether it has not ended, and the scheduler has begun no other. A bare transformer may not show its end."""
        is_latest = self.timesteps is not None and self.timesteps is getattr(scheduler, "timesteps", None)
        return is_latest and not self.finished and (self.step < self.steps - 1 or not isinstance(pipe, nn.Module))

    def fits(self, call: CallIdentity) -> bool:
        """Whether a call may belong to this generation, by all but its latent and step."""
        addresses = {self.timesteps_address, call.timesteps_address}
        if self.finished or (None not in addresses and len(addresses) > 1):
            return False
        if None in addresses and self.thread != threading.get_ident():
            return False
        same = self.steps == call.info.steps and self.names_branches == (call.branch is not None)
        return same and call.timesteps is self.timesteps

    def find(self, call: CallIdentity, group: Any | None) -> Trajectory | None:
        """The trajectory that a call continues, or None; `group` is the process group of the tokens."""
        near = [trajectory for trajectory in self.trajectories if trajectory.awaits(call)]
        if near and (call.shares_latent or len(near) == 1):
            return near[-1]
        near = near or [trajectory for trajectory in self.trajectories if trajectory.precedes(call)]
        if not near:
            return None
        is_unchecked = not self.is_checked and len(self.trajectories) == 1
        if not is_unchecked and self.noise is not Noise.DRAWN:  # drawn noise hides what is near
            near += [stray for stray in self.strays if stray.is_like(call)]
        measured = torch.stack([trajectory.measure(call, group) for trajectory in near])
        if is_unchecked:
            near[0].pending.append((measured[0], near[0].move_to(call, self.first)))
            return near[0]
        distances: list[list[float]] = measured.tolist()
        order = sorted(range(len(near)), key=lambda index: distances[index][0])
        nearest = near[order[0]]
        if nearest.step == call.info.step:
            return nearest
        is_rivalled = len(order) > 1 and distances[order[1]][0] < DISTINCT**2 * distances[order[0]][0]
        if nearest in self.strays or is_rivalled:
            return None
        continued = nearest.continues(distances[order[0]], nearest.move_to(call, self.first), self.noise)
        return nearest if continued else None

    def holds(self, call: CallIdentity) -> bool:
        """Whether a call that continues no trajectory begins another one here, and no new generation."""
        return call.info.step > self.first or call.info.step == self.step

    def begin(self, call: CallIdentity) -> tuple[Trajectory, bool]:
        """A new trajectory that begins with a call, as fast as the others, with the branches of their last steps; and
        whether a latent broke off there."""
        step = call.info.step
        is_late = step > self.first + 2  # earlier, the outputs of some models move a latent far
        is_window = any(one.step == step for one in self.trajectories)
        self.is_checked = self.is_checked or is_window or is_late
        if is_late or is_window:
            self.withdraw_promise("the PSNR of windows and of replaced latents was not verified")
        if step > self.first:
            self.breaks.add(step)
        if len(self.breaks) > MOST_BREAKS:
            self.cannot_reuse, is_late = self.cannot_reuse or BROKEN, False
        speeds = [(0.0, 0.0), *((one.speed, one.stride) for one in self.trajectories if step - 1 <= one.step <= step)]
        speed, stride = map(max, zip(*speeds, strict=True))
        begun = Trajectory(KnownValue(call.latent, copies=True), speed=speed, stride=stride)
        if self.trajectories:
            latest = self.trajectories[-1]
            begun.seen.extend(list(latest.seen)[: -1 if latest.step == step else None])
        self.trajectories.append(begun)
        return begun, is_late

    def withdraw_promise(self, why: str) -> None:
        """Make the expected PSNR unknown, because a verification holds only for what was verified."""
        if self.goal is not None:
            self.goal = self.goal.unverified(why)

    def changed_guidance(self, call: CallIdentity) -> str:
        """Why the guidance of a call is not what its scale said when the generation began, else ""."""
        scale = self.guidance.setdefault(call.component, call.guidance_scale)
        if call.guidance_scale != scale:
            return "the guidance scale changed during the generation, and the profile was measured at a constant one"
        if call.branch == UNCONDITIONAL and call.conditions.get("guidance") is not None:
            return "guidance has a second branch beside the embedded scale (true_cfg_scale), which is not told"
        return ""

    def end(self, trajectory: Trajectory) -> None:
        trajectory.release()
        self.trajectories.remove(trajectory)

    def is_continuous(self, trajectory: Trajectory, since: int) -> bool:
        """Whether each latent after step `since` continued the one before, by the comparisons not read yet."""
        pending, trajectory.pending = trajectory.pending, []
        if not pending:
            return True
        measured = torch.stack([numbers for numbers, _ in pending]).tolist()
        moves = [(numbers, move) for numbers, (_, move) in zip(measured, pending, strict=True)]
        if self.noise is Noise.POSSIBLE:  # its draws may move a latent far, but not as far as another latent is
            since = max(since, self.first + 2)
            return all(numbers[0] <= numbers[1] or move.step <= since for numbers, move in moves)
        continued = [trajectory.continues(*each, self.noise) or each[1].step <= since for each in moves]
        trajectory.is_certain = True  # the pipeline's own loop is under way
        return all(continued)

    def release(self) -> None:
        for trajectory in self.trajectories:
            trajectory.release()
        self.trajectories.clear()
        self.strays.clear()
        self.finished = True
