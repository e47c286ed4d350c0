"""`from numpy.lib.function_base import disp`: vbench/third_party/umt/datasets/kinetics.py:5 and kinetics_sparse.py:6.

numpy 2 dropped the module. The datasets import `disp` and never call it.
"""

import sys
import types
from importlib.util import find_spec

NAME = "numpy.lib.function_base"
NEEDED_BY = ("human_action",)


def install() -> None:
    if NAME not in sys.modules and find_spec(NAME) is None:
        module = types.ModuleType(NAME)
        vars(module)["disp"] = print
        sys.modules[NAME] = module
