"""The tables of the README: what a user gains, and how fast other methods are at the same quality."""

from itertools import pairwise
from math import exp, log
from os.path import relpath
from pathlib import Path

from galaxydit.eval.compared import GENERAL, OURS, PEER, SHORT, Compared, comparisons, kind_of, label
from galaxydit.eval.gpu.gpu_tables import TimedPipeline, timed_pipelines
from galaxydit.eval.methods.method_registry import CONTROL
from galaxydit.eval.protocol_data import FLOAT32, protocol_data
from galaxydit.eval.protocol_readme import quality_note, quality_rows
from galaxydit.pipelines.table import DASH, Table, digits

TUNED_IN_FULL = "tuned-in-full"  # the folder of the comparison with the peers of the first screen
EVENLY = "fewer steps"
GAINED = (SHORT, 3.0)
OTHER_PEERS = ("DBCache planned masks", "DBCache + TaylorSeer", "EasyCache", "MagCache", "TeaCache", "FirstBlockCache")


def gains_section(results: Path, page: Path) -> str:
    """Seconds and kilojoules of a whole video, and PSNR with its two alternatives, at the speedups of the README."""
    timed = timed_pipelines(results)[0]
    rows = [
        timed_row("seconds per video", timed, "end_to_end_seconds", 1.0),
        timed_row("kilojoules per video", timed, "energy_per_video_joules", 1000.0),
    ]
    measured = protocol_data(results, FLOAT32)
    if measured is not None:
        rows += quality_rows(measured)
        return gains_table(rows, timed, results, page, quality_note(measured, results, page))
    best = comparisons(results)[0]
    strongest = [f"{best.mean(best.strongest(CONTROL, at), at):.1f}" for at in GAINED]
    rows += [
        ["PSNR, calibrated, dB", DASH, *psnr_cells(best, OURS)],
        ["PSNR, not calibrated, dB", DASH, *psnr_cells(best, GENERAL)],
        ["PSNR of fewer plain steps, at the best noise levels that we found, dB", DASH, *strongest],
        ["PSNR of fewer plain steps, at the scheduler's noise levels, dB", DASH, *psnr_cells(best, EVENLY)],
    ]
    data = relpath(best.runs[0].path, page.parent)
    note = (
        f"PSNR: [mean over {len(best.captions)} prompts]({data}) of the small model that ships here, in "
        f"{dtype_of(best)}, against the plain video of the same seed."
    )
    return gains_table(rows, timed, results, page, note)


def gains_table(rows: list[list[str]], timed: TimedPipeline, results: Path, page: Path, note: str) -> str:
    made = Table(("", "plain", *(f"`speedup={at:g}`" for at in GAINED)), rows).markdown()
    clock = relpath(timed.path, page.parent)
    blocks = "compiled" if timed.is_compiled else "eager"
    return (
        f"{made}\n\n"
        f"Seconds and kilojoules: Wan2.1-T2V-{timed.model}, 81 frames of 832x480, 50 steps, {blocks} blocks, "
        f"one {timed.device}, [random weights]({clock}), {timed.how}.\n"
        f"{note}"
    )


def timed_row(name: str, timed: TimedPipeline, field: str, unit: float) -> list[str]:
    values = [timed.row(at)[field] for at in (None, *GAINED)]
    return [name, *(DASH if value is None else digits(value / unit) for value in values)]


def psnr_cells(compared: Compared, method: str) -> list[str]:
    return [f"{compared.mean(method, at):.1f}" if compared.means(method, at) else DASH for at in GAINED]


def peers_section(results: Path, page: Path) -> str:
    """By method, the speedup by compute at which it has the mean PSNR that this project has at 2x."""
    every = comparisons(results)
    first, *others = [group for group in every if dtype_of(group) == dtype_of(every[0])]
    tuned = next(group for group in others if group.runs[0].path.parent.name == TUNED_IN_FULL)
    widest = max(others, key=lambda group: len(group.methods))
    shown = [(first, OURS)]
    shown += [(first, name) for name in dict.fromkeys(first.strongest(CONTROL, at) for at in first.speedups)]
    shown.append((first, EVENLY))
    shown += [(tuned, name) for name in tuned.methods if kind_of(name) == PEER]
    shown += [(widest, name) for name in OTHER_PEERS if name in widest.methods]
    rows = []
    for group, name in shown:
        target = group.mean(OURS, SHORT)
        psnr = f"{group.mean(name, SHORT):.1f}"
        rows.append([label(name), equally_good(group, name, target), psnr, f"{target:.1f}", str(len(group.captions))])
    headings = ("method", "speedup at galaxydit's PSNR", "its PSNR at 2x, dB", "galaxydit's PSNR at 2x, dB", "prompts")
    return Table(headings, rows).markdown()


def dtype_of(compared: Compared) -> str:
    return str(compared.runs[0].data["conditions"]["dtype"])


def equally_good(compared: Compared, method: str, psnr: float) -> str:
    """The speedup at which the method has this mean PSNR, interpolated in the logarithm of the speedup."""
    points = [(at, compared.mean(method, at)) for at in compared.speedups if compared.means(method, at)]
    if not points:
        return DASH
    if points[0][1] < psnr:
        return f"below {points[0][0]:g}x"
    for (slow, better), (fast, worse) in pairwise(points):
        if better >= psnr >= worse:
            share = 0.0 if better == worse else (better - psnr) / (better - worse)
            return f"{exp(log(slow) + share * (log(fast) - log(slow))):.2f}x"
    return f"above {points[-1][0]:g}x"
