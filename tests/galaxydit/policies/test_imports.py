"""Policies are numbers: importing them needs no torch, and reasons are compared as data."""

import subprocess
import sys
from pathlib import Path

import galaxydit.policies

FOLDER = Path(galaxydit.policies.__file__).parent
SCRIPT = """
import importlib, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "diffusers"):
            raise ImportError(name + " is imported")

sys.meta_path.insert(0, NoTorch())
for name in sys.argv[1:]:
    importlib.import_module("galaxydit.policies." + name)
"""


def test_policies_are_imported_without_torch() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    assert "policy" in names
    run = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
