"""Every table that a command prints fits a terminal of 80 columns, and no cell is cut."""

from collections.abc import Callable, Iterable
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from galaxydit.calibration.tables import target_table
from galaxydit.commands import calibrate, compare, demo, eval_vbench, inspect, latency
from galaxydit.description import TransformerDescription
from galaxydit.eval.compare.equal_compute import AtSpeedup
from galaxydit.eval.demo import DemoResult
from galaxydit.eval.vbench.results import DimensionScore, Drop, Results, VariantScores
from galaxydit.families import FAMILIES
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.profiles.registry import load_profile
from galaxydit.proxies import PROXIES

Expected = Iterable[str]


def of_calibrate() -> tuple[list[Any], Expected]:
    return [calibrate.calibration_table(target_table(load_profile("wan-tiny")))], ["speedup", "4x"]


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
    nearest = AtSpeedup("FasterCache", 2.0, ({"every": 20, "from": 901, "alpha": 1.0},), (1.93,))
    found: Any = SimpleNamespace(at_speedups=[reached, nearest])
    missed = "out of reach: FasterCache (nearest: every=20 from=901 alpha=1 (1.93x))"
    return [compare.scores_table(found, 2.0)], ["68.75", "59.25", "+12.50", "-10.25 to +14.75", "1.95x", missed]


def of_demo() -> tuple[list[Any], Expected]:
    one = TrialResult(
        denoise_seconds=1234.56, end_to_end_seconds=1234.56, compute_fraction=1.0, metrics={"psnr": 123.45, "ssim": 1.0}
    )
    ways = dict.fromkeys(("plain", "accelerated", "25 plain steps"), (one, one))
    return [demo.demo_table(DemoResult(GenerationSettings(), (), ways, (), ()))], ["1234.56", "123.45"]


def of_inspect() -> tuple[list[Any], Expected]:
    longest = max(FAMILIES, key=len)
    hooked = ("transformer", "transformer_2.single_transformer_blocks.59.attn1.to_out.0")
    part = TransformerDescription("transformer_2", longest, longest, 60, "separate calls", tuple(PROXIES), hooked)
    return [inspect.transformer_table(part, "SkyReelsV2DiffusionForcingImageToVideoPipeline")], [
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
    return [latency.latency_table([row])], ["12345.6", "1234.56", "12.34x", "0.123", "123.0", "1,230"]


def of_vbench() -> tuple[list[Any], Expected]:
    drop = Drop(-10.25, -12.75, 14.5, 944)
    score = DimensionScore(0.98765, 100.0, "vbench_standard", True, dict.fromkeys("ab", 1.0), drop)
    variant = VariantScores(groups={}, total=None, missing=(), dimensions={"background_consistency": score})
    found = Results(2, "0.1.5", True, 0, {"galaxydit-paper-branches-alone": variant}, {})
    expected = ["background_consistency", "0.9877", "100.00", "-10.25", "-12.75 to +14.50"]
    return [eval_vbench.vbench_table(found)], expected


@pytest.mark.parametrize("tables", [of_calibrate, of_compare, of_demo, of_inspect, of_latency, of_vbench])
def test_a_table_fits_80_columns(tables: Callable[[], tuple[list[Any], Expected]]) -> None:
    screen = StringIO()
    printed, expected = tables()
    Console(file=screen, width=80).print(*printed)
    shown = screen.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not [text for text in expected if text not in shown]
