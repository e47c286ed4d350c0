"""What others published of their benchmarks; numbers of the real weights are in `galaxydit.calibration.published`."""
