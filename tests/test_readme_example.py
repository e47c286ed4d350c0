"""The Python examples of READMEs run as they stand, on a tiny model in place of the real one and with fewer steps."""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diffusers import WanPipeline

from galaxydit.cli import main
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import load_video

ROOT = Path(__file__).parent.parent
SETTINGS = "recommended_settings(pipe)"


def example(readme: str) -> str:
    """The Python code of a README, which has one example."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)
    return code


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
    exec(example("README.md"), {})
    assert "6 of 12 steps reused" in capsys.readouterr().out
    (command,) = re.findall(r"`galaxydit (generate --model wan2.1-t2v-1.3b --prompt [^`]*)`", readme)
    made = Path("cat.mp4").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command))
    assert not stopped.value.code
    assert Path("cat.mp4").read_bytes() == made
    assert load_video(Path("cat.mp4")).shape == (5, 32, 32, 3)


def test_the_readme_is_short_and_begins_with_a_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1200
    before = text[: text.index("\n```\n")].splitlines()
    assert sum(math.ceil(len(line) / 100) for line in before if line) < 25  # lines of a page, of 100 characters each


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
