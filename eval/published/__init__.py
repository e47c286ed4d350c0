"""Names and constants of published benchmarks; numbers of the real weights are in `galaxydit.calibration.published`."""
