"""Compares rules that predict reused steps and correct full steps, on wan-tiny, the embedded model.

`python -m galaxydit.eval.studies.corrections --prompts 8` logs the PSNR of each rule on captions not used in training.
A later run with the same `--out FILE` resumes an interrupted one. The full steps are those of the shipped schedules and
of step lists published for Wan2.1. A published list runs at its own flow shift and guidance, where wan-tiny's PSNR is
near the published PSNR, so that reuse errs about as much as on the real weights.
"""

import argparse
import json
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.published import StepList, load_published
from galaxydit.calibration.published_plan import RULE as PUBLISHED_RULE
from galaxydit.calibration.surrogate.step_lists import determines_offset
from galaxydit.eval.compare.identity import core_identity
from galaxydit.eval.compare.methods.ablations import shipped
from galaxydit.eval.realism import SHIFT_FACTOR
from galaxydit.eval.realism.step_lists import Cases, References
from galaxydit.extrapolation import LARGEST_AHEAD
from galaxydit.files import write_json
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.world import draw_prompts

logger = logging.getLogger(__name__)
SEED, BATCH = 500, 6
OWN_SHIFT, OWN_GUIDANCE = 5.0, 5.0  # published values that equal wan-tiny's own after scaling


RULES: dict[str, dict[str, Any]] = {
    "order 0": {"order": 0, "correction": False},
    "order 0 corrected": {"order": 0},
    "order 1": {"order": 1, "correction": False},
    "order 1 corrected": {"order": 1},
    "published profile's rule": {
        "order": PUBLISHED_RULE.order,
        "slope": PUBLISHED_RULE.slope,
        "largest_ahead": PUBLISHED_RULE.largest_ahead,
        "correction_share": PUBLISHED_RULE.correction,
    },
}
"""Fields of `GalaxyDiTConfig` that each rule sets: how reused steps are predicted and full steps corrected."""

GRID = {
    f"slope {slope:g}, share {share:g}{limit}": {"slope": slope, "correction_share": share, "largest_ahead": ahead}
    for limit, ahead in (("", LARGEST_AHEAD), (", 1 ahead", 1.0))
    for slope in (0.6, 0.7, 0.85)
    for share in (0.5, 0.7, 0.85)
}
"""Rules of order 1 whose constants lie around the defaults of this project: slope 0.85, correction share 0.5."""


def measure(references: References, row: StepList | None, config: GalaxyDiTConfig) -> list[float]:
    """PSNR in dB of each caption with `config`, against its plain generation.

    `references` holds wan-tiny's pipeline and the captions with a seed each, and makes their plain generations. Both
    generations are at the flow shift and guidance of `row`, or at wan-tiny's own if `row` is None.
    """
    attach = partial(galaxydit.accelerate, references.pipe, config=config)
    shift, guidance = (row.flow_shift, row.guidance) if row else (OWN_SHIFT, OWN_GUIDANCE)
    return references.psnrs(shift, guidance, attach)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--speedups", type=float, nargs="*", default=[2.0, 2.5, 3.0], help="of the shipped schedules")
    parser.add_argument("--lists", type=int, default=4, help="number of published step lists, from the first")
    parser.add_argument("--rules", nargs="+", choices=RULES | GRID, default=list(RULES))
    parser.add_argument("--grid", action="store_true", help="constants of order 1 instead of `--rules`")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--out", type=Path, help="JSON file for the PSNR of each caption")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load_pipeline("wan-tiny", dtype=getattr(torch, arguments.dtype))
    pipe.set_progress_bar_config(disable=True)
    seeds = tuple(range(SEED, SEED + arguments.prompts))
    cases = Cases(tuple(draw_prompts(arguments.prompts, SEED)), seeds, BATCH)
    lists = [row for row in load_published().step_lists if determines_offset(row) and not row.conditional_only]
    references = References(pipe, cases, recommended_settings(pipe), SHIFT_FACTOR)
    planned: list[tuple[str, StepList | None, GalaxyDiTConfig]] = [
        (f"the shipped schedule at {speedup:g}x", None, shipped(pipe, speedup=speedup))
        for speedup in arguments.speedups
    ]
    planned += [
        (row.name, row, GalaxyDiTConfig(FixedSteps(row.steps), keep_last=0, reuse="residual"))
        for row in lists[: arguments.lists]
    ]
    rules = GRID if arguments.grid else {name: (RULES | GRID)[name] for name in arguments.rules}
    conditions = {**vars(arguments), "rules": list(rules), "out": None, "first_seed": SEED, "code": core_identity(pipe)}
    results: dict[str, Any] = {"conditions": conditions, "psnr": {}}
    if arguments.out and arguments.out.exists():
        finished = json.loads(arguments.out.read_text(encoding="utf-8"))
        if finished["conditions"] == json.loads(json.dumps(conditions)):
            results = finished
    for name, row, config in planned:
        for rule, changes in rules.items():
            psnrs = results["psnr"].setdefault(name, {})
            if rule in psnrs:
                continue
            psnrs[rule] = measure(references, row, replace(config, **changes))
            logger.info("%s, %s: %.2f dB, worst %.1f", name, rule, np.mean(psnrs[rule]), min(psnrs[rule]))
            if arguments.out:
                write_json(arguments.out, results)


if __name__ == "__main__":
    main()
