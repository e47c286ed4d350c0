"""Draws the picture of quality over speed with the peers: `python -m galaxydit.eval.quality_over_speed`.

Its points are settings that were measured by protocol 2, on the captions that all methods finished.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.eval.compared import GENERAL, OURS, PEER, RESULTS, kind_of, label
from galaxydit.eval.methods.method_registry import CONTROL
from galaxydit.eval.protocol_data import (
    FIRST,
    FIRST_PEERS,
    FLOAT32,
    PLAIN_CONTROLS,
    REPEATED,
    SPEEDUPS,
    ProtocolData,
    protocol_data,
)
from galaxydit.eval.protocol_tables import other_methods
from galaxydit.foreign_text import drawable
from galaxydit.pipelines.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT_GREY,
    MARKERS,
    ORANGE,
    PINK,
    SKY,
    draw_interval,
    drawn,
    spread_out,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "quality-over-speed.png"
DATA_KEY = "galaxydit data"  # of a tEXt chunk: the digest of what is drawn
KNOWN = ("TaylorSeer", "DiCache", "MagCache", "EasyCache", "TeaCache", "FirstBlockCache", "fewer steps")
"""Methods that readers know, which are always named; the strongest control and peer at each speedup are named, too."""

COLOURS = (BLUE, GREEN, PINK, SKY, "#5d4fc4", "#00695c", "#6a994e", "#9c6b98", "#3b3f8f", "#8fa8c9")
MARGIN = 1.25  # between the slowest and fastest speedup of this project and the ends of the other lines
LABEL_SHARE = 0.042  # of the height, for a line of text


@dataclass(frozen=True)
class Line:
    """A method: speedups by compute, and PSNR in dB at each, mean over captions with its 95 % interval."""

    method: str
    is_named: bool
    speedups: tuple[float, ...]
    psnrs: tuple[float, ...]
    intervals: tuple[tuple[float, float] | tuple[None, None], ...]


@dataclass(frozen=True)
class DrawnComparison:
    """What is drawn: lines of methods on the same captions, and the conditions that the title names."""

    lines: tuple[Line, ...]
    speedups: tuple[float, ...]  # of the axis
    conditions: Mapping[str, Any]
    captions: int


def shown(results: Path) -> DrawnComparison:
    """The methods of protocol 2 on the captions of all methods. Raises GalaxyDiTError without data."""
    data = every_method(results)
    return DrawnComparison(tuple(measured_lines(data)), SPEEDUPS, data.conditions, len(data.captions))


def every_method(results: Path) -> ProtocolData:
    """All methods of protocol 2 on common captions; those of the first table alone if others have fewer captions."""
    first = [name for name in FIRST if name != REPEATED]
    data, others = protocol_data(results, FLOAT32, first), other_methods(results)
    if others is None or len(others.captions) < len(data.captions):
        return data
    return protocol_data(results, FLOAT32, [*first, *(name for name in others.methods if name not in first)])


def measured_lines(data: ProtocolData) -> list[Line]:
    """This project's schedule with and without a profile, the controls and all peers, at settings that were run."""
    strongest = {data.strongest(kind, data.at(at).speedup) for kind in (PLAIN_CONTROLS, data.peers) for at in SPEEDUPS}
    named = {OURS, GENERAL, *PLAIN_CONTROLS, *FIRST_PEERS, *KNOWN, *strongest}
    slowest, fastest = data.at(SPEEDUPS[0]).speedup / MARGIN, data.at(SPEEDUPS[-1]).speedup * MARGIN
    lines = []
    for method in data.methods:
        rows = [row for row in data.fronts.get(method, ()) if slowest <= row.speedup <= fastest]
        if not rows or (kind_of(method) not in (CONTROL, PEER) and method not in (OURS, GENERAL)):
            continue
        lines.append(
            Line(
                method,
                method in named,
                tuple(row.speedup for row in rows),
                tuple(row.mean for row in rows),
                tuple(row.interval for row in rows),
            )
        )
    return lines


