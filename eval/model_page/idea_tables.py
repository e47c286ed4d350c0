"""The tables of the paper's ideas, from the rows that `paper_ideas` measured."""

from collections.abc import Mapping
from statistics import fmean

from scipy.stats import spearmanr

from galaxydit.eval.compared import lead
from galaxydit.pipelines.table import Table

SPEEDUPS = (2.0, 2.5, 3.0)
SCHEDULED, MOVED, ALONE = "schedule", "proxy", "branches alone"
PAPERS_RULE, ON = "paper's rule", "threshold on"
SEES_PROMPT = "block_output"  # a proxy that differs between the branches of guidance
WEIGHTED = f"{MOVED}, weight 1"
CHEAPEST = ("noisy_latent", "filtered_latent")  # proxies that no block has to run for

Measured = dict[str, dict[str, float]]
"""By variant, the PSNR in dB and the compute fraction."""


def differences_of(rows: dict[str, Measured], first: str, second: str) -> list[float]:
    """PSNR of one variant less that of another, in dB, by caption."""
    both = [row for row in rows.values() if first in row and second in row]
    return [row[first]["psnr"] - row[second]["psnr"] for row in both]


def compared_pairs(rows: dict[str, Measured]) -> list[tuple[str, str]]:
    """The variants that are set against each other, better idea first by the paper."""
    pairs = []
    for speedup in SPEEDUPS:
        at = f", {speedup:g}x"
        for weight in ("0.5", "1"):
            pairs.append((f"{MOVED}, weight {weight}{at}", SCHEDULED + at))
        pairs.append((WEIGHTED + at, f"{WEIGHTED}, {ALONE}{at}"))
        pairs.append((SCHEDULED + at, f"schedule, first fifth computed{at}"))
    for rule in (PAPERS_RULE, f"{PAPERS_RULE} on {SEES_PROMPT}", f"{ON} {SEES_PROMPT}"):
        pairs.append((f"{rule}, 2x", f"{rule}, {ALONE}, 2x"))
    pairs.append((f"{ON} modulated_input, 2x", f"{PAPERS_RULE}, 2x"))
    pairs.append((f"{ON} {SEES_PROMPT}, 2x", f"{PAPERS_RULE} on {SEES_PROMPT}, 2x"))
    known = list(dict.fromkeys(key for row in rows.values() for key in row))
    on_proxies = [key for key in known if key.startswith(ON) and ALONE not in key]
    for key in on_proxies:
        for cheap in CHEAPEST:
            other = f"{ON} {cheap}, 2x"
            if key != other and (other, key) not in pairs:
                pairs.append((key, other))
    for key in (*on_proxies, "FirstBlockCache, 2x", "DBCache, 2x"):
        pairs.append((f"{SCHEDULED}, 2x", key))
    return pairs


def variants_table(rows: dict[str, Measured]) -> Table:
    """Mean and worst PSNR, and compute, of each variant."""
    cells = []
    for key in dict.fromkeys(key for row in rows.values() for key in row):
        measured = [row[key] for row in rows.values() if key in row]
        mean = fmean(each["psnr"] for each in measured)
        worst = min(each["psnr"] for each in measured)
        fraction = fmean(each["compute_fraction"] for each in measured)
        cells.append((key, f"{mean:.2f}", f"{worst:.1f}", f"{fraction:.3f}", str(len(measured))))
    return Table(("variant", "PSNR, dB", "worst caption", "compute fraction", "n"), cells)


def differences_table(rows: dict[str, Measured]) -> Table:
    """The difference of each compared pair that has captions in common."""
    cells = []
    for first, second in compared_pairs(rows):
        if values := differences_of(rows, first, second):
            cells.append((f"{first} - {second}", lead(values, digits=2), str(len(values))))
    return Table(("pair", "difference, dB", "n"), cells)


def ranking_table(rows: Mapping[str, Measured], rhos: Mapping[str, float]) -> Table:
    """Whether the ranking finds the best proxy: each proxy's rho along steps beside the PSNR of a threshold on it.

    `rhos` are Spearman's rho with the error of reuse, by proxy. The last row has Spearman's rho of both columns.
    """
    ranked = []
    for proxy, rho in rhos.items():
        measured = [row[key] for row in rows.values() if (key := f"{ON} {proxy}, 2x") in row]
        if measured:
            psnr, fraction = (fmean(each[name] for each in measured) for name in ("psnr", "compute_fraction"))
            ranked.append((rho, psnr, proxy, f"{fraction:.3f}"))
    ranked.sort(reverse=True)
    cells = [(proxy, f"{rho:.2f}", f"{psnr:.2f}", fraction) for rho, psnr, proxy, fraction in ranked]
    if len(ranked) > 2:
        agreement = float(spearmanr([rho for rho, *_ in ranked], [psnr for _, psnr, *_ in ranked]).statistic)
        cells.append(("Spearman's rho of both columns", "", f"{agreement:+.2f}", ""))
    return Table(("threshold on", "rho along steps", "PSNR, dB", "compute fraction"), cells)
