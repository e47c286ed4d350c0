"""The Python examples of READMEs run as they stand, on a tiny model in place of the real one and with fewer steps."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diffusers import WanPipeline

import galaxydit
from galaxydit.cli import main
from galaxydit.families import FAMILIES
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import load_video

ROOT = Path(__file__).parent.parent
SETTINGS = "recommended_settings(pipe)"


def example(readme: str, text: str = "") -> str:
    """The one block of Python in a README that has this text."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if text in block]
    return code


def test_three_lines_accelerate_a_pipeline_of_diffusers(tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = example("README.md", "from_pretrained(")
    tiny = load_pipeline(tiny_wan_folder)
    monkeypatch.setattr(WanPipeline, "from_pretrained", lambda name, torch_dtype: tiny)
    names: dict[str, Any] = {}
    exec(code.replace('"cuda"', '"cpu"').replace("num_frames=81", "None, 32, 32, 5, 30"), names)
    assert len([line for line in code.splitlines() if line and "import" not in line]) == 3
    assert names["video"].shape == (5, 32, 32, 3)
    with pytest.raises(galaxydit.GalaxyDiTError, match="already"):
        galaxydit.accelerate(tiny)
    galaxydit.remove(tiny)


def test_the_example_and_the_command_beside_it_make_the_same_video(
    tiny_wan_folder: Path,
    tiny_settings: GenerationSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = replace(tiny_settings, steps=12, negative_prompt="a blue square", flow_shift=2.0)
    monkeypatch.setattr("galaxydit.pipelines.published_models.recommended_settings", lambda pipe: recipe)
    monkeypatch.chdir(tmp_path)
    load = load_pipeline

    def load_shifted(name: str, **options: Any) -> WanPipeline:
        """As `load_pipeline` gives a published model the flow shift of its recipe."""
        pipe = load(tiny_wan_folder, **options)
        pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, flow_shift=recipe.flow_shift)
        return pipe

    monkeypatch.setattr("galaxydit.pipelines.loading.load_pipeline", load_shifted)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    exec(example("README.md", "load_pipeline("), {})
    assert "6 of 12 steps reused" in capsys.readouterr().out
    (command,) = re.findall(r"`galaxydit (generate --model wan2.1-t2v-1.3b --prompt [^`]*)`", readme)
    made = Path("cat.mp4").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command))
    assert not stopped.value.code
    assert Path("cat.mp4").read_bytes() == made
    assert load_video(Path("cat.mp4")).shape == (5, 32, 32, 3)


def test_the_first_screen_installs_and_has_the_three_lines_a_picture_and_what_it_gives() -> None:
    """There is no limit of words: a text that was cut to one had to be read twice."""
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:60])
    for text in (
        "It is for",
        "pip install ",
        "galaxydit.accelerate(pipe, speedup=2)",
        "](eval/results/demo",
        "seconds per video",
    ):
        assert text in first, text


def test_counts_of_the_readme_are_those_of_the_tables() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(\d+) (other )?families", readme)) == {
        (str(len(FAMILIES)), ""),
        (str(len(FAMILIES) - 1), "other "),
    }
    assert set(re.findall(r"(\d+) published models", readme)) == {str(len(CHECKPOINTS))}
    assert f"version = {{{galaxydit.__version__}}}" in re.sub(" +", " ", readme)


@pytest.mark.parametrize("readme", ["README.md", "galaxydit/README.md", "pipelines/README.md"])
def test_every_example_of_a_published_model_takes_its_recipe(readme: str) -> None:
    """No README has settings of its own, which would make another video of the same model."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "load_pipeline(" in block]
    assert blocks
    for block in blocks:
        assert SETTINGS in block
        assert not re.search(r"guidance_scale|flow_shift|negative_prompt|from_pretrained", block)


def test_the_example_of_wan_tiny_writes_a_video_of_its_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = example("pipelines/wan_tiny/README.md")
    assert SETTINGS in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace(SETTINGS, f"replace({SETTINGS}, steps=15)"), {"replace": replace})
    assert load_video(tmp_path / "ball.mp4").shape == (9, 64, 64, 3)
    assert "7 of 15 steps reused" in capsys.readouterr().out
