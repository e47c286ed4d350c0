"""The tables of protocol 2: PSNR at equal compute, speed at equal PSNR, other methods, and bfloat16."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from galaxydit.eval.compared import GENERAL, OURS, NotMeasuredError, label, lead
from galaxydit.eval.protocol_data import (
    BFLOAT16,
    FIRST,
    FLOAT32,
    PLAIN_CONTROLS,
    REPEATED,
    SPEEDUPS,
    Measured,
    ProtocolData,
    is_same,
    protocol_data,
    runs_of,
)
from galaxydit.pipelines.psnr import HIGHEST_PSNR
from galaxydit.pipelines.table import DASH, Table

DRAW = f"{OURS} "  # before the name of the profile of another calibration
RATIO = "galaxydit's speed / that of the method"
SHORT = 2.0  # the speedup of tables with many methods


def equal_compute_section(results: Path, page: Path) -> str:
    """PSNR of the first table's methods at each speedup, and the pairs that the protocol names."""
    return _equal_compute(results, FLOAT32)


def bfloat16_section(results: Path, page: Path) -> str:
    """The first table's methods in bfloat16, as far as they were measured, with what rounding leaves."""
    return _equal_compute(results, BFLOAT16)


def _equal_compute(results: Path, dtype: str) -> str:
    data = protocol_data(results, dtype)
    return "\n\n".join((conditions_of(data), psnr_table(data).markdown(), difference_table(data).markdown()))


def equal_psnr_section(results: Path, page: Path) -> str:
    """For each target, how fast the methods of the first table are where they are as good."""
    data = protocol_data(results, FLOAT32)
    parts = [conditions_of(data)]
    for target in SPEEDUPS:
        ours = data.at(target)
        parts.append(f"As good as galaxydit calibrated at {ours.speedup:.2f}x, {ours.mean:.1f} dB:")
        parts.append(speed_table(data, target).markdown())
    return "\n\n".join(parts)


def other_methods_section(results: Path, page: Path) -> str:
    """All methods beside the first table's, at 2x: PSNR, difference, and speed where they are as good."""
    data = other_methods(results)
    if data is None:
        raise NotMeasuredError("no results of other methods")
    ours = data.at(SHORT)
    rows = []
    for name in data.methods:
        difference = DASH if name == OURS else difference_at(data, OURS, (name,), SHORT)
        good, _, ratio = at_equal_psnr(data, name, SHORT)
        rows.append([label(name), cell_at(data, name, SHORT), difference, speed_of(good), ratio])
    headings = (
        "method",
        f"PSNR (worst), dB, at {ours.speedup:.2f}x",
        "calibrated minus it, dB",
        f"fastest with {ours.mean:.1f} dB",
        RATIO,
    )
    return f"{conditions_of(data)}\n\n{Table(headings, rows).markdown()}"


def draws_section(results: Path, page: Path) -> str:
    """Default calibrations on other captions each, against the general schedule: their mean, worst and best."""
    names = [name for name in methods_in(results, FLOAT32) if name.startswith(DRAW)]
    if not names:
        raise NotMeasuredError("no results of other calibrations")
    data = protocol_data(results, FLOAT32, [GENERAL, *names])
    means, ends = [f"{len(names)} calibrations - {label(GENERAL)}"], ["worst and best of the calibrations"]
    for speedup in SPEEDUPS:
        general = data.requested(GENERAL, speedup)
        found = [row for name in names if (row := data.requested(name, speedup)) is not None]
        if general is None or not found:
            means.append(DASH)
            ends.append(DASH)
            continue
        ahead = [row.minus(general) for row in found]
        each = sorted(map(fmean, ahead))
        means.append(lead([fmean(values) for values in zip(*ahead, strict=True)]))
        ends.append(f"{each[0]:+.1f} and {each[-1]:+.1f}")
    made = Table(("difference, dB", *(f"`speedup={speedup:g}`" for speedup in SPEEDUPS)), [means, ends]).markdown()
    return f"{conditions_of(data)}\n\n{made}"


def methods_in(results: Path, dtype: str) -> Counter[str]:
    """By method, the number of captions in the files of a dtype."""
    counts: dict[str, set[str]] = {}
    for run in runs_of(results, dtype):
        for row in run.data["rows"]:
            counts.setdefault(row["method"], set()).update(run.captions)
    return Counter({name: len(captions) for name, captions in counts.items()})


def other_methods(results: Path) -> ProtocolData | None:
    """The methods beyond the first table that finished the captions which most of them finished, and this project's."""
    counts = methods_in(results, FLOAT32)
    others = {name: count for name, count in counts.items() if name not in FIRST and not name.startswith(DRAW)}
    if not others:
        return None
    ((usual, _),) = Counter(others.values()).most_common(1)
    names = [name for name, count in others.items() if count >= usual]
    return protocol_data(results, FLOAT32, [OURS, *names])


def conditions_of(data: ProtocolData) -> str:
    """Captions, processors, dtype and versions in a sentence, the PSNR of rounding, and methods without data."""
    versions = " ".join(f"{name} {version}," for name, version in data.conditions["versions"].items()).rstrip(",")
    devices = [name if len(data.devices) == 1 else f"{name} ({count})" for name, count in data.devices.items()]
    captions = f"n = {len(data.captions)} captions" if len(data.captions) > 1 else "one caption"
    where = (
        f"{captions}, {data.conditions['settings']['steps']} steps, {data.conditions['dtype']}, {', '.join(devices)}"
    )
    floor = rounding(data)
    note = "" if floor is None else f" Rounding alone leaves {floor} dB between two plain runs."
    if data.absent:
        note += f" Without data: {', '.join(map(label, data.absent))}."
    return f"{where}, {versions}.{note}"


