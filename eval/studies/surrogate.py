"""Compares PSNRs that surrogates predict for a model with PSNRs that `galaxydit realism` measured on the model.

`python -m galaxydit.eval.studies.surrogate runs/realism/realism.json` fits surrogates to the measured curvature of the
model's trajectory, and logs the PSNRs that they predict for the published step lists beside the measured PSNRs. A
surrogate stands in for the model: simple distributions with exact denoisers (`galaxydit.calibration.surrogate`). One
offset in dB, fitted to the step lists that reuse the residual, makes both PSNRs comparable.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from galaxydit.calibration.published import Published, load_published
from galaxydit.calibration.surrogate.directions import DISTRIBUTIONS
from galaxydit.calibration.surrogate.solver import unipc
from galaxydit.calibration.surrogate.step_lists import predicted_psnrs
from galaxydit.calibration.surrogate.surrogate import Curvature, Surrogate
from galaxydit.eval.realism import STEPS

logger = logging.getLogger(__name__)


def measured_curvature(realism: dict[str, Any], published: Published) -> Curvature:
    """The model's curvature at the steps of the published curvature; `realism` is the content of its realism.json."""
    table = published.data["curvature"]
    flow_shift = table["flow_shift"] * realism["conditions"]["shift_factor"]
    lengths = -np.diff(unipc(flow_shift, STEPS).sigmas, append=0.0)
    rho2 = np.array(realism["curvature"]["change_per_step"]) / lengths
    return Curvature(flow_shift, tuple(table["steps"]), tuple(rho2[table["steps"]].tolist()))


def predictions(realism: dict[str, Any], published: Published) -> dict[str, list[float]]:
    """The predicted PSNR in dB of each of `published.step_lists`, in their order, by name of the surrogate's
    distribution.

    The fitted offset is included. `realism` is the content of realism.json.
    """
    curvature, factor = measured_curvature(realism, published), realism["conditions"]["shift_factor"]
    known = [row["mean"] for row in realism["step lists"]["rows"]]
    return {
        name: predicted_psnrs(Surrogate(distribution, curvature), published.step_lists, known, factor)
        for name, distribution in DISTRIBUTIONS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("realism", type=Path, help='realism.json with the parts "step lists" and "curvature"')
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    realism = json.loads(parser.parse_args().realism.read_text(encoding="utf-8"))
    measured = [row["mean"] for row in realism["step lists"]["rows"]]
    for name, predicted in predictions(realism, load_published()).items():
        for row, psnr, level in zip(realism["step lists"]["rows"], measured, predicted, strict=True):
            logger.info("%s, %s: %.1f dB predicted, %.1f dB measured", name, row["name"], level, psnr)
        difference = np.abs(np.subtract(predicted, measured)).mean()
        rho = spearmanr(predicted, measured).statistic
        logger.info("%s: mean absolute difference %.1f dB, Spearman's rho %.2f", name, difference, rho)


if __name__ == "__main__":
    main()
