"""The published step lists on a surrogate, and the constant from its levels to PSNRs in dB (`offset`).

A surrogate replaces the real weights: a model of independent directions fitted to published curvature. A level is the
expected PSNR on a surrogate, in dB up to this constant (`Surrogate.level`). The residual of the block stack is what the
blocks of the transformer add to their input.
"""

from collections.abc import Sequence

import numpy as np

from galaxydit.calibration.published import Published, StepList
from galaxydit.calibration.surrogate.surrogate import Curvature, Rule, Surrogate

METHODS = {
    None: Rule(),
    "TaylorSeer": Rule(order=1, slope=1.0, by_step=True),
    "HiCache": Rule(order=1, slope=0.5, by_step=True),
}
"""Rules by published method; None reuses the residual. TaylorSeer and HiCache extrapolate the features of each block, a
surrogate the output."""


def published_curvature(published: Published) -> Curvature:
    """The published curvature of the guided trajectory of Wan2.1-T2V-1.3B, the path of its latents over sigma.

    `published` holds all published numbers of the model (`load_published`), among them the trajectory's flow shift and
    the curvature rho2 at 47 of its 50 steps (see `Curvature`).
    """
    table = published.data["curvature"]
    return Curvature(table["flow_shift"], tuple(table["steps"]), tuple(table["rho2"]))


def determines_offset(row: StepList) -> bool:
    """Whether `offset` uses the step list `row`: it reuses the residual of the block stack and computes a step whose
    index (from 0) is above 40.

    Without late computed steps nearly all directions of a surrogate end at a wrong value.
    """
    return row.method is None and row.plain_steps is None and max(row.steps) > 40


def predicted_psnrs(
    surrogate: Surrogate, rows: Sequence[StepList], known: Sequence[float], shift_factor: float = 1.0
) -> list[float]:
    """The PSNR that the surrogate predicts for each step list of `rows`, dB.

    The prediction is the surrogate's level plus a constant. The constant is the mean of known PSNR - level over the
    rows that reuse the residual of the block stack and compute a step whose index is above 40 (`offset`). `known` are
    PSNRs in dB, one for each row, published or measured on the model. `shift_factor` is the model's flow shift / the
    published flow shift. A step that was computed in the conditional branch alone counts as computed.
    """
    levels = [
        surrogate.level(
            {*row.steps, *row.conditional_only} if row.plain_steps is None else range(row.plain_steps),
            METHODS[row.method],
            row.flow_shift * shift_factor,
            own_steps=row.plain_steps,
        )
        for row in rows
    ]
    constant = offset(rows, known, levels)
    return [level + constant for level in levels]


def offset(rows: Sequence[StepList], known: Sequence[float], levels: Sequence[float]) -> float:
    """The constant to add to a surrogate's levels, dB: mean of known PSNR - level over some rows.

    These are the rows that reuse the residual of the block stack and compute a step whose index is above 40
    (`determines_offset`). `known` are the PSNRs of all rows, published or measured on a model, and `levels` are their
    levels on the surrogate, both in dB.
    """
    triples = zip(rows, known, levels, strict=True)
    return float(np.mean([psnr - level for row, psnr, level in triples if determines_offset(row)]))
