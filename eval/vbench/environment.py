"""The Python environment of VBench or VBench-2.0, which pin old versions of packages: find it or build it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.eval.published.suite import Suite

PACKAGES = Path(__file__).with_name("packages")
TAIL = 8  # lines of pip's output in an error
QUESTION = """
from importlib import metadata, util
print(util.find_spec({package!r}).submodule_search_locations[0], metadata.version({package!r}), sep="\\n")
"""
PROOF = """
import torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
print(torch.__version__, torchvision.__version__)
"""


@dataclass(frozen=True)
class Environment:
    """An environment's Python, and folder and version of the benchmark in it."""

    python: Path
    package: Path
    version: str


def open_environment(folder: Path, suite: Suite) -> Environment:
    """The environment in a folder. Raises GalaxyDiTError if the folder holds none with the benchmark."""
    python = folder.absolute() / "bin" / "python"
    question = QUESTION.format(package=suite.package)
    done = None
    if python.exists():
        done = subprocess.run([python, "-c", question], capture_output=True, text=True)
    if done is None or done.returncode:
        expected = f"the folder of a virtual environment with the package {suite.package}"
        cure = f"build one with `galaxydit eval vbench setup {folder} --suite {suite.name}`, or name another"
        raise refusal("environment", str(folder), expected, cure)
    package, version = done.stdout.splitlines()
    return Environment(python, Path(package), version)


def read_full_info(environment: Environment, suite: Suite) -> list[dict[str, Any]]:
    """The benchmark's list of prompts; entries have "prompt_en" and "dimension", the names of its dimensions."""
    return json.loads((environment.package / suite.full_info).read_text(encoding="utf-8"))


def default_cache(suite: Suite) -> Path:
    """The folder where the benchmark looks for model files by default.

    Raises GalaxyDiTError if it is in the home folder and the user has none.
    """
    if named := os.environ.get(suite.cache_variable):
        return Path(named)
    try:
        return Path.home() / ".cache" / suite.package
    except RuntimeError as error:
        expected = "a folder, because this user has no home folder"
        raise refusal("--weights", None, expected, f"pass --weights DIR, or set {suite.cache_variable}") from error


def set_up(
    folder: Path,
    suite: Suite,
    *,
    pip_arguments: Sequence[str] = (),
    detectron2: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Environment, str]:
    """Build the environment of a suite in a folder, or complete it; returns it and its versions of torch.

    Every package is pinned in packages/SUITE.txt; the benchmark is installed without its dependencies, because it pins
    versions that no current torch supports. `pip_arguments` are of each `pip install`, `detectron2` is a checkout for
    the environment's path, and `tell` is called with a line before each stage. Raises GalaxyDiTError with the end of
    pip's output, and for a folder or checkout that is none.
    """
    if detectron2 is not None and not (detectron2 / "detectron2" / "__init__.py").is_file():
        cure = "clone https://github.com/facebookresearch/detectron2, and name the clone"
        raise refusal("detectron2", str(detectron2), "a folder with the checkout of detectron2", cure)
    python = folder.absolute() / "bin" / "python"
    if not python.exists():
        if folder.exists() and any(folder.iterdir()):
            raise refusal("folder", str(folder), "a new folder or an environment", "name another")
        tell(f"making a virtual environment in {folder}")
        _run([sys.executable, "-m", "venv", str(folder)], "a virtual environment")
    pinned = PACKAGES / f"{suite.name}.txt"
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *pip_arguments]
    tell("installing torch and torchvision, with CUDA several GB")
    _run([*pip, "torch", "torchvision", "-c", str(pinned)], "torch and torchvision")
    tell(f"installing {suite.title} and what it imports")
    _run([*pip, "--no-deps", "-r", str(pinned)], f"the packages in {pinned.name}")
    if detectron2 is not None:
        site = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], "detectron2")
        Path(site.strip(), "detectron2.pth").write_text(f"{detectron2.absolute()}\n", encoding="utf-8")
    tell("checking that torch and torchvision fit together")
    versions = _run([str(python), "-c", PROOF], "torch and torchvision of one build").split()
    return open_environment(folder, suite), f"torch {versions[0]}, torchvision {versions[1]}"


def _run(command: Sequence[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).strip().splitlines()[-TAIL:])
        raise GalaxyDiTError(
            f"{what} could not be installed: {said}; mend that, then give the same command again, with another index "
            "by --pip '--index-url URL' if this one lacks a package"
        )
    return done.stdout
