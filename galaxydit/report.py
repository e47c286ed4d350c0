"""The report of one generation: what was computed, what was reused, and why.

A sample is one video of the batch. A proxy is a cheap tensor whose change decides about reuse (`galaxydit.proxies`).
"""

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from galaxydit.config import GalaxyDiTConfig
from galaxydit.energy import Energy
from galaxydit.outcome import Goal, headline
from galaxydit.policies.policy import Reason
from galaxydit.policies.threshold import Threshold

COMPUTED, REUSED, SIGNAL = "#1f6f8b", "#f2a541", "#444444"


@dataclass(frozen=True)
class CallRecord:
    """One transformer call. Where each sample of a batch has its own decision, one record for each sample of the call.

    Attributes:
        step: index of the step, from 0.
        sigma: noise level of the step.
        transformer: component of the pipeline, such as "transformer" or "transformer_2".
        branch: guidance branch, as the pipeline names it ("cond", "uncond"); "call 0", "call 1" if it names none.
        reused: whether the call was reused instead of computed.
        reason: why the call was computed or reused.
        distance: distance of the proxy since the previous step (`Proxy.distance`); None where it was not measured.
        accumulated: sum of the distances since the last full step, as the policy counts them; None where `distance` is
            None.
        blocks_run: number of blocks that ran; a block that was left half way counts by its share.
        blocks: number of blocks that run without the plugin.
        expected_error: expected relative error of the step's prediction; None where it is unknown.
        sample: index of the sample in the batch; 0 where one decision serves the whole batch.
        rows: number of batch rows of the call, or of its sample, such as 2 for guidance in one batch.
    """

    step: int
    sigma: float
    transformer: str
    branch: str
    reused: bool
    reason: Reason
    distance: float | None
    accumulated: float | None
    blocks_run: float
    blocks: int
    expected_error: float | None = None
    sample: int = 0
    rows: int = 1


