"""The README's tables: what a user gains, and how other methods compare, from timed pipelines and protocol 2."""

from os.path import relpath
from pathlib import Path

from galaxydit.eval.compared import GENERAL, OURS, label
from galaxydit.eval.gpu.gpu_tables import TimedPipeline, timed_pipelines
from galaxydit.eval.protocol_data import (
    FIRST_PEERS,
    FLOAT32,
    FOLDER,
    PLAIN_CONTROLS,
    SPEEDUPS,
    ProtocolData,
    protocol_data,
)
from galaxydit.eval.protocol_tables import (
    RATIO,
    SHORT,
    at_equal_psnr,
    conditions_of,
    difference_at,
    headings_of,
    mean_psnr,
    other_methods,
    speed_of,
)
from galaxydit.pipelines.table import DASH, Table, digits

GAINED = (SHORT, 3.0)
AT_LEVELS, SEARCHED, EVENLY = PLAIN_CONTROLS
TABLES = Path(FOLDER) / "tables.md"
KNOWN_PEERS = ("EasyCache", "MagCache", "TeaCache", "DiCache", "FirstBlockCache", "DBCache + TaylorSeer")


def gains_section(results: Path, page: Path) -> str:
    """Seconds and kilojoules of a whole video, and PSNR with its two alternatives, at the speedups of the README."""
    data, timed = protocol_data(results, FLOAT32), timed_pipelines(results)[0]
    rows = [
        timed_row("seconds per video", timed, "end_to_end_seconds", 1.0),
        timed_row("kilojoules per video", timed, "energy_per_video_joules", 1000.0),
        *quality_rows(data),
    ]
    made = Table(("", "plain", *(f"`speedup={at:g}`" for at in GAINED)), rows).markdown()
    clock, tables = (relpath(path, page.parent) for path in (timed.path, results / TABLES))
    blocks = "compiled" if timed.is_compiled else "eager"
    return (
        f"{made}\n\n"
        f"Seconds and kilojoules: Wan2.1-T2V-{timed.model}, 81 frames of 832x480, 50 steps, {blocks} blocks, "
        f"one {timed.device}, [random weights]({clock}), {timed.how}.\n"
        f"PSNR: [mean over {len(data.captions)} prompts]({tables}) of the small model that ships here, in "
        f"{data.conditions['dtype']}, against the plain video of the same seed. Brackets are 95 % intervals."
    )


def timed_row(name: str, timed: TimedPipeline, field: str, unit: float) -> list[str]:
    values = [timed.row(at)[field] for at in (None, *GAINED)]
    return [name, *(DASH if value is None else digits(value / unit) for value in values)]


def quality_rows(data: ProtocolData) -> list[list[str]]:
    """Rows of the first table: PSNR of this project and of plain steps, and the lead over the strongest of those."""
    methods = {
        "PSNR, calibrated, dB": OURS,
        "PSNR, not calibrated, dB": GENERAL,
        "PSNR of fewer plain steps, at the noise levels that the calibrated galaxydit follows, dB": AT_LEVELS,
        "PSNR of fewer plain steps, at noise levels that a search found, dB": SEARCHED,
        "PSNR of fewer plain steps, at the scheduler's noise levels, dB": EVENLY,
    }
    rows = [[name, DASH, *(mean_psnr(data, method, at) for at in GAINED)] for name, method in methods.items()]
    differences = [difference_at(data, OURS, PLAIN_CONTROLS, speedup) for speedup in GAINED]
    uncalibrated = [difference_at(data, GENERAL, PLAIN_CONTROLS, speedup) for speedup in GAINED]
    rows.append(["calibrated minus the best of the plain steps, dB", DASH, *differences])
    rows.append(["not calibrated minus the best of the plain steps, dB", DASH, *uncalibrated])
    return rows


def lead_section(results: Path, page: Path) -> str:
    """PSNR of the calibrated schedule, and its lead over controls, peers and the general schedule."""
    data = protocol_data(results, FLOAT32)
    rows = [[f"{label(OURS)}, dB", *(mean_psnr(data, OURS, speedup) for speedup in SPEEDUPS)]]
    compared: dict[str, tuple[str, ...]] = {"the strongest control": PLAIN_CONTROLS}
    compared |= {label(name): (name,) for name in data.methods if name in (*PLAIN_CONTROLS, *FIRST_PEERS)}
    compared[label(GENERAL)] = (GENERAL,)
    for name, others in compared.items():
        rows.append([f"minus {name}", *(difference_at(data, OURS, others, speedup) for speedup in SPEEDUPS)])
    made = Table(("by compute", *headings_of(data)), rows).markdown()
    return f"{conditions_of(data)}\n\n{made}"


def peers_section(results: Path, page: Path) -> str:
    """By method, the speedup of its fastest setting that is as good as this project at 2x, and its PSNR at 2x."""
    first, others = protocol_data(results, FLOAT32), other_methods(results)
    shown = [(first, name) for name in (OURS, *PLAIN_CONTROLS)]
    shown += [(first, name) for name in first.methods if name in FIRST_PEERS]
    if others is not None:
        shown += [(others, name) for name in others.methods if name in KNOWN_PEERS]
    rows = []
    for data, name in shown:
        ours = data.at(SHORT)
        good, _, ratio = at_equal_psnr(data, name, SHORT)
        psnr, count = mean_psnr(data, name, SHORT), str(len(data.captions))
        rows.append([label(name), speed_of(good), ratio, psnr, f"{ours.mean:.1f}", count])
    headings = (
        "method",
        "fastest setting as good as galaxydit at 2x",
        RATIO,
        "PSNR of the method at 2x, dB",
        "PSNR of galaxydit at 2x, dB",
        "prompts",
    )
    return Table(headings, rows).markdown()
