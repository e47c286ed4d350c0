"""What MagCache (arXiv 2506.09045) computes on Wan2.1-T2V-1.3B, from its released code and magnitude ratios."""

from dataclasses import dataclass

# fmt: off
RATIOS = (
    1.0, 1.0124, 1.00166, 0.99791, 0.99682, 0.99634, 0.99567, 0.99416, 0.99578, 0.9957, 0.99511, 0.99535, 0.99552,
    0.99541, 0.9954, 0.99489, 0.99518, 0.99484, 0.99481, 0.99415, 0.99419, 0.99396, 0.99388, 0.99349, 0.99309, 0.9927,
    0.99228, 0.99171, 0.99137, 0.99068, 0.99005, 0.98944, 0.98849, 0.98758, 0.98644, 0.98504, 0.9836, 0.98202,
    0.97977, 0.97717, 0.9741, 0.97003, 0.96538, 0.9593, 0.95086, 0.94013, 0.92402, 0.90241, 0.86821, 0.81838,
)
# fmt: on
"""|residual of the block stack| / |that of the step before|, conditional branch, 50 steps, flow shift 8, guidance 6."""


@dataclass(frozen=True)
class StepList:
    """A published PSNR in dB with the computed steps of 50; `conditional_only` are further ones of that branch."""

    name: str
    flow_shift: float
    guidance: float
    psnr: float
    steps: tuple[int, ...]
    conditional_only: tuple[int, ...] = ()


# PSNRs: arXiv 2506.09045, table 1 (shift 8); 2610.10457, tables 2 and 7 (shift 5); 2609.36433, table 1 (shift 3).
_TEN = tuple(range(10))
STEP_LISTS = (
    StepList("24 steps, shift 8", 8, 6, 23.42, (*_TEN, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 47, 49)),
    StepList("19 steps, shift 8", 8, 6, 21.54, (*_TEN, 14, 19, 24, 29, 34, 39, 43, 46, 48)),
    StepList("19 steps, shift 5", 5, 5, 22.31, (*_TEN, 16, 23, 29, 34, 38, 42, 45, 47, 49)),
    StepList("18 steps, shift 3", 3, 5, 22.16, (*range(5), 9, 14, 19, 24, 29, 33, 37, 40, 43, 45, 47, 48, 49)),
    StepList("14.5 steps, shift 5", 5, 5, 20.04, (*_TEN, 18, 27, 36, 45), conditional_only=(49,)),
    StepList("first 10 steps, shift 5", 5, 5, 17.03, _TEN),
)
"""From accurate to fast."""
