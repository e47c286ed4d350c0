"""How near the PSNRs of wan-tiny are to published ones of Wan2.1, from the file that `published_rows` wrote."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from galaxydit.pipelines.table import DASH, Table

Rows = Mapping[str, Mapping[str, Any]]
"""By name, a published run.

published: PSNR in dB. seen: whether it was looked at when the world was chosen. psnr: in dB, by caption.
"""
AGREEMENTS = ("mean absolute difference, dB", "Spearman's rho")
SEEN = {True: "yes", False: "no"}


def published_table(models: Mapping[str, Rows]) -> Table:
    """Published and measured PSNRs, then how near they are, for the rows that were seen and for the others.

    models: the rows of each model by its name; all have the same rows.
    """
    first = next(iter(models.values()))
    cells = []
    for name, row in first.items():
        measured = [f"{mean_of(rows[name]):.1f}" for rows in models.values()]
        cells.append((name, f"{row['published']:.1f}", *measured, SEEN[row["seen"]]))
    for seen in (True, False):
        names = [name for name, row in first.items() if row["seen"] is seen]
        if len(names) > 1:
            found = [agreement(rows, names) for rows in models.values()]
            for place, title in enumerate(AGREEMENTS):
                cells.append((title, DASH, *(f"{pair[place]:.2f}" for pair in found), SEEN[seen]))
    headings = (f"{name}, dB" for name in models)
    return Table(("row", "Wan2.1-T2V-1.3B, dB", *headings, "seen when the world was chosen"), cells)


def agreement(rows: Rows, names: Sequence[str]) -> tuple[float, float]:
    """Mean absolute difference in dB between published and measured PSNRs of these rows, and their Spearman's rho."""
    published = [rows[name]["published"] for name in names]
    means = [mean_of(rows[name]) for name in names]
    difference = np.abs(np.subtract(means, published)).mean()
    return float(difference), float(spearmanr(means, published).statistic)


def mean_of(row: Mapping[str, Any]) -> float:
    return fmean(row["psnr"].values())
