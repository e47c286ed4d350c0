import subprocess
import sys

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.vbench.environment import open_environment


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
