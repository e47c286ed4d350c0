"""`galaxydit realism`: compare a Wan model with published measurements of the real Wan2.1 weights.

A step list says which steps are computed; `galaxydit.eval.realism.PARTS` lists the parts of the measurement. Of the
groups of options, `source` says which model is loaded, and `shape` the height, width and frames of its videos.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from galaxydit.commands import options
from galaxydit.commands.captions import WITH_CAPTIONS, Prompts, calibration_prompts, read_or_draw_prompts
from galaxydit.commands.checks import check_output_folder
from galaxydit.commands.console import resumable, show, show_json, table_of, working
from galaxydit.errors import check_choice, check_number, refusal
from galaxydit.eval.realism import PARTS, PSNR_PARTS, SHIFT_FACTOR, STEPS


def realism(
    *,
    source: options.WanTinyByDefault,
    prompts: Prompts = "16",
    out: Annotated[Path, typer.Option(help="Folder for realism.json and the plot.")] = Path("runs/realism"),
    shift_factor: Annotated[
        float | None, typer.Option(help="This flow shift / the published one; by default wan-tiny's own, else 1.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Prompts in one pipeline call.")] = 1,
    parts: Annotated[str, typer.Option(help="What to measure, with commas; by default everything.")] = "",
    shape: options.Shape,
    as_json: options.AsJson = False,
) -> None:
    """Measure what is published of Wan2.1, and show it beside the published numbers: PSNRs of step lists and of other
    projects' methods, the change of the model's prediction over each step (curvature), the effect of one step's error
    on the final latent (propagation), and the change of what the blocks add to their input (residual).

    The same command resumes: it measures only the parts that realism.json lacks.
    """
    check_output_folder(out)
    if shift_factor is not None:
        check_number("--shift-factor", shift_factor, 0.01, 100)
    wanted = [name.strip() for name in parts.split(",") if name.strip()] or list(PARTS)
    for name in wanted:
        check_choice("--parts", name, PARTS)
    reserved = calibration_prompts(None, source.model, "--calibration") if source.model == WITH_CAPTIONS else ()
    texts = read_or_draw_prompts(prompts, source.model, reserved)
    if inputs := [text for text in texts if text.startswith("{")]:
        expected = "texts alone, because the published runs are text-to-video"
        raise refusal("--prompts", inputs[0], expected, "leave it out")
    tuning = reserved or texts[:1]
    with working(f"loading {source.model}"):
        from galaxydit.calibration.published import load_published
        from galaxydit.eval.realism.measurements import Realism
        from galaxydit.eval.realism.plot import draw
        from galaxydit.eval.realism.step_lists import Cases

        pipe = source.load()
    settings = replace(shape.settings_for(pipe), steps=STEPS)
    factor = shift_factor or (SHIFT_FACTOR if source.model == WITH_CAPTIONS else 1.0)
    published = load_published()
    cases = Cases(texts, tuple(range(len(texts))), batch)
    reserved_cases = Cases(tuning, tuple(10_000 + index for index in range(len(tuning))), 1)
    with working("measuring") as tell, resumable(lambda: f"finished parts are in {out / 'realism.json'}"):
        measuring = Realism(pipe, published, cases, reserved_cases, settings, factor, tell)
        measured = measuring.run(out / "realism.json", wanted)
    draw(measured, published, out / "realism.png")
    if as_json:
        show_json(out / "realism.json")
        return
    show(*build_tables(measured, len(texts)), out / "realism.json")


def build_tables(measured: dict[str, Any], prompts: int) -> Iterator[Table]:
    """Yield a table of PSNRs for each measured part of `PSNR_PARTS`, then a table of the "goals": measures of agreement
    with the published numbers, each with its allowed range.

    `measured` is the content of realism.json, and `prompts` the number of prompts, for the titles.
    """
    for part in PSNR_PARTS:
        if part in measured:
            rows = []
            for row in measured[part]["rows"]:
                cells = (row["published"], row["mean"], row["mean"] - row["published"])
                rows.append((row["name"], *(f"{cell:.2f}" for cell in cells)))
            headings = ("published, dB", "here, dB", "difference")
            yield table_of(rows, [part], headings, title=f"{prompts} prompts")
    rows = []
    for goal in measured["goals"]:
        limits = (("at least", goal["minimum"]), ("at most", goal["maximum"]))
        allowed = " and ".join(f"{words} {limit:g}" for words, limit in limits if limit is not None)
        rows.append((goal["name"], f"{goal['value']:.3f}", allowed, "yes" if goal["holds"] else "no"))
    if "noise levels" in measured:
        rows.append(("half the steps at optimised noise levels, dB", f"{measured['noise levels']['mean']:.3f}", "", ""))
    yield table_of(rows, ["figure"], ("value", "allowed", "holds"))
