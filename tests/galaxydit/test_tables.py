"""Every table that a command prints fits a terminal of 80 columns, and no cell is cut."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from io import StringIO
from logging import WARNING, LogRecord
from typing import Any

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from galaxydit.calibration.profile_tables import PAGE_ONLY, ranking_table, terminal_tables
from galaxydit.cli import app, not_of_extensions
from galaxydit.commands import compare_command, demo_command, inspect_command, latency_command, vbench_command
from galaxydit.commands.console import wrapped
from galaxydit.description import TransformerDescription
from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.compare.equal_compute import AtSpeedup
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.demo import DemoResult
from galaxydit.eval.vbench.results import DimensionScore, Drop, Results, VariantScores
from galaxydit.families import FAMILIES
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.profiles.profile_registry import load_profile
from galaxydit.proxies import PROXIES

Expected = Iterable[str]


def of_calibrate() -> tuple[list[Any], Expected]:
    profile = load_profile("wan-tiny")
    tables = [*terminal_tables(profile), Table.of(ranking_table(profile), PAGE_ONLY)]
    return tables, ["speedup", "4x", *(row.proxy for row in profile.evidence.ranking)]


def of_compare() -> tuple[list[Any], Expected]:
    reached = AtSpeedup(
        "galaxydit paper branches alone",
        2.0,
        settings=({"threshold": 0.1},),
        speedups=(2.0,),
        psnr=68.75,
        psnr_worst=59.25,
        ssim=0.99995,
        denoise_speedup=1.95,
        ahead=12.5,
        ahead_low=-10.25,
        ahead_high=14.75,
    )
    between = replace(reached, settings=reached.settings * 2, speedups=(1.9, 2.1), psnr=45.25, ahead_low=None)
    nearest = AtSpeedup("FasterCache", 2.0, ({"every": 20, "from": 901, "alpha": 1.0},), (1.93,))
    plan = ComparisonPlan(("a", "b"), (0,), ("c",), (2.0,), tuned=1)
    found = Comparison({}, plan, (), (reached, between, nearest), {})
    missed = "out of reach: FasterCache (nearest: every=20 from=901 alpha=1 (1.93x))"
    notes = ["\u2020 interpolated between two settings", "No interval for fewer than 6 prompts."]
    expected = [
        "68.75",
        "59.25",
        "+12.50",
        "-10.25 to +14.75",
        "1.95x",
        missed,
        "45.25\u2020",
        *notes,
    ]
    return [compare_command.scores_table(found, 2.0)], expected


def of_demo() -> tuple[list[Any], Expected]:
    one = TrialResult(
        denoise_seconds=1234.56, end_to_end_seconds=1234.56, compute_fraction=1.0, metrics={"psnr": 123.45, "ssim": 1.0}
    )
    ways = dict.fromkeys(("plain", "accelerated", "25 plain steps"), (one, one))
    return [demo_command.demo_table(DemoResult(GenerationSettings(), (), ways, (), ()))], ["1234.56", "123.45"]


def of_inspect() -> tuple[list[Any], Expected]:
    longest = max(FAMILIES, key=len)
    hooked = ("transformer", "transformer_2.single_transformer_blocks.59.attn1.to_out.0")
    part = TransformerDescription("transformer_2", longest, longest, 60, "separate calls", tuple(PROXIES), hooked)
    return [inspect_command.transformer_table(part, "SkyReelsV2DiffusionForcingImageToVideoPipeline")], [
        longest,
        *PROXIES,
        *hooked,
    ]


def of_latency() -> tuple[list[Any], Expected]:
    spread = {"median": 12345.6, "low": 12345.6, "high": 12345.6, "count": 3}
    row = {
        "method": "galaxydit residual, no proxy",
        "compiled": True,
        "full_ms": spread,
        "reused_ms": spread,
        "probe_ms": 12.34,
        "syncs_per_step": 12.3,
        "denoise_seconds": 1234.56,
        "speedup": 12.34,
        "compute_fraction": 0.123,
        "efficiency": 0.987,
        "peak_bytes": 123 * 2**30,
        "bytes_held": 12345 * 2**20,
        "energy_joules": 1_234_567.0,
        "avg_power_watts": 692.1,
        "note": None,
    }
    return [latency_command.latency_table([row])], ["12345.6", "1234.56", "12.34x", "0.123", "123.0", "1,230"]


def of_vbench() -> tuple[list[Any], Expected]:
    drop = Drop(-10.25, -12.75, 14.5, 944)
    score = DimensionScore(0.98765, 100.0, "vbench_standard", True, dict.fromkeys("ab", 1.0), drop)
    variant = VariantScores(groups={}, total=None, missing=(), dimensions={"background_consistency": score})
    found = Results(2, "0.1.5", True, 0, {"galaxydit-paper-branches-alone": variant}, {})
    expected = ["background_consistency", "0.9877", "100.00", "-10.25", "-12.75 to +14.50"]
    return [vbench_command.vbench_table(found)], expected


@pytest.mark.parametrize("tables", [of_calibrate, of_compare, of_demo, of_inspect, of_latency, of_vbench])
def test_a_table_fits_80_columns(tables: Callable[[], tuple[list[Any], Expected]]) -> None:
    screen = StringIO()
    printed, expected = tables()
    Console(file=screen, width=80).print(*printed)
    shown = screen.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not [text for text in expected if text not in shown]


def helps(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names and commands of the command line, groups too."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from helps(command, (*path, name))


@pytest.mark.parametrize("width", [80, 120])
def test_help_cuts_no_word(width: int) -> None:
    for path, command in helps(get_command(app)):
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(width)}).output
        assert "…" not in shown
        assert "..." not in shown.replace("COMMAND [ARGS]...", ""), shown
        assert max(map(len, shown.splitlines())) <= width
        words = {word.strip("[].;") for word in shown.split()}
        texts = [command.help, *(getattr(option, "help", "") for option in command.params)]
        assert {word.strip("[].;") for text in texts for word in (text or "").split()} <= words, path


def test_lines_break_between_words_in_a_terminal_alone() -> None:
    line = "  - PSNR against the plain video, mean of the calibration's held-out prompts: 46.3 dB at 1.25x"
    assert wrapped(line, Console(width=60)) == line
    shown = wrapped(line, Console(width=60, force_terminal=True)).splitlines()
    assert " ".join(" ".join(shown).split()) == line.strip()
    assert max(map(len, shown)) <= 60
    assert all(part.startswith("    ") for part in shown[1:])


@pytest.mark.parametrize("library", ["torchao", "bitsandbytes", "diffusers"])
def test_kernels_that_torchao_and_bitsandbytes_lack_are_no_message(library: str) -> None:
    record = LogRecord("x", WARNING, f"/site-packages/{library}/a.py", 1, "Failed to load", None, None)
    assert not_of_extensions(record) is (library == "diffusers")
