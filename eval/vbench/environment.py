"""The Python environment of VBench, separate because VBench pins old versions of packages that this project uses."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.vbench import PACKAGE

QUESTION = f"""
from importlib import metadata, util
print(util.find_spec({PACKAGE!r}).submodule_search_locations[0], metadata.version({PACKAGE!r}), sep="\\n")
"""


@dataclass(frozen=True)
class Environment:
    """Its interpreter, and the folder and version of the package vbench in it."""

    python: Path
    package: Path
    version: str


def open_environment(folder: Path) -> Environment:
    """The environment in a folder; raises GalaxyDiTError if there is none, or none with VBench."""
    python = folder.absolute() / "bin" / "python"
    done = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True) if python.exists() else None
    if done is None or done.returncode:
        raise GalaxyDiTError(
            f"environment={str(folder)!r} is not allowed: expected the folder of a virtual environment with the "
            f"package {PACKAGE}; make one as eval/README.md shows, or name another"
        )
    package, version = done.stdout.splitlines()
    return Environment(python, Path(package), version)
