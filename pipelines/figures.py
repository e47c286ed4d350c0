"""The design of all figures: colours, and axes with a light grid and without a frame."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from galaxydit.files import replacing
from galaxydit.pipelines.written_by import MARK, PNG_KEY
from galaxydit.report import COMPUTED, REUSED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = COMPUTED, REUSED, "#8a8a8a"
DOTS_PER_INCH = 120
STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


@contextmanager
def drawn(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """Context that yields a figure to draw, and then writes it as a PNG with the mark, unless it has no axes.

    `width` and `height` are in inches.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    with rc_context(STYLE):
        yield figure
    if figure.axes:
        with replacing(path) as partial:
            figure.savefig(partial, dpi=DOTS_PER_INCH, format="png", metadata={PNG_KEY: MARK})
