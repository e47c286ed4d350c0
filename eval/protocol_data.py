"""The measured settings of protocol 2, from every results.json below eval/results/protocol-2, without interpolation."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from galaxydit.calibration.bootstrap import interval
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.equal_compute import SAME_SPEEDUP
from galaxydit.eval.compare.tune import pareto_front
from galaxydit.eval.compared import GENERAL, OURS, PEER, NotMeasuredError, ResultsFile, kind_of
from galaxydit.pipelines.psnr import HIGHEST_PSNR

FOLDER = "protocol-2"
FLOAT32, BFLOAT16 = "float32", "bfloat16"
REPEATED = "repeated plain run"
PLAIN_CONTROLS = ("plain at scheduled levels", "optimised noise levels", "fewer steps")
FIRST_PEERS = ("SeaCache order 1", "TaylorSeer", "DBCache planned masks", "Spectrum")
FIRST = (OURS, GENERAL, *PLAIN_CONTROLS, REPEATED, *FIRST_PEERS)
"""The methods of the first table, which all captions are scored with."""
SPEEDUPS = (1.5, 2.0, 3.0)  # columns, and targets whose PSNRs other methods are asked for


@dataclass(frozen=True)
class Measured:
    """A method at one setting: PSNR in dB and compute fraction of its videos, by caption."""

    method: str
    setting: Mapping[str, Any]
    psnrs: Mapping[str, float]
    fractions: Mapping[str, float]

    @property
    def speedup(self) -> float:
        return 1 / fmean(self.fractions.values())

    @property
    def values(self) -> list[float]:
        return list(self.psnrs.values())

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def interval(self) -> tuple[float, float] | tuple[None, None]:
        return interval(self.values)

    def of(self, captions: Sequence[str]) -> "Measured":
        """The same setting on these captions, in their order."""
        psnrs = {caption: self.psnrs[caption] for caption in captions}
        return replace(self, psnrs=psnrs, fractions={caption: self.fractions[caption] for caption in captions})

    def minus(self, other: "Measured") -> list[float]:
        """Differences of PSNR in dB, by caption."""
        return [psnr - other.psnrs[caption] for caption, psnr in self.psnrs.items()]


@dataclass(frozen=True)
class ProtocolData:
    """Settings of several methods, each measured on all of the captions.

    conditions: what all videos share. devices: number of captions by processor. absent: wanted methods without data.
    """

    settings: Sequence[Measured]
    captions: tuple[str, ...]
    conditions: Mapping[str, Any]
    devices: Mapping[str, int]
    absent: Sequence[str] = ()

    @cached_property
    def methods(self) -> list[str]:
        """This project's, controls, then the others, each by PSNR at 2x."""
        kinds = {OURS: 0, GENERAL: 1} | {name: 2 for name in (*PLAIN_CONTROLS, REPEATED)}

        def place(name: str) -> tuple[int, bool, float]:
            shown = self.with_as_much_compute(name, self.at(2.0).speedup)
            return kinds.get(name, 3), name == REPEATED, -(shown.mean if shown else 0.0)

        return sorted(dict.fromkeys(row.method for row in self.settings), key=place)

    @cached_property
    def fronts(self) -> dict[str, list[Measured]]:
        """By method, slowest first, the settings that no other one of it beats in both compute and PSNR.

        Settings that left a video unchanged are ignored, because their PSNR stands for infinity.
        """
        by_method: dict[str, list[Measured]] = {}
        for row in self.settings:
            if max(row.values) < HIGHEST_PSNR:
                by_method.setdefault(row.method, []).append(row)
        return {name: pareto_front(rows, lambda row: (row.speedup, row.mean)) for name, rows in by_method.items()}

    def requested(self, method: str, speedup: float) -> Measured | None:
        """The setting that names this speedup, which a user who requests it gets."""
        for row in self.settings:
            if row.method == method and row.setting.get("speedup") == speedup:
                return row
        return None

    def at(self, speedup: float) -> Measured:
        """This project's calibrated schedule at a requested speedup; raises GalaxyDiTError without one."""
        found = self.requested(OURS, speedup)
        if found is None:
            raise GalaxyDiTError(f"no results of {OURS!r} at {speedup:g}x", "score it, too")
        return found

    def around(self, method: str, speedup: float) -> tuple[Measured | None, Measured | None]:
        """The fastest setting of a method that is not faster than `speedup`, and the next faster one.

        A setting with exactly this speedup stands alone.
        """
        for row in self.settings:
            if row.method == method and "speedup" in row.setting and is_same(row.speedup, speedup):
                return row, None
        slower, faster = None, None
        for row in self.fronts.get(method, ()):
            if is_same(row.speedup, speedup):
                return row, None
            if row.speedup < speedup:
                slower = row
            elif faster is None:
                faster = row
        return slower, faster

    def with_as_much_compute(self, method: str, speedup: float) -> Measured | None:
        """The fastest setting of a method that is not faster than `speedup`; the slowest one if all are faster."""
        slower, faster = self.around(method, speedup)
        return slower or faster

    def as_good(self, method: str, psnr: float) -> tuple[Measured | None, Measured | None]:
        """The fastest setting of a method whose mean PSNR is at least `psnr` in dB, and the next faster one."""
        good, next_faster = None, None
        for row in self.fronts.get(method, ()):
            if row.mean >= psnr:
                good = row
            elif next_faster is None:
                next_faster = row
        return good, next_faster

    def strongest(self, methods: Iterable[str], speedup: float) -> str:
        """The method with the highest mean PSNR among the settings that have at least as much compute."""
        means = {}
        for name in methods:
            found = self.with_as_much_compute(name, speedup)
            if found is not None:
                means[name] = found.mean
        return max(means, key=lambda name: means[name], default="")

    @property
    def peers(self) -> list[str]:
        return [name for name in self.methods if kind_of(name) == PEER]


