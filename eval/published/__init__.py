"""Names and constants of the benchmarks VBench and VBench-2.0. They hold no scores of any model."""
