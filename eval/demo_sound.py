"""A picture of the demo's sounds: loudness over time and spectrograms, one above the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from galaxydit.eval.spectrogram import QUIETEST, mixed_log_mel, rms_of_tenths
from galaxydit.foreign_text import drawable
from galaxydit.pipelines.figures import BLUE, ORANGE, drawn
from galaxydit.pipelines.video import Sound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = (("#444444", 4.0), (BLUE, 2.5), (ORANGE, 1.0))  # colours and widths, so that equal lines are all seen


def draw_sounds(sounds: Mapping[str, Sound], path: Path) -> None:
    """Write a PNG: the RMS of each tenth of a second of all sounds in one panel, then a spectrogram of each by name."""
    with drawn(path, 10, 2.4 + 1.6 * len(sounds)) as figure:
        _draw(sounds, figure)


def _draw(sounds: Mapping[str, Sound], figure: "Figure") -> None:
    loudness, *panels = figure.subplots(1 + len(sounds), 1, sharex=True)
    for (name, sound), (colour, width) in zip(sounds.items(), STYLES, strict=False):
        values = rms_of_tenths(sound)
        edges = np.minimum(np.arange(len(values) + 1) / 10, sound.samples.shape[1] / sound.rate)
        loudness.stairs(values, edges, baseline=None, label=drawable(name), color=colour, linewidth=width)
    loudness.set_ylabel("RMS of each 0.1 s")
    loudness.set_ylim(bottom=0)
    loudness.legend(ncols=len(sounds), loc="lower right", bbox_to_anchor=(1, 1))
    for axes, (name, sound) in zip(panels, sounds.items(), strict=True):
        levels = mixed_log_mel(sound)
        extent = (0, sound.samples.shape[1] / sound.rate, 0, len(levels))
        axes.imshow(levels, cmap="magma", vmin=QUIETEST, vmax=0, aspect="auto", origin="lower", extent=extent)
        axes.set_ylabel("mel band")
        axes.set_title(f"{drawable(name)}, to {sound.rate / 2000:g} kHz", loc="left", fontsize=9)
        axes.grid(False)
    panels[-1].set_xlabel("seconds")
