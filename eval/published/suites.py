"""All published benchmarks, by name."""

from galaxydit.eval.published.suite import Suite, SuiteName
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.published.vbench2 import VBENCH2

SUITES: dict[SuiteName, Suite] = {"vbench": VBENCH, "vbench2": VBENCH2}
