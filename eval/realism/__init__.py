"""Compare a Wan model with the published measurements of Wan2.1-T2V-1.3B."""

SHIFT_FACTOR = 0.3  # flow shift of the embedded model / of Wan2.1: published shifts 3, 5 and 8 times this factor
STEPS = 50  # of all published runs
PSNR_PARTS = ("step lists", "methods shift 3", "methods shift 5")  # with `rows` of published and measured PSNRs
# What can be measured, in the order in which it is.
PARTS = (*PSNR_PARTS, "curvature", "propagation", "residual", "proxies", "noise levels")
