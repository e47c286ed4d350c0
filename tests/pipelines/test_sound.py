"""Sound that pipelines return beside their frames."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.errors import DataWarning
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sound import sound_of

STEREO = torch.rand(1, 2, 4000) - 0.5
LTX_2 = SimpleNamespace(vocoder=SimpleNamespace(config={"output_sampling_rate": 24000}))
MINIMAX_H3 = SimpleNamespace(audio_sampling_rate=32000)  # a modular pipeline
KANDINSKY_6 = SimpleNamespace(audio_sample_rate=44100, vocoder=SimpleNamespace(config={}))


@pytest.mark.filterwarnings("error")
def test_the_sound_of_each_kind_of_pipeline_is_understood() -> None:
    ltx = sound_of(LTX_2, SimpleNamespace(audio=STEREO.half()))
    assert (ltx.samples.shape, ltx.samples.dtype, ltx.rate) == ((2, 4000), np.float32, 24000)
    kandinsky = sound_of(KANDINSKY_6, SimpleNamespace(audio=3 * STEREO[:, 0].numpy()))
    np.testing.assert_allclose(kandinsky.samples, 3 * STEREO[:1, 0].numpy().clip(-1 / 3, 1 / 3), atol=1e-6)
    assert kandinsky.rate == 44100
    h3 = sound_of(MINIMAX_H3, SimpleNamespace(audio=STEREO))
    assert (h3.samples.shape, h3.rate) == ((2, 4000), 32000)
    cosmos = sound_of(KANDINSKY_6, SimpleNamespace(sound=STEREO[0]))  # without a batch
    np.testing.assert_array_equal(cosmos.samples, STEREO[0].numpy())
    mono = sound_of(KANDINSKY_6, SimpleNamespace(audio=[STEREO[0, 1]]))
    np.testing.assert_array_equal(mono.samples, STEREO[0, 1:].numpy())
    assert sound_of(KANDINSKY_6, SimpleNamespace(audio=None)) is None
    assert sound_of(SimpleNamespace(), SimpleNamespace()) is None


@pytest.mark.parametrize(
    ("pipe", "output"),
    [
        (SimpleNamespace(), {"audio": STEREO}),
        (SimpleNamespace(), {"sound": STEREO}),
        (SimpleNamespace(audio_sample_rate=12345), {"audio": STEREO}),
        (LTX_2, {"audio": torch.rand(1, 6, 4000)}),
        (LTX_2, {"audio": torch.rand(1, 2, 80, 64)}),
        (LTX_2, {"audio": torch.full((1, 2, 4000), torch.nan)}),
        (LTX_2, {"audio": torch.zeros(1, 2, 0)}),
        (LTX_2, {"audio": torch.full((1, 2, 4000), 9, dtype=torch.int16)}),
        (LTX_2, {"audio": ["a.wav"]}),
        (LTX_2, {"audio": 3}),
    ],
)
def test_sound_that_is_not_understood_is_lost_with_a_warning(pipe: Any, output: dict[str, Any]) -> None:
    with pytest.warns(DataWarning, match="galaxydit: the sound of SimpleNamespace is lost, because it is not unders"):
        assert sound_of(pipe, SimpleNamespace(**output)) is None


@pytest.fixture
def sounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wan's pipeline makes sound as Kandinsky 6 does."""
    silent = WanPipeline.__call__

    @functools.wraps(silent)
    def call(pipe: Any, *args: Any, **kwargs: Any) -> SimpleNamespace:
        return SimpleNamespace(frames=silent(pipe, *args, **kwargs).frames, audio=STEREO[:, 0].numpy())

    monkeypatch.setattr(WanPipeline, "__call__", call)
    monkeypatch.setattr(WanPipeline, "audio_sample_rate", 16000, raising=False)


def test_a_generated_video_and_the_file_of_a_job_have_the_sound(
    sounding: None, tiny_wan_folder: Path, tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
) -> None:
    video = generate(tiny_wan_pipeline, "a cat", tiny_settings, seed=0)
    np.testing.assert_array_equal(video.sound.samples, STEREO[:, 0].numpy())
    assert generate(tiny_wan_pipeline, "a cat", tiny_settings, seed=0, decode=False).sound is None
    sizes = {"height": 32, "width": 32, "frames": 5, "steps": 2}
    job = Job(model=str(tiny_wan_folder), prompts=("a cat",), metrics=("temporal_flickering",), **sizes)
    run_job(job, open_run(tiny_wan_folder / "run", job))
    (record,) = read_run(tiny_wan_folder / "run").records
    with av.open(str(tiny_wan_folder / "run" / record.video)) as container:
        assert [stream.type for stream in container.streams] == ["video", "audio"]
