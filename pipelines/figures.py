"""The design of all figures: fonts, colours, a light grid, and the marks of disturbed seconds.

The background is white, so that a figure also reads on a dark page. The colours are those of Okabe and Ito, which
colour-blind readers tell apart (jfly.uni-koeln.de/color); markers and dashes tell the same again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.files import replacing
from galaxydit.foreign_text import drawable
from galaxydit.pipelines.written_by import MARK, PNG_KEY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
SKY, YELLOW, INK, GREY, LIGHT_GREY = "#56b4e9", "#e69f00", "#1b1f24", "#6b7280", "#b4bac2"
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, "#5d4fc4", "#7a5c00", "#8c2d04", "#00695c")
MARKERS = "osD^vPX<>"
RAMP = ("#440154", "#31688e", "#1f9e89", "#b8a800")  # viridis, its last colour darkened for a white background
DOTS_PER_INCH = 120
STYLE = {
    "figure.facecolor": "#ffffff",
    "savefig.facecolor": "#ffffff",
    "axes.facecolor": "#ffffff",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11.0,
    "axes.labelsize": 10.0,
    "figure.titlesize": 12.0,
    "font.family": ["DejaVu Sans"],  # part of matplotlib
    "font.size": 10.0,
    "grid.color": LIGHT_GREY,
    "grid.alpha": 0.4,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
}
HOLLOW: dict[str, Any] = {"markerfacecolor": "#ffffff", "markeredgewidth": 1.5}
"""Arguments of matplotlib for markers whose seconds other work disturbed."""
DISTURBED_NOTE = "hollow: seconds disturbed by other work"


@contextmanager
def drawn(path: Path, width: float, height: float, texts: Mapping[str, str] | None = None) -> Iterator["Figure"]:
    """Context that yields a figure to draw, and then writes it as a PNG with the mark, unless it has no axes.

    `width` and `height` are in inches; `texts` are written beside the mark.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        if figure.axes:
            with replacing(path) as partial:
                figure.savefig(partial, dpi=DOTS_PER_INCH, format="png", metadata={**(texts or {}), PNG_KEY: MARK})


def words_of(name: str) -> str:
    """A name, such as that of a proxy, in words that matplotlib draws as they are."""
    return drawable(name.replace("_", " "))


def ramp(share: float) -> tuple[float, float, float]:
    """The colour of an ordered value, such as a noise level: dark violet at 0, over green to dark yellow at 1."""
    from matplotlib.colors import LinearSegmentedColormap

    red, green, blue, _ = LinearSegmentedColormap.from_list("ramp", RAMP)(share)
    return red, green, blue


def draw_interval(
    axes: "Axes",
    x: float,
    y: float | None,
    low: float | None,
    high: float | None,
    *,
    upright: bool = True,
    **style: Any,
) -> None:
    """An interval as a thin line with end caps through (x, y); nothing where its ends or its middle are unknown."""
    if y is None or low is None or high is None:
        return
    ends = [[(y if upright else x) - low], [high - (y if upright else x)]]
    bars: dict[str, Any] = {"yerr": ends} if upright else {"xerr": ends}
    axes.errorbar(x, y, **bars, fmt="none", **({"capsize": 3, "elinewidth": 1.2} | style))


def spread_out(places: Sequence[float], gap: float) -> list[float]:
    """The places of labels, moved as little as a pass over them needs so that neighbours are `gap` or more apart."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = [float(place) for place in places]
    groups: list[list[int]] = []  # labels that touch, which are centred on the mean of their places
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _bottom(groups[-1], places, gap) < _top(groups[-2], places, gap):
            last = groups.pop()
            groups[-1] += last
    for group in groups:
        bottom = _bottom(group, places, gap)
        for rank, index in enumerate(group):
            moved[index] = bottom + (rank + 0.5) * gap
    return moved


def _middle(group: Sequence[int], places: Sequence[float]) -> float:
    return sum(places[index] for index in group) / len(group)


def _bottom(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return _middle(group, places) - len(group) * gap / 2


def _top(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return _middle(group, places) + len(group) * gap / 2