def is_same(speedup: float, other: float) -> bool:
    return math.isclose(speedup, other, rel_tol=SAME_SPEEDUP)


def runs_of(results: Path, dtype: str) -> list[ResultsFile]:
    """The files of a dtype. Raises GalaxyDiTError if their conditions differ in more than the processor."""
    runs = [ResultsFile(path) for path in sorted((results / FOLDER).rglob("results.json"))]
    runs = [run for run in runs if run.data["conditions"]["dtype"] == dtype]
    known = {_shared(run): run for run in reversed(runs)}
    if len(known) > 1:
        paths = " and ".join(str(run.path) for run in known.values())
        raise GalaxyDiTError(f"{paths} were measured under different conditions", "measure them again, alike")
    return runs


def _shared(run: ResultsFile) -> str:
    shared = {name: value for name, value in run.data["conditions"].items() if name != "device"}
    return json.dumps(shared, sort_keys=True)


def protocol_data(results: Path, dtype: str, methods: Sequence[str] = FIRST) -> ProtocolData:
    """The settings of these methods on the captions that all of them finished; methods without any data do not count.

    Raises NotMeasuredError without a caption, and GalaxyDiTError if one caption was measured on two processors.
    """
    found: dict[tuple[str, str], Measured] = {}
    devices: dict[str, str] = {}
    runs = runs_of(results, dtype)
    for run in runs:
        for row in run.data["rows"]:
            if row["method"] in methods:
                _add(found, devices, run, row)
    present = {row.method for row in found.values()}
    finished = [_captions_of(found.values(), method) for method in present]
    captions = [caption for caption in devices if all(caption in each for each in finished)]
    if not captions:
        raise NotMeasuredError(f"{results / FOLDER} has no {dtype} results", "run the commands of protocol-2.md first")
    settings = [row.of(captions) for row in found.values() if row.psnrs.keys() >= set(captions)]
    counts = Counter(devices[caption] for caption in captions)
    absent = [method for method in methods if method not in present]
    return ProtocolData(settings, tuple(captions), runs[0].data["conditions"], counts, absent)


def _add(
    found: dict[tuple[str, str], Measured], devices: dict[str, str], run: ResultsFile, row: Mapping[str, Any]
) -> None:
    """Add a row of a file; of two rows with the same setting and caption, the first counts."""
    device = run.data["conditions"]["device"]
    key = (row["method"], json.dumps(row["setting"], sort_keys=True))
    known = found.setdefault(key, Measured(row["method"], row["setting"], {}, {}))
    psnrs = dict(zip(run.captions, row["psnr_of_prompt"], strict=True))
    for caption in psnrs:
        if devices.setdefault(caption, device) != device:
            message = f"{run.path} has {caption!r} on {device}, other files on {devices[caption]}"
            raise GalaxyDiTError(message, "measure all methods of a caption on one processor")
    fractions = dict.fromkeys(psnrs, row["compute_fraction"])
    found[key] = replace(known, psnrs={**psnrs, **known.psnrs}, fractions={**fractions, **known.fractions})


def _captions_of(settings: Iterable[Measured], method: str) -> set[str]:
    """The captions on which a method has any setting."""
    captions: set[str] = set()
    for row in settings:
        if row.method == method:
            captions.update(row.psnrs)
    return captions