def digest_of(lines: Sequence[Line]) -> str:
    """SHA-256 of what is drawn; coordinates are rounded, so that processors agree."""
    data = [asdict(line) for line in lines]
    rounded = json.loads(json.dumps(data), parse_float=lambda text: round(float(text), 3))
    return hashlib.sha256(json.dumps(rounded).encode()).hexdigest()


def draw_quality(results: Path = RESULTS) -> Path:
    """Write the picture to the folder of results; returns its path."""
    data, path = shown(results), results / NAME
    with drawn(path, 8.4, 5.4, texts={DATA_KEY: digest_of(data.lines)}) as figure:
        _draw(data, figure)
    return path


def _draw(data: DrawnComparison, figure: "Figure") -> None:
    axes = figure.add_subplot()
    lines = data.lines
    for line in lines:
        if not line.is_named:
            axes.plot(line.speedups, line.psnrs, color=LIGHT_GREY, lw=1, zorder=1)
    named = [line for line in lines if line.is_named]
    styles = _styles(named)
    for place, line in enumerate(named):
        colour, marker, width, dashes = styles[line.method]
        shift = 1.003 ** (place - len(named) / 2)  # so that intervals do not cover each other
        speeds = [speedup * shift for speedup in line.speedups]
        axes.plot(speeds, line.psnrs, marker, ls=dashes, color=colour, lw=width, ms=4 + width / 2, zorder=2 + width)
        for speed, psnr, (low, high) in zip(speeds, line.psnrs, line.intervals, strict=True):
            draw_interval(axes, speed, psnr, low, high, color=colour, alpha=0.55, capsize=2, zorder=2)
    axes.set_xscale("log")
    axes.set_xticks(data.speedups, [f"{speedup:g}x" for speedup in data.speedups])
    axes.minorticks_off()
    _name_lines(axes, named, {method: style[0] for method, style in styles.items()})
    conditions = data.conditions
    axes.set(xlabel="speedup by compute", ylabel="PSNR against the plain video, dB")
    where = f"wan-tiny, {conditions['dtype']}, {conditions['settings']['steps']} steps, {data.captions} captions"
    unnamed = len(lines) - len(named)
    marks = "bars: 95 % intervals over captions; dashed: no cache"
    if unnamed:
        marks += f"; thin grey: {unnamed} other method{'s' if unnamed > 1 else ''}"
    axes.set_title(f"The same video, sooner: {where}\n{marks}", fontsize=10)


def _styles(named: Sequence[Line]) -> dict[str, tuple[str, str, float, str]]:
    """Colour, marker, width and dashes of each line: this project's are thick, controls grey and dashed."""
    greys, colours = iter((GREY, INK, "#7d8590", "#3d3d3d", LIGHT_GREY)), iter(COLOURS * 3)
    styles = {}
    for place, line in enumerate(named):
        marker = MARKERS[place % len(MARKERS)]
        if line.method in (OURS, GENERAL):
            styles[line.method] = (ORANGE if line.method == OURS else "#8c2d04", marker, 2.6, "-")
        elif kind_of(line.method) == CONTROL:
            styles[line.method] = (next(greys, GREY), marker, 1.2, "--")
        else:
            styles[line.method] = (next(colours), marker, 1.2, "-")
    return styles


def _name_lines(axes: "Axes", named: Sequence[Line], colours: dict[str, str]) -> None:
    """The name of each line beside its last point, moved where names would touch."""
    low, high = axes.get_ylim()
    right = max(line.speedups[-1] for line in named) * 1.05
    places = spread_out([line.psnrs[-1] for line in named], LABEL_SHARE * (high - low))
    for line, place in zip(named, places, strict=True):
        axes.annotate(
            f"{drawable(label(line.method))}, {line.psnrs[-1]:.0f} dB at {line.speedups[-1]:.3g}x",
            xy=(line.speedups[-1] * 1.015, line.psnrs[-1]),
            xytext=(right * 1.03, place),
            color=colours[line.method],
            fontsize=9,
            fontweight="bold" if line.method == OURS else "normal",
            va="center",
            arrowprops={"arrowstyle": "-", "color": colours[line.method], "lw": 0.7, "alpha": 0.5, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


if __name__ == "__main__":
    draw_quality()
