"""The report of one generation: what was computed, what was reused, and why."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from galaxydit.config import GalaxyDiTConfig
from galaxydit.energy import Energy
from galaxydit.foreign_text import drawable, one_line
from galaxydit.outcome import Goal, headline
from galaxydit.policies.policy import Reason
from galaxydit.policies.threshold import Threshold
from galaxydit.report_html import COMPUTED, REUSED, report_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIGNAL = "#444444"


@dataclass(frozen=True)
class CallRecord:
    """One transformer call; one for each sample of the call where samples have their own decisions."""

    step: int  # from 0
    sigma: float
    transformer: str  # such as "transformer_2"
    branch: str  # as the pipeline names it ("cond", "uncond"), else "call 0", "call 1"
    reused: bool
    reason: Reason
    distance: float | None  # of the proxy since the previous step
    accumulated: float | None  # sum of the distances since the last full step, as the policy counts them
    blocks_run: float  # a block left half way counts by its share
    blocks: int  # that run without the plugin
    expected_error: float | None = None  # relative, of the prediction; None if unknown
    sample: int = 0  # index in the batch; 0 where one decision serves it
    rows: int = 1  # of the batch, such as 2 for guidance in one batch


@dataclass(frozen=True)
class Report:
    """One generation: what was computed, what was reused and what it took.

    Attributes:
        steps: denoising steps that the scheduler plans; `steps_run` of them ran.
        calls: every transformer call in order.
        notes: what the plugin could not do, and how the generation differs from its profile's conditions.
        bytes_held: peak bytes that the plugin kept between calls.
        denoise_seconds: from the start of the first transformer call to the end of the last call.
        end_to_end_seconds: text encoding since the previous generation, and first call to end of decoding; None if
            nothing was decoded.
        energy_joules: of denoising and end to end; None without a counter.
        goal: None for a `GalaxyDiTConfig`.
        plain_seconds: `denoise_seconds` without the plugin, if the user sets it with `dataclasses.replace`.
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
    def compute_fraction(self) -> float:
        """Blocks run / blocks that run without the plugin, over all samples, in [0, 1]; 1 before the first call."""
        return _compute_fraction(self.calls)

    @property
    def compute_fractions(self) -> dict[int, float]:
        """`compute_fraction` by index of the sample; only index 0 if one decision served the batch."""
        samples = sorted({call.sample for call in self.calls})
        return {index: _compute_fraction([call for call in self.calls if call.sample == index]) for index in samples}

    @property
    def reused_steps(self) -> int:
        """Steps in which every branch of every sample was reused."""
        computed = {call.step for call in self.calls if not call.reused}
        return self.steps_run - len(computed)

    @property
    def computed_steps(self) -> tuple[tuple[int, Reason], ...]:
        """`(step, reason)` of the steps in which a call was computed, once for each reason."""
        return tuple(dict.fromkeys((call.step, call.reason) for call in self.calls if not call.reused))

    @property
    def steps_run(self) -> int:
        """Steps that ran; fewer than `steps` for video-to-video, and where the generation was interrupted."""
        return len({call.step for call in self.calls})

    def to_dict(self, *, calls: bool = True) -> dict[str, Any]:
        """Plain data for JSON: the fields, `compute_fraction` and `reused_steps`; `save` writes all of it.

        NaN and infinities become None; `["config"]["policy"]` has the policy's fields (else "text") and its class's
        "name". `calls=False`, for logs and responses, leaves out what grows with the steps: "calls", and lists and
        tables of the policy.
        """
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), default=_plain), parse_constant=lambda _: None)
        policy = data["config"]["policy"]  # a text where it is no dataclass
        fields = policy if isinstance(policy, dict) else {"text": policy}
        if not calls:
            del data["calls"]
            fields = {name: value for name, value in fields.items() if not isinstance(value, dict | list)}
        data["config"]["policy"] = fields | {"name": type(self.config.policy).__name__}
        return data | {"compute_fraction": self.compute_fraction, "reused_steps": self.reused_steps}

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")

    def __repr__(self) -> str:
        reached = f"{self.reused_steps} of {self.steps_run} steps reused, compute fraction {self.compute_fraction:.3f}"
        seconds = "" if self.denoise_seconds is None else f", denoising {self.denoise_seconds:.2f} s"
        notes = f", {len(self.notes)} note{'s' * (len(self.notes) > 1)}" if self.notes else ""
        return f"<Report: {reached}{seconds}{notes}>"

    def __str__(self) -> str:
        """`galaxydit.outcome.headline`, what it took, why steps were computed, and the notes."""
        reused = f"{self.reused_steps} of {self.steps_run} steps reused"
        if self.steps_run < self.steps:
            reused += f"; {self.steps_run} of {self.steps} steps ran"
        lines = [f"{headline(self)}.", reused, self.taken]
        fractions = self.compute_fractions
        if len(fractions) > 1:
            lines.append("compute fraction by sample: " + ", ".join(f"{value:.3f}" for value in fractions.values()))
        reasons = Counter(reason for _, reason in self.computed_steps)
        if reasons:
            lines.append("Steps were computed because of:")
        for reason, count in reasons.most_common():
            lines.append(f"  - {reason.value} ({count} step{'s' * (count > 1)})")
        lines += [f"Note: {note}." for note in self.all_notes]
        return "\n".join(map(one_line, lines))

    @property
    def all_notes(self) -> tuple[str, ...]:
        """`notes`, and that of the energy counter."""
        energy = self.energy_joules
        return (*self.notes, energy.note) if energy is not None and energy.note else self.notes

    @property
    def taken(self) -> str:
        """Seconds and joules that are known, and the peak of what the plugin kept."""
        taken = []
        for seconds, part in ((self.denoise_seconds, "denoising"), (self.end_to_end_seconds, "end to end")):
            if seconds is not None:
                taken.append(f"{part} {seconds:.2f} s")
        if (energy := self.energy_joules) is not None:
            for joules, part in ((energy.denoise, "denoising"), (energy.end_to_end, "end to end")):
                if joules is not None:
                    taken.append(f"{part} {joules:,.0f} J")
        taken.append(f"at most {self.bytes_held / 2**20:.2f} MiB cached")
        return ", ".join(taken)

    def plot(self, path: str | Path | IO[bytes] | None = None) -> "Figure":
        """Draw each branch's calls, dark if computed, and the proxy's `accumulated` distance.

        Returns the matplotlib figure, and writes it to an image file if `path` names one; nothing is displayed.
        """
        from matplotlib.figure import Figure

        rows = len(self._plot_rows())
        heights = [0.4 * rows + 0.2]
        if self._distances():
            heights.append(2.0)
        figure = Figure(figsize=(10, 1.4 + sum(heights)), layout="constrained")
        panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        self._draw_calls(panels[0])
        if self._distances():
            self._draw_distances(panels[1])
        panels[-1].set_xlabel("step")
        panels[-1].set_xlim(-0.6, self.steps - 0.4)
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
        if path is not None:
            figure.savefig(path, dpi=130)
        return figure

    def _plot_rows(self) -> list[tuple[str, str, int]]:
        """Transformer, branch and sample of each row of the plot, in the order of the calls."""
        return list(dict.fromkeys((call.transformer, call.branch, call.sample) for call in self.calls))

    def _distances(self) -> list[tuple[int, int, float]]:
        """`(sample, step, distance)` of the calls whose accumulated distance is finite."""
        known = []
        for call in self.calls:
            if call.accumulated is not None and call.accumulated < float("inf"):
                known.append((call.sample, call.step, call.accumulated))
        return known

    def _draw_calls(self, axes: "Axes") -> None:
        from matplotlib.patches import Patch

        rows = self._plot_rows()
        for call in self.calls:
            row = rows.index((call.transformer, call.branch, call.sample))
            axes.bar(call.step, 0.86, 0.92, row - 0.43, color=REUSED if call.reused else COMPUTED)
        has_transformers = len({transformer for transformer, _, _ in rows}) > 1
        has_samples = len({sample for _, _, sample in rows}) > 1
        labels = []
        for transformer, branch, sample in rows:
            label = f"{transformer} {branch}" if has_transformers else branch
            if has_samples:
                label += f" sample {sample}"
            labels.append(drawable(label))
        axes.set_yticks(range(len(rows)), labels)
        axes.invert_yaxis()
        reused = f"{self.reused_steps} of {self.steps_run} steps reused"
        axes.set_title(f"{reused}, compute fraction {self.compute_fraction:.2f}", loc="left")
        patches = [Patch(color=COMPUTED, label="computed"), Patch(color=REUSED, label="reused")]
        axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)

    def _draw_distances(self, axes: "Axes") -> None:
        samples = sorted({sample for _, _, sample in self._plot_rows()})
        for sample in samples:
            steps = [step for of_sample, step, _ in self._distances() if of_sample == sample]
            distances = [distance for of_sample, _, distance in self._distances() if of_sample == sample]
            axes.plot(steps, distances, color=SIGNAL, marker="o", markersize=3)
        policy = self.config.policy
        if isinstance(policy, Threshold) and policy.threshold > 0:
            axes.axhline(policy.threshold, color=REUSED, linestyle="--", label="threshold")
            axes.legend(frameon=False)
        axes.set_ylabel(f"{drawable(self.config.watched.name)}\ndistance since full step")
        axes.set_ylim(bottom=0)

    def _repr_html_(self) -> str:
        """A table and the steps, which notebooks show."""
        return report_html(self)


def _compute_fraction(calls: Sequence[CallRecord]) -> float:
    blocks = sum(call.blocks * call.rows for call in calls)
    return sum(call.blocks_run * call.rows for call in calls) / blocks if blocks else 1.0


def _plain(value: Any) -> str:
    return value.name if isinstance(value, Reason) else str(value)
