"""Rewrites the generated sections of the pages that show results: `python -m galaxydit.eval.results_page`.

A section lies between `<!-- made by: NAME -->` and `<!-- end -->`. Its numbers are those of the JSON files in
eval/results, so new data there and this command renew every page.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os.path import relpath
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from galaxydit.eval import protocol_readme, protocol_tables
from galaxydit.eval.compared import (
    GENERAL,
    OURS,
    PEER,
    RESULTS,
    ROOT,
    SHORT,
    ResultsFile,
    comparisons,
    kind_of,
    label,
    lead,
    read,
)
from galaxydit.eval.gpu.gpu_tables import parts_tables, pipelines_table
from galaxydit.eval.measure_commands import commands_section
from galaxydit.eval.methods.method_registry import CONTROL
from galaxydit.eval.model_page import page_sections
from galaxydit.eval.protocol_data import FLOAT32, runs_of
from galaxydit.eval.quality_over_speed import draw_quality
from galaxydit.eval.readme_sections import TUNED_IN_FULL, gains_section, peers_section
from galaxydit.eval.short_generations import OURS as GENERAL_PLAN
from galaxydit.eval.short_generations import SCHEDULED as AT_LEVELS
from galaxydit.eval.short_generations import differences as short_differences
from galaxydit.eval.tuning_cost import tuning_section
from galaxydit.pipelines.disturbance import DISTURBED
from galaxydit.pipelines.table import DASH, Table, number

RESULTS_PAGES = ("README.md", "compare/tables.md", "protocol-2/tables.md")
MODEL_PAGE = "pipelines/wan_tiny/README.md"
PAGES = ("README.md", MODEL_PAGE, *(f"eval/results/{name}" for name in RESULTS_PAGES))
SECTION = re.compile(r"(<!-- made by: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANS = "mean (worst), dB, by compute"
DRAWN_NOISE: dict[str, tuple[int, Callable[[Any], float]]] = {  # places and value of a caption
    "step error": (2, lambda row: fmean(row["accelerated"]["step_errors"])),
    "PSNR to the same draw": (1, lambda row: row["accelerated"]["psnr_same_draw"]),
    "to another plain draw": (1, lambda row: row["accelerated"]["psnr_other_draw"]),
    "of two plain draws": (1, lambda row: row["psnr_two_plain_draws"]),
    "flicker": (3, lambda row: row["accelerated"]["temporal_flickering"]),
    "flicker, plain": (3, lambda row: fmean(one["temporal_flickering"] for one in row["plain"])),
    "motions": (2, lambda row: row["accelerated"]["caption_motions"]),
    "motions, plain": (2, lambda row: fmean(one["caption_motions"] for one in row["plain"])),
}


def table(heading: str, speedups: Sequence[float], rows: Mapping[str, Callable[[float], str]]) -> str:
    """A table of one column for each speedup; `rows` give the cell at a speedup."""
    cells = [[name, *map(cell, speedups)] for name, cell in rows.items()]
    return Table((heading, *(f"{speedup:g}x" for speedup in speedups)), cells).markdown()


def lead_section(results: Path, page: Path) -> str:
    """For the first screen: PSNR, and the lead over each method that is its kind's strongest at some speedup.

    Peers count where all of their settings were tuned on every tuning caption.
    """
    best, *others = comparisons(results)
    tuned = next(group for group in others if group.runs[0].path.parent.name == TUNED_IN_FULL)
    nearest = dict.fromkeys(best.strongest(kind, at) for kind in (CONTROL, PEER) for at in best.speedups)
    rows: dict[str, Callable[[float], str]] = {f"{label(OURS)}, dB": lambda at: number(best.mean(OURS, at), ".1f")}
    for name in (*nearest, GENERAL):
        measured = tuned if kind_of(name) == PEER else best
        rows[f"minus {label(name)}"] = partial(measured.difference, OURS, name)
    where = [f"{len(group.captions)} captions, {group.runs[0].data['conditions']['device']}" for group in (best, tuned)]
    first = f"{where[0]}; peers: {where[1]}; {best.runs[0].data['conditions']['dtype']}"
    return f"{first}. {best.rounding()}\n\n{table('by compute', best.speedups, rows)}"


def comparison_section(results: Path, page: Path) -> str:
    """The comparison of the first screen in full; without seconds, if other work disturbed all of this project's."""
    best = comparisons(results)[0]
    pairs = [(OURS, name) for name in best.methods if name != OURS]
    pairs += [(GENERAL, name) for name in best.methods if name not in (OURS, GENERAL)]
    tables = {
        MEANS: {label(name): partial(best.psnr, name) for name in best.methods},
        "difference, dB, by compute": {f"{label(a)} - {label(b)}": partial(best.difference, a, b) for a, b in pairs},
    }
    if not all(DISTURBED in best.clock(OURS, at) for at in best.speedups):
        tables["seconds plain / with"] = {label(name): partial(best.clock, name) for name in best.methods}
    made = [table(heading, best.speedups, rows) for heading, rows in tables.items()]
    return "\n\n".join((best.caption(page), *made, best.commands()))


