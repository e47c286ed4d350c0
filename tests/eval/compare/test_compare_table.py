"""The table that `galaxydit compare` prints."""

from io import StringIO
from types import SimpleNamespace

from rich.console import Console

from galaxydit.commands.compare import build_table
from galaxydit.eval.compare.equal_compute import AtSpeedup

REACHED = AtSpeedup(
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
NEAREST = AtSpeedup("FasterCache", 2.0, ({"every": 20, "from": 901, "alpha": 1.0},), (1.93,))


def test_no_number_is_cut_in_a_terminal_of_80_columns_and_what_is_out_of_reach_is_told():
    screen = StringIO()
    console = Console(file=screen, width=80)
    console.print(build_table(SimpleNamespace(at_speedups=[REACHED, NEAREST]), 2.0))  # type: ignore[arg-type]
    text = screen.getvalue()
    for number in ("68.75", "59.25", "+12.50", "-10.25 to +14.75", "1.95x"):
        assert number in text
    assert "out of reach: FasterCache (nearest: every=20 from=901 alpha=1 (1.93x))" in text
