"""The Python examples of READMEs run as they stand, on a tiny model in place of the real one and with fewer steps."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from galaxydit.pipelines.video import load_video

ROOT = Path(__file__).parent.parent
REPLACED = {
    '"Wan-AI/Wan2.1-T2V-1.3B-Diffusers"': "FOLDER",
    '.to("cuda")': "",
    "num_frames=81": "num_frames=5, height=32, width=32, num_inference_steps=12",
}


def example(readme: str) -> str:
    """The Python code of a README, which has one example."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)
    return code


def test_the_example_writes_a_video_and_prints_a_report(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = example("README.md")
    for text, replacement in REPLACED.items():
        assert text in code
        code = code.replace(text, replacement)
    monkeypatch.chdir(tmp_path)
    exec(code, {"FOLDER": str(tiny_wan_folder)})
    assert load_video(tmp_path / "cat.mp4").shape == (5, 32, 32, 3)
    assert "6 of 12 steps reused" in capsys.readouterr().out


def test_the_example_of_wan_tiny_writes_a_video_of_its_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, settings = example("pipelines/wan_tiny/README.md"), "recommended_settings(pipe)"
    assert settings in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace(settings, f"replace({settings}, steps=15)"), {"replace": replace})
    assert load_video(tmp_path / "ball.mp4").shape == (9, 64, 64, 3)
    assert "7 of 15 steps reused" in capsys.readouterr().out
