import re
from dataclasses import replace
from pathlib import Path

import pytest
from trials import tried

from galaxydit.calibration import plots
from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.html_report import brief_of, write_report
from galaxydit.calibration.recording import Recording
from galaxydit.profiles.schema import Profile

README = Path(plots.__file__).parent / "README.md"
NASTY = "<script>alert('x')</script> & \"a ball\""


def test_the_page_is_self_contained_and_prompts_are_escaped(
    drafted: Profile, recordings: list[Recording], tmp_path: Path
) -> None:
    asked = drafted.evidence.verifications
    verified = tuple(tried("schedule", v.speedup, NASTY, 1, 1 / v.speedup, 30.0) for v in asked)
    means = [replace(v, compute_fraction=1 / v.speedup, psnr_db=30.0) for v in asked]
    means[0] = replace(means[0], compute_fraction=0.9 / means[0].speedup)
    profile = replace(drafted, evidence=replace(drafted.evidence, verifications=tuple(means)))
    nasty = (replace(recordings[0], prompt=NASTY), *recordings[1:])
    page = write_report(Calibration(profile, nasty, verified, {1: 30.0, 0: 29.04}), tmp_path / "report", "wan-tiny <b>")
    text = page.read_text()
    assert "<title>Calibration of wan-tiny &lt;b&gt;</title>" in text
    assert NASTY not in text
    assert "&lt;script&gt;" in text
    assert f"order {profile.recipe.order} is used: at 2x, or near it, order 1 30.0 dB, order 0 29.0 dB." in text
    assert text.count(" came out as ") == 1
    assert "gives videos with a PSNR of 30.0 dB against the plain ones" in text
    assert "galaxydit generate --model &#39;wan-tiny &lt;b&gt;&#39; --profile tiny.json --speedup 2" in text
    assert "--prompt &#39;A cat walks on the grass, realistic&#39;" in text
    own = brief_of(Calibration(profile, nasty, verified, {}), "wan-tiny")
    assert own.command.endswith("--prompt 'a red ball moves left over a plain background' --out video.mp4")
    assert f"Missed by more than 5 %: {asked[0].speedup:g}x came out as {asked[0].speedup / 0.9:.2f}x." in text
    assert text.count("data:image/png;base64,") == 6
    assert not re.search(r"https?:", text.split("<h2>Settings")[0])
    assert {path.name for path in page.parent.iterdir()} == {
        "report.html",
        "ranking.png",
        "scatter.png",
        "fit.png",
        "redundancy.png",
        "budget.png",
        "schedules.png",
    }


def test_a_figure_is_added_as_the_readme_shows(
    drafted: Profile, recordings: list[Recording], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "FIGURES", dict(plots.FIGURES))
    example = README.read_text().split("## Adding a figure")[1].split("```python\n")[1].split("```")[0]
    exec(example, {"FIGURES": plots.FIGURES})
    page = write_report(Calibration(drafted, tuple(recordings), (), {}), tmp_path / "report").read_text()
    assert "Root mean square of the guided prediction at each step" in page
    assert "no video has verified the quality, which --budget full does" in page
    assert (tmp_path / "report" / "norms.png").is_file()
