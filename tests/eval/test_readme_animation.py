"""The animation of the README shows the usual caption of the committed comparison."""

import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from PIL import Image

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval import readme_animation
from galaxydit.eval.compared import RESULTS
from galaxydit.eval.protocol_data import FLOAT32, protocol_data
from galaxydit.eval.readme_animation import (
    DATA,
    NAME,
    SCALE,
    SPEEDUPS,
    animation_frames,
    measured_text,
    save_animation,
    usual_case,
)
from galaxydit.pipelines.trial_result import TrialResult

REPEAT = "run: python -m galaxydit.eval.readme_animation"


def test_no_caption_is_nearer_to_the_means() -> None:
    case, data = usual_case(), protocol_data(RESULTS, FLOAT32)
    psnrs = {speedup: data.at(speedup).psnrs for speedup in SPEEDUPS}
    means = {speedup: fmean(values.values()) for speedup, values in psnrs.items()}
    away = [sum(abs(psnrs[at][caption] - means[at]) for at in SPEEDUPS) for caption in data.captions]
    assert sum(abs(case.psnrs[at] - means[at]) for at in SPEEDUPS) == pytest.approx(min(away))
    assert case.run.captions[(case.seed - 100_000) % 1000] == case.caption


def test_without_data_the_animation_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(GalaxyDiTError, match=r"no float32 results; run the commands of protocol-2\.md first"):
        usual_case(tmp_path)


def test_the_committed_animation_is_of_the_usual_caption_and_of_the_weights_of_the_comparison() -> None:
    case, data = usual_case(), json.loads((RESULTS / DATA).read_text(encoding="utf-8"))
    assert (data["caption"], data["seed"]) == (case.caption, case.seed), REPEAT
    assert data["weights"] == case.run.data["conditions"]["weights"], REPEAT
    assert data["committed_means"] == pytest.approx({f"{at:g}": mean for at, mean in case.means.items()}), REPEAT
    assert list(data["videos"]) == ["plain", *(f"speedup={at:g}" for at in SPEEDUPS)]


def test_the_committed_animation_is_small_and_moves() -> None:
    assert (RESULTS / NAME).stat().st_size < 2_000_000
    with Image.open(RESULTS / NAME) as animation:
        assert animation.n_frames > 1
        assert animation.width <= 838, "a README shows it in its size, so that pixels stay crisp"


def test_every_pixel_is_a_square_and_texts_stand_under_each_video(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), np.uint8)
    frames = animation_frames([noise] * 3, ["plain", "a", "b"], ["1 s", "2 s", "3 s"], "word " * 60)
    save_animation(frames, 8.0, tmp_path / "a.webp")
    with Image.open(tmp_path / "a.webp") as animation:
        assert animation.n_frames == 3
        animation.seek(1)
        shown = np.asarray(animation.convert("RGB"))
    large = noise[1].repeat(SCALE, axis=0).repeat(SCALE, axis=1)
    top = next(row for row in range(40) if (shown[row : row + 64 * SCALE, : 64 * SCALE] == large).all())
    below = shown[top + 64 * SCALE :]
    assert all(part.any() for part in np.array_split(below[:24], 3, axis=1))
    assert below[24:].any()


def test_disturbed_seconds_are_not_shown() -> None:
    trial = TrialResult(denoise_seconds=15.25, compute_fraction=0.5, metrics={"psnr": 36.31})
    assert measured_text(trial, "") == "15.2 s, 36.3 dB"
    assert measured_text(trial, "load") == "50% of the compute, 36.3 dB"


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme_animation, "load_pipeline", lambda *_, **__: None)
    monkeypatch.setattr(readme_animation, "conditions_of", lambda *_: {"weights": {"transformer": "other"}})
    with pytest.raises(ValueError, match="results of other weights than those of wan-tiny"):
        readme_animation.make_animation()
