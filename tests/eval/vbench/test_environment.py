import json
import sys

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.vbench import environment as module
from galaxydit.eval.vbench.environment import (
    BEGUN,
    MARKER,
    VBENCH_RECIPE,
    EnvironmentRecipe,
    create_environment,
    default_folder,
    open_environment,
)

RECIPE = EnvironmentRecipe(
    f"{sys.version_info.major}.{sys.version_info.minor}", (("a==1", "b==2"), ("--no-deps", "c==3"))
)


@pytest.fixture
def calls(monkeypatch):
    """Commands are noted down and not run, except that venv leaves an interpreter."""
    found = []

    def note(command, folder):
        assert (folder / BEGUN).exists()
        assert not (folder / MARKER).exists()
        found.append(command)
        if "venv" in command:
            (folder / "bin").mkdir()
            (folder / "bin" / "python").touch()

    monkeypatch.setattr(module, "_call", note)
    monkeypatch.setattr(module, "VBENCH_RECIPE", RECIPE)
    return found


def test_an_environment_is_made_step_by_step_and_marked_at_the_end(tmp_path, calls):
    steps = []
    environment = create_environment(tmp_path / "env", RECIPE, steps.append)
    python = str(tmp_path / "env" / "bin" / "python")
    assert calls == [
        [sys.executable, "-m", "venv", str(tmp_path / "env")],
        [python, "-m", "pip", "install", "--quiet", "a==1", "b==2"],
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "c==3"],
    ]
    assert steps[1:] == ["installing a==1, b==2", "installing c==3"]
    assert str(environment.python) == python
    assert json.loads((tmp_path / "env" / MARKER).read_text())["steps"] == [list(step) for step in RECIPE.steps]
    assert not (tmp_path / "env" / BEGUN).exists()


def test_making_it_again_does_nothing(tmp_path, calls):
    create_environment(tmp_path / "env", RECIPE)
    calls.clear()
    create_environment(tmp_path / "env", RECIPE)
    assert calls == []


def test_a_half_made_one_is_refused_with_the_cure(tmp_path, monkeypatch):
    def fail(command, folder):
        raise GalaxyDiTError("pip failed")

    monkeypatch.setattr(module, "_call", fail)
    with pytest.raises(GalaxyDiTError, match="pip failed"):
        create_environment(tmp_path / "env", RECIPE)
    for use in (open_environment, create_environment):
        with pytest.raises(GalaxyDiTError, match="half-made: remove the folder"):
            use(tmp_path / "env")


def test_one_of_another_recipe_is_refused(tmp_path, calls, monkeypatch):
    create_environment(tmp_path / "env", RECIPE)
    monkeypatch.setattr(module, "VBENCH_RECIPE", VBENCH_RECIPE)
    with pytest.raises(GalaxyDiTError, match="another version of this project made"):
        open_environment(tmp_path / "env")


def test_none_at_all_and_a_folder_of_other_things_are_refused(tmp_path):
    with pytest.raises(GalaxyDiTError, match="--create-environment"):
        open_environment(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(GalaxyDiTError, match="where there is none"):
        create_environment(tmp_path / "other", RECIPE)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_failing_command_says_which_and_why(tmp_path):
    with pytest.raises(GalaxyDiTError, match=r"could not be made.*no such wheel; remove the folder"):
        module._call([sys.executable, "-c", "raise SystemExit('no such wheel')"], tmp_path)


def test_without_the_right_python_it_says_so(monkeypatch):
    with pytest.raises(GalaxyDiTError, match=r"needs Python 1\.0, and there is no python1\.0"):
        module._find_python("1.0")
    assert module._find_python(RECIPE.python) == sys.executable


def test_every_package_of_the_recipe_is_pinned():
    names = [name for step in VBENCH_RECIPE.steps for name in step if not name.startswith("-")]
    assert all("==" in name for name in names)


def test_an_environment_of_ones_own_is_used_and_a_missing_package_named(fake_environment):
    assert fake_environment.version("vbench") == "0.1.5"
    assert fake_environment.package_folder("vbench").name == "vbench"
    for ask in (fake_environment.version, fake_environment.package_folder):
        with pytest.raises(GalaxyDiTError, match="lacks the package nothing"):
            ask("nothing")


def test_the_default_folder_lies_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "galaxydit" / "vbench"
