"""Names and constants of the benchmarks VBench and VBench-2.0. They hold no scores of any model."""

from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.published.vbench2 import VBENCH2

SUITES = {"vbench": VBENCH, "vbench2": VBENCH2}