def others_section(results: Path, page: Path) -> str:
    """All other comparisons, with one difference each; other work disturbed their seconds."""
    parts = []
    for group in comparisons(results)[1:]:
        rows = []
        for name in group.methods:
            cells = [group.psnr(name, at) for at in group.speedups]
            ahead = "" if name == OURS else group.difference(OURS, name, SHORT)
            rows.append([label(name), *cells, ahead])
        more = f"calibrated minus it, {SHORT:g}x"
        made = Table((MEANS, *(f"{at:g}x" for at in group.speedups), more), rows).markdown()
        parts += [group.caption(page), made, group.commands()]
    return "\n\n".join(parts)


def drawn_noise_section(results: Path, page: Path) -> str:
    """Means (standard errors) over captions for each scheduler that draws noise."""
    rows = []
    for scheduler, captions in read(results / "drawn-noise" / "results.json")["captions"].items():
        cells = []
        for places, value in DRAWN_NOISE.values():
            values = [value(row) for row in captions]
            error = stdev(values) / len(values) ** 0.5
            cells.append(f"{fmean(values):.{places}f} ({error:.{places}f})")
        rows.append([f"{scheduler} ({len(captions)})", *cells])
    return Table(("scheduler (captions)", *DRAWN_NOISE), rows).markdown()


def short_generations_section(results: Path, page: Path) -> str:
    """By number of steps: the general schedule, plain steps at its levels, and their difference."""
    rows = []
    for steps, captions in sorted(read(results / "short-generations" / "results.json")["psnr"].items(), key=steps_of):
        means = [number(fmean(row[name] for row in captions.values()), ".1f") for name in (GENERAL_PLAN, AT_LEVELS)]
        rows.append([f"{steps} ({len(captions)})", *means, lead(short_differences(captions))])
    return Table(("steps (captions)", GENERAL_PLAN, AT_LEVELS, "difference"), rows).markdown()


def steps_of(item: tuple[str, Any]) -> int:
    return int(item[0])


def studies_section(results: Path, page: Path) -> str:
    """Paired differences: one decision for both branches, predictions under drawn noise, rules of correction."""
    psnrs: dict[Path, dict[str, dict[str, list[float]]]] = {}  # by file, by what is the same, by what differs
    alignment = ResultsFile(results / "alignment" / "results.json")
    for (method, at), row in alignment.results.items():
        psnrs.setdefault(alignment.path, {}).setdefault(f"{at:g}x", {})[method] = row["psnr_of_prompt"]
    noise, orders = results / "drawn-noise" / "orders.json", {"order 0": "accelerated", "order 1": "order 1"}
    for name, captions in read(noise)["captions"].items():
        same_draw = {order: [row[key]["psnr_same_draw"] for row in captions] for order, key in orders.items()}
        psnrs.setdefault(noise, {})[f"{name}, 2x"] = same_draw
    psnrs |= {path: read(path)["psnr"] for path in sorted((results / "corrections").glob("*.json"))}
    rows = []
    for path, cases in psnrs.items():
        for where, found in cases.items():
            (first, base), *others = found.items()
            for name, values in others:
                differences = [mine - its for mine, its in zip(base, values, strict=True)]
                link = f"[{path.relative_to(results).with_suffix('')}]({relpath(path, page.parent)})"
                rows.append([f"{first} - {name}", where, lead(differences), f"{len(values)}, {link}"])
    return Table(("difference", "at", "PSNR, dB", "captions, data"), rows, 4).markdown()