@dataclass(frozen=True)
class Report:
    """One generation: what was computed, what was reused and what it took.

    Attributes:
        config: the settings of the plugin.
        steps: number of denoising steps that the scheduler plans; `steps_run` of them ran.
        calls: every transformer call in order.
        notes: sentences on what the plugin could not do, and on how the generation differs from the conditions under
            which its profile was calibrated.
        bytes_held: peak bytes that the plugin kept between calls.
        denoise_seconds: seconds from the start of the first transformer call to the end of the last call so far; None
            until a call has ended.
        end_to_end_seconds: seconds of text encoding before the first transformer call, plus seconds from this call to
            the end of the VAE's decoding. All text encoding since the previous generation counts, also for other
            pipelines. None where nothing was decoded after the last step, as with a bare transformer.
        energy_joules: joules of denoising and from end to end, from the devices' energy counters; None without a
            counter (`galaxydit.energy.meter_of`).
        goal: the request of the user, such as a speedup or a PSNR; None if the user passed a `GalaxyDiTConfig`.
        plain_seconds: `denoise_seconds` of the same generation without the plugin; None unless the user measured it and
            set it with `dataclasses.replace`.
    """

    config: GalaxyDiTConfig
    steps: int
    calls: tuple[CallRecord, ...]
    notes: tuple[str, ...]
    bytes_held: int
    denoise_seconds: float | None
    end_to_end_seconds: float | None
    energy_joules: Energy | None = None
    goal: Goal | None = None
    plain_seconds: float | None = None

    @property
    def guard(self) -> tuple[()]:
        """Deprecated and empty: `notes` says where predictions failed."""
        warnings.warn("galaxydit: Report.guard is deprecated; read Report.notes", DeprecationWarning, stacklevel=2)
        return ()

    @property
    def compute_fraction(self) -> float:
        """Number of blocks that ran divided by the number that run without the plugin, over all samples; in [0, 1], and
        1 before the first call.
        """
        return _compute_fraction(self.calls)

    @property
    def compute_fractions(self) -> dict[int, float]:
        """`compute_fraction` (blocks that ran / blocks that run without the plugin) by index of the sample in the
        batch; only index 0 if one decision served the batch.
        """
        samples = sorted({call.sample for call in self.calls})
        return {index: _compute_fraction([call for call in self.calls if call.sample == index]) for index in samples}

    @property
    def reused_steps(self) -> int:
        """Number of steps in which every branch of every sample was reused."""
        computed = {call.step for call in self.calls if not call.reused}
        return self.steps_run - len(computed)

    @property
    def computed_steps(self) -> tuple[tuple[int, Reason], ...]:
        """Pairs of step and reason for the steps in which a call was computed.

        A step occurs several times if its calls were computed for several reasons.
        """
        return tuple(dict.fromkeys((call.step, call.reason) for call in self.calls if not call.reused))

    @property
    def steps_run(self) -> int:
        """Number of steps that ran. It is less than `steps` for a video-to-video generation, which may begin in the
        middle of the schedule, and for a generation that was abandoned or interrupted by another generation.
        """
        return len({call.step for call in self.calls})

    def to_dict(self) -> dict[str, Any]:
        """The fields of the report by name, as plain data for JSON, and two numbers: `compute_fraction` and
        `reused_steps`.

        Reasons become their names, NaN and infinities None, other values that JSON lacks text. The
        entry `["config"]["policy"]` has the fields of the policy, or its "text" if it is no dataclass, and the "name"
        of its class.
        """
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), default=_plain), parse_constant=lambda _: None)
        policy = data["config"]["policy"]  # a text where it is no dataclass
        fields = policy if isinstance(policy, dict) else {"text": policy}
        data["config"]["policy"] = fields | {"name": type(self.config.policy).__name__}
        return data | {"compute_fraction": self.compute_fraction, "reused_steps": self.reused_steps}

    def save(self, path: str | Path) -> None:
        """Write `to_dict()` as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")

    def __str__(self) -> str:
        """A few lines: `galaxydit.outcome.headline`, the number of reused steps, seconds, joules and memory, why steps
        were computed, and the notes.
        """
        taken = [
            f"{name} {seconds:.2f} s"
            for seconds, name in ((self.denoise_seconds, "denoising"), (self.end_to_end_seconds, "end to end"))
            if seconds is not None
        ]
        if self.energy_joules is not None:
            measured = ((self.energy_joules.denoise, "denoising"), (self.energy_joules.end_to_end, "end to end"))
            taken += [f"{name} {joules:,.0f} J" for joules, name in measured if joules is not None]
        lines = [
            f"{headline(self)}.",
            f"{self.reused_steps} of {self.steps_run} steps reused"
            + (f"; {self.steps_run} of {self.steps} steps ran" if self.steps_run < self.steps else ""),
            ", ".join([*taken, f"at most {self.bytes_held / 2**20:.2f} MiB cached"]),
        ]
        if len(fractions := self.compute_fractions) > 1:
            lines.append("compute fraction by sample: " + ", ".join(f"{value:.3f}" for value in fractions.values()))
        reasons = Counter(reason for _, reason in self.computed_steps)
        lines += ["Steps were computed because of:"] if reasons else []
        lines += [f"  - {reason.value} ({count} step{'s' * (count > 1)})" for reason, count in reasons.most_common()]
        joules = [self.energy_joules.note] if self.energy_joules and self.energy_joules.note else []
        return "\n".join([*lines, *(f"Note: {note}." for note in (*self.notes, *joules))])

    def plot(self, path: str | Path | IO[bytes]) -> None:
        """Draw the decisions over the steps to an image file, which is given by its path or as an open binary file.

        Each branch of each sample has a row of cells, dark where the call was computed and light where it was reused.
        If distances were measured, a curve below shows `accumulated`, the proxy's distance since the last full step.
        """
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

        rows = list(dict.fromkeys((call.transformer, call.branch, call.sample) for call in self.calls))
        signal = [call for call in self.calls if call.accumulated is not None and call.accumulated < float("inf")]
        figure = Figure(figsize=(10, 1.6 + 0.4 * len(rows) + (2.0 if signal else 0)), layout="constrained")
        heights = [0.4 * len(rows) + 0.2] + ([2.0] if signal else [])
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        for call in self.calls:
            row = rows.index((call.transformer, call.branch, call.sample))
            axes[0].bar(call.step, 0.86, 0.92, row - 0.43, color=REUSED if call.reused else COMPUTED)
        samples = sorted({sample for _, _, sample in rows})
        several = len({transformer for transformer, _, _ in rows}) > 1
        labels = [
            (f"{name} " if several else "") + branch + (f" sample {sample}" if len(samples) > 1 else "")
            for name, branch, sample in rows
        ]
        axes[0].set_yticks(range(len(rows)), labels)
        axes[0].invert_yaxis()
        axes[0].set_title(
            f"{self.reused_steps} of {self.steps_run} steps reused, compute fraction {self.compute_fraction:.2f}",
            loc="left",
        )
        patches = [Patch(color=COMPUTED, label="computed"), Patch(color=REUSED, label="reused")]
        axes[0].legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
        if signal:
            for sample in samples:
                points = [(call.step, call.accumulated) for call in signal if call.sample == sample]
                axes[1].plot(*zip(*points, strict=True), color=SIGNAL, marker="o", markersize=3)
            policy = self.config.policy
            if isinstance(policy, Threshold) and policy.threshold > 0:
                axes[1].axhline(policy.threshold, color=REUSED, linestyle="--", label="threshold")
                axes[1].legend(frameon=False)
            axes[1].set_ylabel(f"{self.config.proxy}\ndistance since full step")
            axes[1].set_ylim(bottom=0)
        axes[-1].set_xlabel("step")
        axes[-1].set_xlim(-0.6, self.steps - 0.4)
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=130)

    def _repr_png_(self) -> bytes | None:
        """The plot, which notebooks show; None without calls."""
        if not self.calls:
            return None
        picture = BytesIO()
        self.plot(picture)
        return picture.getvalue()


def _compute_fraction(calls: Sequence[CallRecord]) -> float:
    blocks = sum(call.blocks * call.rows for call in calls)
    return sum(call.blocks_run * call.rows for call in calls) / blocks if blocks else 1.0


def _plain(value: Any) -> str:
    return value.name if isinstance(value, Reason) else str(value)
