"""`galaxydit latency`: latency of a step at real sizes, with random weights."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from galaxydit.commands.checks import check_output_file
from galaxydit.commands.console import messages, show, show_json, working
from galaxydit.commands.options import AsJson
from galaxydit.errors import check_choice, refusal
from galaxydit.eval.latency.latency_settings import LatencySettings

LEFT_OUT = ("probe ms", "speedup x fraction")  # columns of the markdown table for which a terminal has no room
MODES = {"eager": (False,), "compiled": (True,), "both": (False, True)}
Mode = Literal["eager", "compiled", "both"]


def latency(
    model: Annotated[str, typer.Option(help="1.3B, 14B or tiny: a Wan2.1 transformer of that shape.")] = "tiny",
    size: Annotated[str, typer.Option(help="480p, 720p, tiny or WIDTHxHEIGHTxFRAMES.")] = "tiny",
    steps: Annotated[int, typer.Option(min=4, help="Denoising steps.")] = 50,
    sampled_steps: Annotated[int, typer.Option(min=4, help="Steps run to time single ones.")] = 12,
    fraction: Annotated[float, typer.Option(help="Share of full steps that is forced.")] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each method.")] = 3,
    whole: Annotated[bool, typer.Option("--whole/--no-whole", help="Also run whole trajectories.")] = True,
    minutes: Annotated[float | None, typer.Option(min=0, help="Begin nothing that would end later.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this one; may be given again.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="By default both on a GPU, eager on a CPU.")] = None,
    backend: Annotated[str, typer.Option(help="Of torch.compile.")] = "inductor",
    proxy: Annotated[str, typer.Option(help="Which proxy is read.")] = "block_residual",
    device: Annotated[str | None, typer.Option(help="By default the GPU, if there is one.")] = None,
    dtype: Annotated[str | None, typer.Option(help="By default bfloat16 on a GPU, float32 on a CPU.")] = None,
    text_encoder: Annotated[bool, typer.Option("--text-encoder", help="Also time UMT5-XXL, 11 GB.")] = False,
    vae: Annotated[bool, typer.Option("--vae", help="Also time the video decoder.")] = False,
    host: Annotated[bool, typer.Option("--host/--no-host", help="Also time the hooks alone, on the CPU.")] = True,
    out: Annotated[Path | None, typer.Option(help="The JSON to write, after every turn.")] = None,
    table: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Only show this JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time Wan2.1 shapes with random weights and forced decisions, method by method."""
    if table is not None:
        from galaxydit.eval.latency.latency_rows import load
        from galaxydit.eval.latency.latency_table import markdown

        data = load(table)
        if as_json:
            show_json(table)
        else:
            show(markdown(data))
        return
    settings = LatencySettings(
        model=model,
        size=size,
        steps=steps,
        sampled_steps=min(sampled_steps, steps),
        fraction=fraction,
        repeats=repeats,
        whole=whole,
        minutes=minutes,
        methods=method or None,
        backend=backend,
        proxy=proxy,
        device="cpu" if device is None else device,  # checked before torch says whether there is a GPU
        dtype="float32" if dtype is None else dtype,
        text_encoder=text_encoder,
        vae=vae,
        host=host,
    )
    if out is not None:
        check_output_file(out, ".json")
    with working("loading torch"):
        import torch

        from galaxydit.eval.latency.latency_run import LatencyRun
        from galaxydit.eval.latency.latency_table import caption

    check_choice("--backend", backend, torch.compiler.list_backends(exclude_tags=()))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(device)
    on_gpu = device.startswith("cuda")
    settings = replace(
        settings,
        modes=MODES[mode or ("both" if on_gpu else "eager")],
        device=device,
        dtype=dtype or ("bfloat16" if on_gpu else "float32"),
    )
    out = out or Path(f"runs/latency/{model}-{size}-{device.replace(':', '')}.json")
    data = _run(LatencyRun, settings, out)
    if as_json:
        show_json(out)
        return
    show(caption(data))
    Console().print(build_table(data["rows"]))
    for name, microseconds in (data["host_microseconds_per_call"] or {}).items():
        show(f"host, {name}: {microseconds:+.0f} us a call")
    show(out)


def check_device(device: str) -> None:
    """Raise GalaxyDiTError unless torch can allocate memory on this device."""
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:120]
        raise refusal("--device", device, f"one that this machine has ({reason})", "pass for example cpu") from error


def _run(run: Any, settings: LatencySettings, out: Path) -> dict[str, Any]:
    from galaxydit.pipelines.generate import is_out_of_memory

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=messages(), transient=True) as progress:
        task = progress.add_task("starting", total=1.0)

        def tell(text: str, done: float) -> None:
            progress.update(task, description=text, completed=done)

        try:
            return run(settings, out, tell).measure()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            expected = f"one that fits into the memory of {settings.device} ({str(error).splitlines()[0][:120]})"
            raise refusal("--size", settings.size, expected, "take a smaller --size or --model") from error


def build_table(rows: list[dict[str, Any]]) -> Table:
    """The rows for a terminal of 80 columns: medians only, no empty columns; the JSON has the others."""
    from galaxydit.eval.latency.latency_table import COLUMNS, cells

    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), collapse_padding=True)
    names = [row["method"] + (", compiled" if row["compiled"] else "") for row in rows]
    table.add_column("", overflow="fold")  # the only one that may be folded
    shown = []
    for heading, *column in zip(COLUMNS, *(cells(row, quartiles=False) for row in rows), strict=True):
        if heading not in ("method", "blocks", *LEFT_OUT) and any(column):
            table.add_column("\n".join(heading.split()), justify="right", no_wrap=True)
            shown.append(column)
    for row in zip(names, *shown, strict=True):
        table.add_row(*row)
    return table
