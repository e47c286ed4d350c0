import importlib.util
import re
import subprocess
import sys

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published import SUITES
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.vbench.environment import PACKAGES, open_environment, set_up
from galaxydit.eval.vbench.share_maker import DRIVER

SPEC = importlib.util.spec_from_file_location("shims", DRIVER.with_name("shims.py"))
shims = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(shims)


def test_the_package_is_found_with_its_version(fake_environment, fake_folder):
    assert fake_environment.python == fake_folder / "bin" / "python"
    assert (fake_environment.version, fake_environment.package.name) == ("0.1.5", "vbench")


def test_a_folder_without_an_environment_or_without_vbench_is_refused_with_the_cure(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty")], check=True)
    for folder in (tmp_path / "nothing", tmp_path / "empty"):
        with pytest.raises(
            GalaxyDiTError, match=r"with the package vbench; build one with `galaxydit eval vbench setup"
        ):
            open_environment(folder, VBENCH)


def test_setup_refuses_a_folder_that_holds_something_else_and_a_clone_that_is_none(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GalaxyDiTError, match="expected a new folder or an environment"):
        set_up(tmp_path, VBENCH)
    with pytest.raises(GalaxyDiTError, match=r"clone https://github\.com/facebookresearch/detectron2"):
        set_up(tmp_path / "new", VBENCH, detectron2=tmp_path)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_every_package_of_an_environment_is_pinned_and_the_benchmark_is_the_one_of_the_tables(suite):
    lines = (PACKAGES / f"{suite.name}.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pins[suite.package] == suite.version
    assert {"torch", "torchvision"} <= set(pins)


@pytest.mark.parametrize("shim", shims.SHIMS, ids=lambda shim: shim.__name__)
def test_a_shim_names_the_upstream_line_and_dimensions_that_exist(shim):
    assert re.search(r"\w+\.py:\d+", shim.__doc__)
    known = {name for suite in SUITES.values() for name in (suite.name, *suite.dimensions)}
    assert set(shims.SHIMS[shim]) <= known
