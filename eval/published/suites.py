"""All published benchmarks, by name."""

from collections.abc import Mapping

from galaxydit.eval.published.suite import Suite
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.published.vbench2 import VBENCH2

SUITES: Mapping[str, Suite] = {"vbench": VBENCH, "vbench2": VBENCH2}