def rounding(data: ProtocolData) -> str | None:
    """Mean PSNR in dB between two plain runs, None if it was not measured; equal videos count as `HIGHEST_PSNR`."""
    for row in data.settings:
        if row.method == REPEATED:
            least = "at least " if max(row.values) >= HIGHEST_PSNR else ""
            return f"{least}{row.mean:.1f}"
    return None


def psnr_table(data: ProtocolData) -> Table:
    """Mean (worst caption) of each method at each speedup; bold for the strongest control and the strongest peer."""
    rows = []
    for name in data.methods:
        rows.append([name_of(name), *(cell_at(data, name, speedup) for speedup in SPEEDUPS)])
    return Table(("mean (worst), dB", *headings_of(data)), rows)


def headings_of(data: ProtocolData) -> list[str]:
    return [f"{data.at(speedup).speedup:.2f}x" for speedup in SPEEDUPS]


def name_of(method: str) -> str:
    return f"{method}, without speedup" if method == REPEATED else label(method)


def cell_at(data: ProtocolData, method: str, speedup: float) -> str:
    """PSNR of a method at a requested speedup, or of its settings on both sides with their own speedups."""
    if method == REPEATED:
        floor = rounding(data)
        return floor or DASH
    wanted = data.at(speedup).speedup
    text = on_both_sides(data, method, wanted, lambda row: f"{row.mean:.1f} ({min(row.values):.1f})")
    strongest = [data.strongest(kind, wanted) for kind in (PLAIN_CONTROLS, data.peers)]
    return in_bold(text, method in strongest)


def on_both_sides(data: ProtocolData, method: str, speedup: float, text_of: Callable[[Measured], str]) -> str:
    """Text of the setting with this speedup, or of the next slower and faster ones, each with its own speedup."""
    texts = []
    for row in data.around(method, speedup):
        if row is not None:
            text = text_of(row)
            texts.append(text if is_same(row.speedup, speedup) else f"at {row.speedup:.2f}x: {text}")
    return "; ".join(texts) or DASH


def in_bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold and text != DASH else text


def difference_table(data: ProtocolData) -> Table:
    """Differences of PSNR with intervals; to settings on both sides where a method has none of the same speedup."""
    others = [name for name in data.methods if name not in (OURS, GENERAL, REPEATED)]
    pairs = [(OURS, (GENERAL,)), (OURS, PLAIN_CONTROLS)]
    pairs += [(OURS, (name,)) for name in others]
    pairs.append((GENERAL, PLAIN_CONTROLS))
    pairs += [(GENERAL, (name,)) for name in others if name not in PLAIN_CONTROLS]
    rows = []
    for method, compared in pairs:
        other = "the strongest control" if compared == PLAIN_CONTROLS else label(compared[0])
        cells = [difference_at(data, method, compared, speedup) for speedup in SPEEDUPS]
        rows.append([f"{label(method)} - {other}", *cells])
    return Table(("difference, dB", *headings_of(data)), rows)


def difference_at(data: ProtocolData, method: str, others: Sequence[str], speedup: float) -> str:
    """PSNR of a method at a requested speedup less that of the strongest of `others`, on both sides of the speedup.

    The strongest one is chosen among the settings with at least as much compute.
    """
    ours = data.requested(method, speedup)
    if ours is None:
        return DASH
    other = data.strongest(others, ours.speedup)
    return on_both_sides(data, other, ours.speedup, lambda row: lead(ours.minus(row)))


def speed_table(data: ProtocolData, target: float) -> Table:
    """The fastest setting of each method that is as good as this project at `target`, and the next faster one."""
    ours = data.at(target)
    rows = []
    for name in data.methods:
        if name == REPEATED:
            continue
        good, faster, ratio = at_equal_psnr(data, name, target)
        rows.append([label(name), speed_of(good), away(good, ours), speed_of(faster), away(faster, ours), ratio])
    headings = (
        "method",
        "fastest as good",
        "its PSNR minus galaxydit's, dB",
        "next faster",
        "its PSNR minus galaxydit's, dB",
    )
    return Table((*headings, RATIO), rows)


def at_equal_psnr(data: ProtocolData, method: str, target: float) -> tuple[Measured | None, Measured | None, str]:
    """The fastest setting that is as good as this project at `target`, the next faster one, and `ratio_of` both."""
    ours = data.at(target)
    good, faster = data.as_good(method, ours.mean)
    if method == OURS:
        return ours, faster, "1.00"
    return good, faster, ratio_of(ours, good, faster)


def speed_of(row: Measured | None) -> str:
    return "none" if row is None else f"{row.speedup:.2f}x"


def away(row: Measured | None, ours: Measured) -> str:
    return DASH if row is None else lead(row.minus(ours))


def ratio_of(ours: Measured, good: Measured | None, faster: Measured | None) -> str:
    """How many times as fast this project is as another method of equal PSNR.

    The other's speedup lies between those of its settings on both sides, so the ratio is a range.
    """
    least = "" if faster is None else f"{ours.speedup / faster.speedup:.2f}"
    if good is None:
        return f"above {least}" if least else DASH
    most = f"{ours.speedup / good.speedup:.2f}"
    if not least:
        return f"below {most}"
    return f"{least} to {most}"


def mean_psnr(data: ProtocolData, method: str, speedup: float) -> str:
    """Mean PSNR of a method at a requested speedup, or of its settings on both sides."""
    return on_both_sides(data, method, data.at(speedup).speedup, lambda row: f"{row.mean:.1f}")
