"""Hold a Wan model against what is published about the real weights."""

SHIFT_FACTOR = 0.3
"""Flow shift of the embedded model / flow shift of Wan2.1: published shifts 3, 5 and 8 times this factor."""
STEPS = 50
"""Of all published runs."""
PSNR_PARTS = ("step lists", "methods shift 3", "methods shift 5")
"""Parts whose result has `rows` of published and measured PSNRs."""
PARTS = (*PSNR_PARTS, "curvature", "propagation", "residual", "proxies", "noise levels")
"""What can be measured, in the order in which it is."""
