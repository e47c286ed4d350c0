"""The generated sections of wan-tiny's page, and the table of the paper's ideas, from eval/results/wan-tiny.

Each function takes the folder of results and the path of the page; NotMeasuredError is raised without data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from galaxydit.eval.compared import NotMeasuredError, read
from galaxydit.eval.measured_rows import CONDITIONS
from galaxydit.eval.model_page.evaluation_figures import Figure
from galaxydit.eval.model_page.idea_tables import differences_table, ranking_table, variants_table
from galaxydit.eval.model_page.plans_per_video import plans_table
from galaxydit.eval.model_page.published_table import published_table
from galaxydit.pipelines.table import DASH, Table
from galaxydit.proxies import PROXIES

FOLDER = "wan-tiny"
FIGURES, PLANS, ROWS, IDEAS = "figures.json", "plans.json", "rows.json", "ideas.json"
FORMER_ROWS = "rows-former.json"
GOALS = {
    "colours found": 0.98,
    "motions and stillness found": 0.95,
    "directions found": 0.95,
    "shapes found": 0.85,
    "autoencoder's reconstruction, dB": 37.0,
    "25 plain steps against 50, dB": None,
    "branch difference of block 0, step 0": 0.01,
    "branch difference of block 0, step 10": 0.01,
    "branch difference of block 0, step 25": 0.01,
    "branch difference of block 0, step 49": 0.01,
    "spread of log grey contrast": 0.4,
    "spread of log true change, steps 5 to 45": None,
    "spread of its shape": 0.25,
    "spread of log true change, steps 25 to 45": 0.2,
}
"""By figure, the least value that it should have; None for a figure without a goal."""
WORDS = "attention on words, block "


def figures_section(results: Path, page: Path) -> str:
    """The figures of the model with their goals; of the attention on words, the block that has least."""
    return goals_table(figures_in(read(results / FOLDER / FIGURES))).markdown()


def proxies_section(results: Path, page: Path) -> str:
    """Spearman's rho of each proxy with the error of reuse."""
    return proxies_table(figures_in(read(results / FOLDER / FIGURES))).markdown()


def plans_section(results: Path, page: Path) -> str:
    return plans_table(read(results / FOLDER / PLANS)).markdown()


def ideas_section(results: Path, page: Path) -> str:
    """The variants by which the paper's ideas are judged, and their differences."""
    content, figures = read(results / FOLDER / IDEAS), figures_in(read(results / FOLDER / FIGURES))
    versions = ", ".join(map(" ".join, content[CONDITIONS]["versions"].items()))
    rows = content["rows"]
    rhos = {name: figure.value for name in PROXIES if (figure := figures.get(along_steps(name)))}
    tables = (variants_table(rows), differences_table(rows), ranking_table(rows, rhos))
    return "\n\n".join((f"{content['device']}, float32, {versions}.", *(table.markdown() for table in tables)))


def published_section(results: Path, page: Path) -> str:
    """Published PSNRs of Wan2.1 beside those of the shipped weights, and of the former ones if they were measured."""
    models = {}
    for name, file in (("wan-tiny", ROWS), ("former weights", FORMER_ROWS)):
        if (results / FOLDER / file).exists():
            models[name] = read(results / FOLDER / file)
    if not models:
        raise NotMeasuredError(f"no {ROWS} in {results / FOLDER}")
    return published_table(models).markdown()


def figures_in(content: Mapping[str, Any]) -> dict[str, Figure]:
    """By name, the figures of the file that `evaluate` writes."""
    return {each["name"]: Figure(**each) for each in content["figures"]}


def goals_table(figures: Mapping[str, Figure]) -> Table:
    rows = []
    for name, least in GOALS.items():
        rows.append(_with_goal(name, figures[name], least))
    least_words = min((figures[name] for name in figures if name.startswith(WORDS)), key=lambda figure: figure.value)
    rows.append(_with_goal("attention on words, of the block that has least", least_words, 0.5))
    return Table(("figure", "value", "95 % interval", "n", "goal: at least"), rows)


def _with_goal(name: str, figure: Figure, least: float | None) -> tuple[str, ...]:
    goal = DASH if least is None else f"{least:g}"
    if least is not None and figure.value < least:
        goal = f"{goal}, **not reached**"
    return (name, f"{figure.value:.3g}", figure.interval_text, str(figure.count), goal)


def along_steps(proxy: str) -> str:
    return f"rho of {proxy} along steps"


def proxies_table(figures: Mapping[str, Figure]) -> Table:
    rows = []
    for name in PROXIES:
        along, between = figures.get(along_steps(name)), figures.get(f"rho of {name} between videos")
        if along is not None and between is not None:
            cells = [f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})" for figure in (along, between)]
            rows.append((along.value, (name, *cells)))
    rows.sort(reverse=True)
    return Table(("proxy", "rho along steps", "rho between videos"), [cells for _, cells in rows])