def draws_section(results: Path, page: Path) -> str:
    """Five default calibrations, after their first recordings and at their ends: their mean, lowest and highest."""
    psnrs: dict[str, dict[str, float]] = read(results / "calibration-draws" / "psnr.json")["psnr"]
    pairs = {
        "five calibrations - the shipped profile": ("draw", "anew"),
        "five calibrations - uncalibrated": ("draw", "general"),
        "after their first recording - uncalibrated": ("first", "general"),
    }
    rows = []
    for name, (kind, other) in pairs.items():
        means, ends = [name], ["lowest and highest of the five"]
        for speedup in ("15", "20", "25", "30", "40"):
            own = [found for key, found in psnrs.items() if re.fullmatch(rf"{kind}-\d-{speedup}", key)]
            base = psnrs[f"{other}-{speedup}"]
            captions = [caption for caption in base if own and all(caption in found for found in own)]
            ahead = [[found[caption] - base[caption] for caption in captions] for found in own]
            each = sorted(map(fmean, ahead)) if captions else []
            means.append(f"{lead(list(map(fmean, zip(*ahead, strict=True))))}, {len(captions)}" if captions else DASH)
            ends.append(f"{each[0]:+.1f} and {each[-1]:+.1f}" if captions else DASH)
        rows += [means, ends]
    return Table(("difference, dB, captions", "1.5x", "2x", "2.5x", "3x", "4x"), rows).markdown()


Section = Callable[[Path, Path], str]
"""Function from the folder of results and the path of a page to the section's Markdown."""


def where_measured(new: Section, earlier: Section) -> Section:
    """A section of protocol 2, or that of the earlier comparison while protocol 2 has no data."""

    def made(results: Path, page: Path) -> str:
        return (new if runs_of(results, FLOAT32) else earlier)(results, page)

    return made


SECTIONS: dict[str, Section] = {
    "commands": commands_section,
    "gains": gains_section,
    "peers": where_measured(protocol_readme.peers_section, peers_section),
    "lead": where_measured(protocol_readme.lead_section, lead_section),
    "equal-compute": protocol_tables.equal_compute_section,
    "equal-psnr": protocol_tables.equal_psnr_section,
    "other-methods": protocol_tables.other_methods_section,
    "bfloat16": protocol_tables.bfloat16_section,
    "calibrations": protocol_tables.draws_section,
    "tuning": tuning_section,
    "ideas": page_sections.ideas_section,
    "model-figures": page_sections.figures_section,
    "proxies": page_sections.proxies_section,
    "plans": page_sections.plans_section,
    "published-rows": page_sections.published_section,
    "comparison": comparison_section,
    "others": others_section,
    "draws": draws_section,
    "drawn-noise": drawn_noise_section,
    "short-generations": short_generations_section,
    "gpu": pipelines_table,
    "gpu-parts": parts_tables,
    "studies": studies_section,
}


def rewritten(text: str, page: Path, results: Path = RESULTS) -> str:
    """The text of a page with each section made again."""
    return SECTION.sub(lambda found: f"{found[1]}{SECTIONS[found[2]](results, page)}\n{found[3]}", text)


def main() -> None:
    for page in (ROOT / name for name in PAGES):
        page.write_text(rewritten(page.read_text(encoding="utf-8"), page), encoding="utf-8")
    draw_quality()


if __name__ == "__main__":
    main()
