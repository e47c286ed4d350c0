"""Does a proxy that ranks the error of reuse better give better videos? The claim of GalaxyDiT (arXiv 2512.03451).

`python -m galaxydit.eval.studies.proxy_ranking --parts profile.parts --out DIR` takes the recordings (plain
generations) of a calibration, ranks the proxies by them, solves the threshold of the paper's rule for each proxy, and
compares the videos at equal compute on captions not used in training. It writes `results.json` with the PSNR of each
prompt, `table.md`, `ranking.json` and `ranking.png`. `--alone` also runs each proxy with guidance branches that decide
alone, and adds the PSNR that alignment, one decision for both branches, gains at equal compute.

A proxy is a cheap tensor whose change since the last step stands for the change of the output. The paper's rule reuses
a step while the summed changes of the proxy since the last full step stay below a threshold.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from galaxydit.calibration.bootstrap import draws_of, interval
from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.calibration.rank import Ranking, rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.thresholds import compute_fraction, replay
from galaxydit.eval.compare.comparison import Comparison, run_comparison
from galaxydit.eval.compare.identity import core_identity
from galaxydit.eval.compare.markdown import number
from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.methods.galaxydit_methods import accelerated, paper_rule
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.markdown import table
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import Store
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.policies.policy import Limits
from galaxydit.policies.threshold import Threshold
from galaxydit.proxies import PROXIES
from galaxydit.validation import parse

logger = logging.getLogger(__name__)
ENCLOSING = (0.965, 1.06)
"""Factors on the first and on the last wanted speedup before thresholds are solved for them on recordings.

