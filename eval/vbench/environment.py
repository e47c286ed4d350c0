"""The Python environment of VBench, separate because VBench pins old versions of packages that this project uses.

It is created from a recipe. A folder is complete when it contains the marker file, which is written last.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from galaxydit.errors import GalaxyDiTError

logger = logging.getLogger(__name__)

MARKER = "galaxydit-environment.json"
BEGUN = "galaxydit-environment.begun"


@dataclass(frozen=True)
class EnvironmentRecipe:
    """The required Python version, and the arguments of successive `pip install` commands."""

    python: str
    steps: tuple[tuple[str, ...], ...]


# vbench is installed without its dependencies, which pin transformers==4.33.2 and more for other dimensions only.
# torchvision 0.16.2 is the newest version that imports beside a torch of another build.
VBENCH_RECIPE = EnvironmentRecipe(
    python="3.11",
    steps=(
        ("torch==2.13.0",),
        (
            "numpy==1.26.4",
            "opencv-python-headless==4.11.0.86",
            "decord==0.6.0",
            "pillow==13.0.0",
            "requests==2.34.2",
            "tqdm==4.70.1",
        ),
        ("--no-deps", "torchvision==0.16.2", "vbench==0.1.5"),
    ),
)


@dataclass(frozen=True)
class Environment:
    """A usable environment and its interpreter."""

    folder: Path
    python: Path

    def package_folder(self, package: str) -> Path:
        """Folder of an installed package; raises GalaxyDiTError if it is not installed."""
        code = f"import importlib.util as u; print(u.find_spec({package!r}).submodule_search_locations[0])"
        return Path(self._ask(code, package))

    def version(self, package: str) -> str:
        """Version of an installed package; raises GalaxyDiTError if it is not installed."""
        return self._ask(f"from importlib.metadata import version; print(version({package!r}))", package)

    def _ask(self, code: str, package: str) -> str:
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True)
        if done.returncode:
            raise GalaxyDiTError(
                f"environment is {str(self.folder)!r}, which lacks the package {package}: install it there, or name "
                "another"
            )
        return done.stdout.strip()


def default_folder() -> Path:
    """Folder of the environment for all runs, below XDG_CACHE_HOME or ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "galaxydit", "vbench")


def open_environment(folder: Path) -> Environment:
    """Open an environment that `create_environment` or anyone else made.

    Raises GalaxyDiTError if there is none, if it is incomplete, and if it was made from another recipe.
    """
    folder = folder.absolute()
    python = folder / "bin" / "python"
    if (folder / BEGUN).exists():
        raise GalaxyDiTError(
            f"environment is {str(folder)!r}, which is half-made: remove the folder and create it again"
        )
    if not python.exists():
        raise GalaxyDiTError(
            f"environment is {str(folder)!r}, where there is none: pass --create-environment to make it (1.2 GB), or "
            "--environment with the folder of one that has the benchmark installed"
        )
    marker = folder / MARKER
    if marker.exists() and marker.read_text() != _describe(VBENCH_RECIPE):
        raise GalaxyDiTError(
            f"environment is {str(folder)!r}, which another version of this project made: remove the folder and create "
            "it again"
        )
    return Environment(folder, python)


def create_environment(
    folder: Path, recipe: EnvironmentRecipe = VBENCH_RECIPE, on_step: Callable[[str], None] = logger.info
) -> Environment:
    """Create the environment, or open it if it exists. Takes a minute and 1.2 GB, mostly for torch.

    Raises GalaxyDiTError for a folder with other contents, without the required Python, and if pip fails.
    """
    folder = folder.absolute()
    if not folder.exists() or not any(folder.iterdir()):
        _make(folder, recipe, on_step)
    return open_environment(folder)


def _make(folder: Path, recipe: EnvironmentRecipe, on_step: Callable[[str], None]) -> None:
    interpreter = _find_python(recipe.python)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BEGUN).touch()
    on_step(f"creating {folder}")
    _call([interpreter, "-m", "venv", str(folder)], folder)
    for step in recipe.steps:
        on_step("installing " + ", ".join(name for name in step if not name.startswith("-")))
        _call([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *step], folder)
    (folder / BEGUN).write_text(_describe(recipe))
    (folder / BEGUN).rename(folder / MARKER)


def _describe(recipe: EnvironmentRecipe) -> str:
    return json.dumps({"python": recipe.python, "steps": recipe.steps}, indent=2) + "\n"


def _find_python(wanted: str) -> str:
    if f"{sys.version_info.major}.{sys.version_info.minor}" == wanted:
        return sys.executable
    found = shutil.which(f"python{wanted}")
    if found is None:
        raise GalaxyDiTError(
            f"the environment needs Python {wanted}, and there is no python{wanted} on the PATH: install it, or make "
            "an environment yourself and name it with --environment"
        )
    return found


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise GalaxyDiTError(
            f"environment {str(folder)!r} could not be made, `{' '.join(command[1:])}` failed: {last}; remove the "
            "folder before trying again"
        )
