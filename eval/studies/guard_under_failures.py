"""Does the guard leave healthy generations alone and keep failures from harming a video?

`python -m galaxydit.eval.studies.guard_under_failures --prompts 32 --dtype float32 --out DIR` generates captions that
were not used in training or calibration of wan-tiny: plain, at each speedup with and without the guard, and at the
first speedup with each injected failure. It writes `results.json` with the values of each caption and `table.md`. A
later run with the same `--out` keeps the generations that are finished there.

The guard gives up the slope where it predicts full steps badly (`OutputReuse.follows_slope`). A
healthy generation has no injected failure.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline

from galaxydit.calibration.bootstrap import interval
from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.eval.compare.identity import code_identity, core_identity
from galaxydit.eval.compare.methods.ablations import shipped
from galaxydit.eval.markdown import table
from galaxydit.eval.studies.injected_failures import FAILURES, NONE, Failure
from galaxydit.files import write_json
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import LiveProgress, Maker, Output, Rank, Store, Unit, hash_of, results, run
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.registry import load_profile
from galaxydit.runtime.reuse import GIVEN_UP

logger = logging.getLogger(__name__)
KIND, MODEL, SEED = "guard", "wan-tiny", 700
MEANS = ("with the guard, dB", "without, dB")
KINDS = ("guarded", "unguarded", "order 0")
"""Kinds of generation: with the guard; without it; without it and with predictions of order 0 in place of order 1."""


@dataclass(frozen=True)
class Variant:
    """One accelerated generation of a caption.

    Attributes:
        speedup: requested speedup.
        kind: one of `KINDS`: "guarded" (with the guard), "unguarded", or "order 0" (without the guard, and each reused
            step repeats the last full step).
        failure: name of the injected failure, one of `FAILURES`, or "none".
    """

    speedup: float
    kind: str = "guarded"
    failure: str = NONE.name


def variants(speedups: Sequence[float]) -> list[Variant]:
    """The accelerated generations of each caption: without a failure, with and without the guard at each speedup.

    At the first speedup, also with each failure of `FAILURES`, in each of the three `KINDS`: with the guard, without
    it, and without it with predictions of order 0.
    """
    healthy = [Variant(speedup, kind) for speedup in speedups for kind in KINDS[:2]]
    return healthy + [Variant(speedups[0], kind, failure.name) for failure in FAILURES for kind in KINDS]


@dataclass(eq=False)
class GuardMaker(Maker):
    """Generates and measures one `Variant` of one caption.

    Keeps the plain video of the last caption, and the last guarded result, which serves the same generation without the
    guard if the guard did not act. `dtype` is the name of a torch dtype.
    """

    dtype: str
    _plain: tuple[str, GeneratedVideo] | None = None
    _guarded: tuple[Mapping[str, Any], Output] | None = None

    def prepare(self, rank: Rank) -> None:
        """Load the pipeline."""
        self._pipe = load(self.dtype)
        self._settings = recommended_settings(self._pipe)

    def make(self, unit: Unit) -> Output:
        """Generate the video of a unit from `units_of`, and measure it.

        The result has the keys "psnr" (dB, against the plain video), "compute_fraction" (transformer blocks that ran /
        blocks that run in the plain generation) and "gave_up" (whether predictions gave up the slope).
        """
        data = unit.data
        if data["kind"] == "unguarded" and self._guarded is not None:
            made_with, output = self._guarded
            if made_with == {**data, "kind": "guarded"} and not output.result["gave_up"]:
                return output  # a guard that did not act changes nothing, bit for bit, which a test shows
        if self._plain is None or self._plain[0] != data["prompt"]:
            self._plain = (data["prompt"], generate(self._pipe, data["prompt"], self._settings, data["seed"]))
        failure: Failure = next(kind for kind in (NONE, *FAILURES) if kind.name == data["failure"])
        config = shipped(self._pipe, speedup=data["speedup"])
        if data["kind"] == "order 0":
            config = replace(config, order=0)
        with failure.attach(self._pipe, config, guarded=data["kind"] == "guarded") as acceleration:
            video = generate(self._pipe, data["prompt"], self._settings, data["seed"])
        report = acceleration.report
        output = Output(
            {
                "psnr": psnr(video.frames, self._plain[1].frames),
                "compute_fraction": report.compute_fraction,
                "gave_up": GIVEN_UP in report.notes,
            }
        )
        if data["kind"] == "guarded":
            self._guarded = (dict(data), output)
        return output


def load(dtype: str) -> DiffusionPipeline:
    """The pipeline of wan-tiny in the torch dtype of this name."""
    pipe = load_pipeline(MODEL, dtype=getattr(torch, dtype))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def unseen_captions(count: int) -> list[str]:
    """`count` captions that neither the training nor the calibration of wan-tiny used."""
    return draw_prompts(count, SEED, apart_from=read_prompts(WAN_TINY_PROMPTS))


def units_of(prompts: Sequence[str], speedups: Sequence[float], conditions: str) -> list[Unit]:
    """One unit of work for each caption and variant, caption by caption.

    A unit's data are "prompt", "seed", "conditions" and the fields of `Variant`. `conditions` is a hash of all else
    that the results depend on.
    """
    units = []
    for index, prompt in enumerate(prompts):
        for variant in variants(speedups):
            data = {"prompt": prompt, "seed": SEED + index, "conditions": conditions, **asdict(variant)}
            units.append(Unit(f"caption-{index:03d}", data, group=f"caption-{index:03d}"))
    return units


def cost(speedups: Sequence[float], prompts: int) -> float:
    """The block evaluations of the study for `prompts` captions / those of one plain generation.

    Assumes that the guard acts only under failures, so that a healthy generation with the guard also serves as the
    generation without it.
    """
    half = 1 / speedups[0]
    failing = sum(len(failure.steps) / 50 if failure.steps else half for failure in FAILURES)
    return prompts * (1 + sum(1 / speedup for speedup in speedups) + len(KINDS) * failing)


@dataclass(frozen=True)
class Result:
    """One `Variant` of one caption, with its conditions and measurements.

    `conditions` is a hash of the model, the settings, the code and the profile; `psnr` is against the plain video in
    dB; `compute_fraction` is blocks that ran / blocks that run in the plain generation; `gave_up`: whether
    predictions gave up the slope. Of the `Variant` are the requested `speedup`, the
    `kind` ("guarded", "unguarded" or "order 0") and the name of the injected `failure`, "none" without one.
    """

    prompt: str
    seed: int
    conditions: str
    speedup: float
    kind: str
    failure: str
    psnr: float
    compute_fraction: float
    gave_up: bool


def tables(results: Sequence[Result]) -> str:
    """Markdown: PSNR with and without the guard at each speedup, and under each failure."""

    def of(kind: str, failure: str = NONE.name, speedup: float | None = None) -> list[Result]:
        wanted = (kind, failure)
        return [r for r in results if (r.kind, r.failure) == wanted and speedup in (None, r.speedup)]

    guards, failures = [], []
    for speedup in sorted({result.speedup for result in of("guarded")}):
        guarded, unguarded = (of(kind, speedup=speedup) for kind in ("guarded", "unguarded"))
        acted = f"{sum(result.gave_up for result in guarded)} of {len(guarded)}"
        guards.append([f"{speedup:g}x", _mean(guarded), _mean(unguarded), _difference(guarded, unguarded), acted])
    for failure in dict.fromkeys(result.failure for result in results if result.failure != NONE.name):
        guarded, unguarded, order_0 = (of(kind, failure) for kind in KINDS)
        failures.append([failure, *map(_mean, (guarded, unguarded, order_0)), _difference(guarded, order_0)])
    healthy = table(("speedup", *MEANS, "difference", "captions where it acted"), guards)
    failing = table(("failure", *MEANS, "order 0, dB", "guard - order 0"), failures, labels=("failure",))
    return f"{healthy}\n\n{failing}"


def _mean(results: Sequence[Result]) -> str:
    return f"{np.mean([result.psnr for result in results]):.2f}"


def _difference(left: Sequence[Result], right: Sequence[Result]) -> str:
    """Mean PSNR of `left` minus that of `right`, for the same captions, in dB with its 95 % interval over captions."""
    differences = [result.psnr - other.psnr for result, other in zip(left, right, strict=True)]
    low, high = interval(differences)
    span = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
    return f"{np.mean(differences):+.2f}{span}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--speedups", type=float, nargs="+", default=[2.0, 2.5, 3.0])
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="float32")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load(arguments.dtype)
    here = Path(__file__).parent
    conditions = {
        **conditions_of(pipe, recommended_settings(pipe)),
        "code": core_identity(pipe) + code_identity([here / "injected_failures.py"]),
        "profile": load_profile(MODEL).identity,
    }
    logger.info("about %.0f plain generations", cost(arguments.speedups, arguments.prompts))
    store = Store(arguments.out / "runs").create(KIND, {})
    units = units_of(unseen_captions(arguments.prompts), arguments.speedups, hash_of(conditions))
    with LiveProgress() as progress:
        run(units, GuardMaker(arguments.dtype), store, progress=progress, retry_failed=True)
    measured = [Result(**unit.data, **values) for unit, values in zip(units, results(units, store), strict=True)]
    text = tables(measured)
    logger.info(text)
    (arguments.out / "table.md").write_text(text + "\n", encoding="utf-8")
    rows = [asdict(result) for result in measured]
    write_json(arguments.out / "results.json", {"conditions": conditions, "results": rows})


if __name__ == "__main__":
    main()
