"""The command `python tests/gpu/measure.py PART`: measures a part on this GPU, as far as the time limit allows."""

import argparse
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from galaxydit.errors import GalaxyDiTError, check_count, check_number, refusal
from galaxydit.eval.gpu.compositions_part import compositions_part
from galaxydit.eval.gpu.gpu_file import GpuFile
from galaxydit.eval.gpu.gpu_state import CHECKOUT, clocks_of, commit_of, versions_of
from galaxydit.eval.gpu.large_model_part import large_model_part
from galaxydit.eval.gpu.measured_video import Scale
from galaxydit.eval.gpu.pipeline_part import pipeline_part
from galaxydit.eval.gpu.turns import MeasuredPart, TimeLimit, run_part
from galaxydit.pipelines.conditions import product_name

PARTS = "abcd"
ABOUT = """Measure the plugin's speed on this GPU, on random weights of Wan2.1's shapes, which show no quality.
a: the 1.3B's whole pipeline, plain, 2x and 3x. b: its default calibration. c: 2x with attention backends and fp8.
d: the 14B at 720p. A second call continues after the last finished measurement."""


def main(arguments: Sequence[str] | None = None, *, started: float) -> int:
    """Run the command; `started` is `time.monotonic` at its start. Returns the exit status."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("galaxydit.eval.gpu").setLevel(logging.INFO)
    try:
        _measure(given, started)
    except GalaxyDiTError as error:
        logging.error("%s", error)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, help="the JSON; by default eval/results/gpu/measure-DEVICE.json")
    parser.add_argument("--limit", type=float, help="seconds, after which no measurement begins that would not fit")
    parser.add_argument("--rounds", type=int, default=3, help="of part a")
    parser.add_argument("--eager", action="store_true", help="do not compile the blocks in part a")
    parser.add_argument("--commit", help="of the code; by default git tells it")
    parser.add_argument("--tiny", action="store_true", help="a model and a video for tests, on any device; needs --out")
    parser.add_argument("--force", action="store_true", help="begin the file anew")
    return parser


def _measure(given: argparse.Namespace, started: float) -> None:
    check_count("--rounds", given.rounds, 1)
    if given.limit is not None:
        check_number("--limit", given.limit, 1.0, 1e6)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not given.tiny:
        raise refusal("device", "cpu", "a CUDA device", "run it on a GPU, or try it with --tiny")
    if given.tiny and given.out is None:
        raise refusal("--out", None, "a file, because tiny measurements are no results", "pass --out FILE")
    torch.manual_seed(0)
    name = product_name(device)
    path = given.out or _default_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = GpuFile.open(path, name, {"tiny": given.tiny, "eager": given.eager}, force=given.force)
    part = _part(given, Scale(device, given.tiny), file, TimeLimit(given.limit, started))
    session = {
        "part": given.part,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_of(given.commit),
        "versions": versions_of(device),
        "clocks_before": clocks_of(device),
    }
    file.begin(session)
    try:
        run_part(part, file, TimeLimit(given.limit, started), device)
    finally:
        file.end(clocks_of(device))


def _default_path(device: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-")
    return CHECKOUT / "eval" / "results" / "gpu" / f"measure-{name}.json"


def _part(given: argparse.Namespace, scale: Scale, file: GpuFile, limit: TimeLimit) -> MeasuredPart:
    if given.part == "a":
        return pipeline_part(scale, given.rounds, eager=given.eager)
    if given.part == "b":
        from galaxydit.eval.gpu.calibration_part import calibration_part  # imports the calibration

        return calibration_part(scale, file, limit)
    if given.part == "c":
        return compositions_part(scale)
    return large_model_part(scale)
