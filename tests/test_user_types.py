"""A user's file type-checks against the wheel and against `pip install -e .`, and mistakes in it are found."""

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from galaxydit.proxies import PROXIES, ProxyName
from galaxydit.request import QUALITIES, QualityName, Request, RequestArguments

pytest.importorskip("mypy", reason="mypy is not installed: pip install -e '.[core-dev]'")

ROOT = Path(__file__).parent.parent
SOURCES = (
    "galaxydit",
    "pipelines",
    "calibration",
    "eval",
    "docs",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)
RIGHT = """\
import galaxydit
from galaxydit import GalaxyDiTConfig, Proxy, Report, Threshold


def seen(report: Report) -> None:
    print(report.to_dict(calls=False))


def make(pipe: object, own: Proxy) -> tuple[float, str]:
    with galaxydit.accelerate(pipe, speedup=2, policy="proxy", proxy="noisy_latent", on_report=seen) as acceleration:
        acceleration.set(quality="high", profile="profile.json")
        acceleration.set(config=GalaxyDiTConfig(Threshold(0.1), own, reuse="residual"))
        with acceleration.using(speedup=3.0, proxy=own, few_steps=0) as request:
            pass
        return request.report.compute_fraction, str(acceleration.report)
"""
WRONG = """\
import galaxydit
from galaxydit import GalaxyDiTConfig


def make(pipe: object) -> None:
    galaxydit.accelerate(pipe, quality="ultra")  # arg-type
    galaxydit.accelerate(pipe, policy=3)  # arg-type
    galaxydit.accelerate(pipe, speedup="2")  # arg-type
    galaxydit.accelerate(pipe, proxy="noisy_latnet")  # arg-type
    galaxydit.accelerate(pipe, speed=2)  # call-arg
    galaxydit.acelerate(pipe)  # attr-defined
    GalaxyDiTConfig(reuse="residuals")  # arg-type
    with galaxydit.accelerate(pipe) as acceleration:
        acceleration.set(quality="ultra")  # arg-type
        acceleration.using(speed=3)  # call-arg
        acceleration.report.to_dict(calls="no")  # arg-type
"""
BUILD = """\
import sys
from setuptools import build_meta
wheel, editable = sys.argv[1:]  # setuptools replaces the arguments
build_meta.build_wheel(wheel)
build_meta.build_editable(editable)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Python of an environment with the wheel, and of one as after `pip install -e .`; both hold nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, checkout)
    built = {kind: folder / kind for kind in ("wheel", "editable")}
    for place in built.values():
        place.mkdir()
    build = [sys.executable, "-c", BUILD, *map(str, built.values())]
    subprocess.run(build, cwd=checkout, check=True, capture_output=True)
    found = {}
    for kind, place in built.items():
        venv.create(place / "env", symlinks=True)
        (site,) = (place / "env" / "lib").glob("python*/site-packages")
        (archive,) = place.glob("*.whl")
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(site)
        found[kind] = place / "env" / "bin" / "python"
    return found


def test_the_types_of_arguments_are_those_that_the_checks_allow() -> None:
    assert set(RequestArguments.__annotations__) == {field.name for field in fields(Request)}
    built_in = [name for name in PROXIES if PROXIES.plugin_of(name) is None]
    assert [*get_args(ProxyName)] == built_in
    assert get_args(QualityName) == tuple(QUALITIES)


def expected_errors() -> Iterator[tuple[str, int, str]]:
    for number, line in enumerate(WRONG.splitlines(), 1):
        if marked := re.search(r"# ([a-z-]+)$", line):
            yield "wrong.py", number, marked[1]


def test_a_type_checker_passes_right_arguments_and_finds_each_wrong_one(
    installed: dict[str, Path], tmp_path: Path
) -> None:
    """Both kinds in one test, so that they are built once and the second finds the standard library checked."""
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    for kind, python in installed.items():
        command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
        checked = subprocess.run(
            [*command, "right.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        errors = re.findall(r"^(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", checked.stdout, re.MULTILINE)
        found = [(name, int(line), code) for name, line, code in errors]
        assert found == [*expected_errors()], f"{kind}: {checked.stdout}"
        assert checked.stderr == ""
