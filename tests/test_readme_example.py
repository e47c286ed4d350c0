"""The README's Python example runs as it stands, on a tiny model in place of the real one."""

import re
from pathlib import Path

import pytest

from galaxydit.pipelines.video import load_video

README = Path(__file__).parent.parent / "README.md"
REPLACED = {
    '"Wan-AI/Wan2.1-T2V-1.3B-Diffusers"': "FOLDER",
    '.to("cuda")': "",
    "num_frames=81": "num_frames=5, height=32, width=32, num_inference_steps=12",
}


def test_the_example_writes_a_video_and_prints_a_report(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    for text, replacement in REPLACED.items():
        assert text in code
        code = code.replace(text, replacement)
    monkeypatch.chdir(tmp_path)
    exec(code, {"FOLDER": str(tiny_wan_folder)})
    assert load_video(tmp_path / "cat.mp4").shape == (5, 32, 32, 3)
    assert "6 of 12 steps reused" in capsys.readouterr().out
