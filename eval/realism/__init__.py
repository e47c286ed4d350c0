"""Compare a Wan model with the published measurements of Wan2.1-T2V-1.3B."""

SHIFT_FACTOR = 0.3  # flow shift of wan-tiny / of Wan2.1, whose published flow shifts are 3, 5 and 8
STEPS = 50  # of all published runs
PSNR_PARTS = ("step lists", "methods shift 3", "methods shift 5")  # with `rows` of published and measured PSNRs
# Parts of the measurement, in their order.
PARTS = (*PSNR_PARTS, "curvature", "propagation", "residual", "proxies", "noise levels")