While steps are reused, a proxy moves more than in a recording, so a generation misses the speedup of its threshold. The
factors make the measured speedups enclose the wanted ones nevertheless.
"""
ALONE = " branches alone"
MORE_ALONE = 1.1  # branches that decide alone compute more at the same threshold
LIMITS = Limits(warmup=0.2, keep_last=0, max_consecutive=None)
CALLS, BLOCKS = 2, 10  # of wan-tiny: guidance branches and blocks


def read_recordings(folder: Path) -> tuple[Recording, ...]:
    """The recordings of a calibration, from the folder of its finished parts (`galaxydit calibrate --resume-dir`)."""
    store = Store(folder)
    names = sorted(path.stem for path in (folder / "units").glob("sample-*.json"))
    records = [record for name in names if (record := store.read(name)) is not None and record.is_done]
    return parse(tuple[Recording, ...], [record.result["recording"] for record in records], "recordings")


def solve(recordings: Sequence[Recording], proxy: str, speedup: float) -> float:
    """The threshold on `proxy` at which the paper's rule, replayed on the recordings, has this mean speedup.

    The threshold is found by bisection on the mean compute fraction, 1 / speedup.
    """
    low, high = 1e-6, 10.0
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        fraction = fmean(_fraction(recording, proxy, middle) for recording in recordings)
        low, high = (middle, high) if fraction > 1 / speedup else (low, middle)
    return high


def _fraction(recording: Recording, proxy: str, threshold: float) -> float:
    full_steps = replay(recording, proxy, Threshold(threshold), LIMITS)
    return compute_fraction(len(full_steps), recording.steps, PROXIES[proxy].cost / (CALLS * BLOCKS))


def method_of(
    recordings: Sequence[Recording], proxy: str, speedups: Sequence[float], *, aligned: bool = True
) -> Method:
    """The paper's rule on one proxy as a method whose settings are thresholds, one solved for each speedup.

    The first threshold is solved for a slightly lower speedup, the last for a slightly higher one (`ENCLOSING`). With
    `aligned` both guidance branches share one decision; without it each branch decides alone, and the last threshold is
    larger (`MORE_ALONE`).
    """
    most = ENCLOSING[1] * (1.0 if aligned else MORE_ALONE)
    asked = (speedups[0] * ENCLOSING[0], *speedups[1:-1], speedups[-1] * most)
    settings = [{"threshold": solve(recordings, proxy, speedup)} for speedup in asked]

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return accelerated(pipe, config=paper_rule(proxy, setting["threshold"], guidance_alignment=aligned))

    name = proxy if aligned else proxy + ALONE
    return Method(name, lambda steps: settings, attach, identity=core_identity, tuned=False)


def alignment_lines(comparison: Comparison) -> list[str]:
    """A Markdown line for each proxy and speedup: the PSNR in dB that alignment gains, mean and 95 % interval.

    Only proxies that the comparison also ran with branches that decide alone have lines.
    """
    at = {(result.method, result.speedup): result for result in comparison.at_speedups if result.psnr is not None}
    lines = []
    for (name, speedup), aligned in at.items():
        if (alone := at.get((name + ALONE, speedup))) is not None:
            gains = np.subtract(aligned.psnr_of_prompt, alone.psnr_of_prompt).tolist()
            low, high = (number(end, "+.2f") for end in interval(gains))
            lines.append(
                f"- Alignment gains {fmean(gains):+.2f} dB ({low} to {high}) at {speedup:g}x with {name}: "
                f"{aligned.psnr:.2f} against {alone.psnr:.2f} dB, {len(gains)} prompts."
            )
    return lines


def correlation(rhos: Sequence[float], psnrs: np.ndarray) -> tuple[float, float, float]:
    """Spearman's rho between `rhos` and the mean PSNRs of the proxies.

    `rhos` has for each proxy its correlation with the error of reuse, along a trajectory or between samples
    (`RankedProxy.rho` or `between`). `psnrs` is in dB, `(proxies, prompts)`. Returns Spearman's rho and the low and
    high end of its 95 % bootstrap interval over prompts.
    """
    drawn = [spearmanr(rhos, psnrs[:, draw].mean(axis=1)).statistic for draw in draws_of(psnrs.shape[1])]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(spearmanr(rhos, psnrs.mean(axis=1)).statistic), float(low), float(high)


def write_results(comparison: Comparison, ranking: Ranking, out: Path) -> None:
    """Write table.md, ranking.json and ranking.png to the folder `out`; log how the ranking correlates with PSNR."""
    speedups = comparison.plan.speedups
    rows = {row.proxy: row for row in ranking.rows}
    headings = ["proxy", "rho along a trajectory", "rho between samples"]
    for speedup in speedups:
        headings += [f"PSNR at {speedup:g}x, dB", "worst"]
    cells = []
    at = {(result.method, result.speedup): result for result in comparison.at_speedups if result.psnr is not None}
    proxies = [name for name in rows if all((name, speedup) in at for speedup in speedups)]
    for name in sorted(proxies, key=lambda name: -(at[name, speedups[0]].psnr or 0)):
        cells.append([name, f"{rows[name].rho:.3f}", f"{rows[name].between:.3f}"])
        for result in (at[name, speedup] for speedup in speedups):
            cells[-1] += [f"{result.psnr:.2f}", f"{result.psnr_worst:.1f}"]
    summary: dict[str, Any] = {"rankings": [asdict(rows[name]) for name in proxies], "correlations": []}
    lines = [table(headings, cells, labels=("proxy",)), ""]
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    for axes, speedup in zip(figure.subplots(1, len(speedups)), speedups, strict=True):
        psnrs = np.array([at[name, speedup].psnr_of_prompt for name in proxies])
        for kind, marker in (("rho", "o"), ("between", "x")) if len(proxies) > 2 else ():
            rhos = [getattr(rows[name], kind) for name in proxies]
            rho, low, high = correlation(rhos, psnrs)
            label = {"rho": "along a trajectory", "between": "between samples"}[kind]
            text = f"Spearman's rho of ranking {label} and PSNR at {speedup:g}x: {rho:.2f} ({low:.2f} to {high:.2f})"
            lines.append(f"- {text}, {len(proxies)} proxies, {psnrs.shape[1]} prompts.")
            logger.info(text)
            summary["correlations"].append({"kind": kind, "speedup": speedup, "rho": rho, "low": low, "high": high})
            axes.plot(rhos, psnrs.mean(axis=1), marker, label=f"rho {label}")
        for name in proxies:
            axes.annotate(name, (rows[name].rho, at[name, speedup].psnr or 0), fontsize=5)
        axes.set(xlabel="Spearman's rho with the error of reuse", ylabel="PSNR, dB", title=f"{speedup:g}x by compute")
        axes.legend(frameon=False, loc="upper left", fontsize=7)
    lines += alignment_lines(comparison)
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "ranking.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    figure.savefig(out / "ranking.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=Path, required=True, help="folder of the parts of a calibration of wan-tiny")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--proxies", help="names with commas; by default all that move, with the L1 distance")
    parser.add_argument("--speedups", default="2,2.5", help="two or more with commas, rising")
    parser.add_argument("--alone", action="store_true", help="also let the guidance branches decide alone")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    recordings = read_recordings(arguments.parts)
    ranking = rank_proxies(recordings)
    moving = [row.proxy for row in ranking.rows if row.rho != 0]
    wanted = (
        arguments.proxies.split(",")
        if arguments.proxies
        else [name for name in moving if PROXIES[name].distance == "l1"]
    )
    reserved = tuple(read_prompts(WAN_TINY_PROMPTS))
    prompts = tuple(draw_prompts(arguments.prompts, 0, apart_from=reserved))  # the captions of `galaxydit compare`
    speedups = tuple(map(float, arguments.speedups.split(",")))
    plan = ComparisonPlan(prompts, (0,), reserved, speedups, 1)
    pipe = load_pipeline("wan-tiny")
    pipe.set_progress_bar_config(disable=True)
    ways = (True, False) if arguments.alone else (True,)
    methods = [method_of(recordings, proxy, speedups, aligned=aligned) for proxy in wanted for aligned in ways]
    comparison = run_comparison(
        pipe,
        methods,
        plan,
        recommended_settings(pipe),
        arguments.out,
        lambda stage, done, total: logger.info("%s %d of %d", stage, done, total),
    )
    write_results(comparison, ranking, arguments.out)


if __name__ == "__main__":
    main()
