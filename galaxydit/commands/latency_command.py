"""`galaxydit latency`: seconds of a full and a reused step at the sizes of real models, with random weights."""

from pathlib import Path
from typing import Annotated

import typer

from galaxydit.commands.argument_checks import check_output_file
from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import say, show, show_json, step_bar
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.options import AsJson, Force
from galaxydit.errors import refusal, short_reason
from galaxydit.eval.latency.latency_rows import load
from galaxydit.eval.latency.latency_settings import LatencySettings
from galaxydit.eval.latency.latency_table import caption, latency_table, markdown
from galaxydit.pipelines.own_files import check_replaceable, own_json
from galaxydit.pipelines.written_by import LATENCY


def latency(
    *,
    settings: LatencySettings,
    out: Annotated[Path | None, typer.Option(help="The JSON to write, after every turn.")] = None,
    table: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Only show this JSON.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Time full and reused steps with random weights. The plugin and other methods at the sizes of Wan2.1, with a fixed
    list of full steps.
    """
    if table is not None:
        data = load(table)
        try:
            shown = markdown(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            expected = f"the JSON of a run with all of its values ({error!r})"
            raise refusal("--table", str(table), expected, "pass another, or measure again") from error
        if as_json:
            show_json(data)
        else:
            show(shown)
        return
    if out is not None:
        check_output_file(out, ".json")
        check_replaceable(out, "--out", own_json(LATENCY), force=force)
    say("loading torch")
    import torch

    from galaxydit.eval.latency.latency_run import LatencyRun
    from galaxydit.pipelines.memory import is_out_of_memory

    run = LatencyRun(settings)
    device = str(run.device)
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = short_reason(error, 120, named=False)
        raise refusal("--device", device, f"one that this machine has ({reason})", "pass for example cpu") from error
    out = out or Path(f"runs/latency/{settings.model}-{settings.size}-{device.replace(':', '')}.json")
    check_replaceable(out, "--out", own_json(LATENCY), force=force)
    finished = 0
    with step_bar("turn") as tell:

        def on_turn(done: int, turns: int) -> None:
            nonlocal finished
            finished = done
            tell(done, turns)

        try:
            data = run.measure(out, on_turn)
        except KeyboardInterrupt:
            if finished:
                say(f"stopped; `galaxydit latency --table {out}` shows the finished turns")
            else:
                say("stopped before the first turn, so nothing was written")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            expected = f"one that fits into the memory of {device} ({short_reason(error, 120, named=False)})"
            raise refusal("--size", settings.size, expected, "take a smaller --size or --model") from error
    if as_json:
        show_json(out)
    else:
        show(caption(data), latency_table(data["rows"]))
        text = "Weights are random: the seconds are those of the real model, the videos are noise."
        conclude([out], text, NextCommand("show this table again, as Markdown", ["latency", "--table", out]))
    if any(row["note"] for row in data["rows"]):
        raise typer.Exit(ExitCode.FAILED)
