"""Hold a Wan model against what is published about the real weights."""

SHIFT_FACTOR = 0.3
"""Flow shift of the embedded model / flow shift of Wan2.1: published shifts 3, 5 and 8 times this factor."""
STEPS = 50
"""Of all published runs."""
PARTS = (
    "step lists",
    "methods shift 3",
    "methods shift 5",
    "curvature",
    "propagation",
    "residual",
    "proxies",
    "noise levels",
)
"""What can be measured, in the order in which it is."""
