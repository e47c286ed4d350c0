"""Rewrites the generated sections of the pages that show results: `python -m galaxydit.eval.results_page`.

A section lies between `<!-- made by: NAME -->` and `<!-- end -->`. Its numbers are those of the JSON files in
eval/results, so new data there and this command renew every page.
"""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from galaxydit.eval import protocol_tables
from galaxydit.eval.compared import RESULTS, ROOT, NotMeasuredError, lead, read
from galaxydit.eval.gpu.gpu_tables import parts_tables, pipelines_table
from galaxydit.eval.measure_commands import commands_section
from galaxydit.eval.model_page import page_sections
from galaxydit.eval.quality_over_speed import draw_quality
from galaxydit.eval.readme_sections import gains_section, lead_section, peers_section
from galaxydit.eval.short_generations import OURS as GENERAL_PLAN
from galaxydit.eval.short_generations import SCHEDULED as AT_LEVELS
from galaxydit.eval.short_generations import differences as short_differences
from galaxydit.eval.tuning_cost import tuning_section
from galaxydit.pipelines.table import Table, number

NOT_YET = "Not measured yet."
MODEL_PAGE = "pipelines/wan_tiny/README.md"
PAGES = ("README.md", MODEL_PAGE, "eval/results/README.md", "eval/results/protocol-2/tables.md")
SECTION = re.compile(r"(<!-- made by: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
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


Section = Callable[[Path, Path], str]
"""Function from the folder of results and the path of a page to the section's Markdown."""


SECTIONS: dict[str, Section] = {
    "commands": commands_section,
    "gains": gains_section,
    "peers": peers_section,
    "lead": lead_section,
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
    "drawn-noise": drawn_noise_section,
    "short-generations": short_generations_section,
    "gpu": pipelines_table,
    "gpu-parts": parts_tables,
}


def rewritten(text: str, page: Path, results: Path = RESULTS) -> str:
    """The text of a page with each section made again."""

    def made(found: re.Match[str]) -> str:
        try:
            section = SECTIONS[found[2]](results, page)
        except NotMeasuredError:
            section = NOT_YET
        return f"{found[1]}{section}\n{found[3]}"

    return SECTION.sub(made, text)


def main() -> None:
    for page in (ROOT / name for name in PAGES):
        page.write_text(rewritten(page.read_text(encoding="utf-8"), page), encoding="utf-8")
    draw_quality()


if __name__ == "__main__":
    main()
