"""`accelerate(pipe)` on the authors' settings of every published model, on tiny models of the same classes."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
from diffusers import CogVideoXDPMScheduler
from tiny_parts import IMAGE, SIZE, Tiny, build_transformer, flow, masks, texts, unipc
from tiny_table import LTX, NAMED, NAMED_BATCH, PIPELINES, WAN

import galaxydit
from galaxydit.errors import FullComputeWarning
from galaxydit.pipelines.published_models import CHECKPOINTS

_FROM_TEXT = Tiny("WanPipeline", "WanTransformer3DModel", WAN, NAMED, texts() | SIZE)
_FROM_IMAGE = replace(
    PIPELINES["SkyReels-V2 image"], pipeline="WanImageToVideoPipeline", transformer="WanTransformer3DModel"
)
_TWO = {"transformer_2": build_transformer("WanTransformer3DModel", WAN), "boundary_ratio": 0.875}
_IN_CHANNELS = {"in_channels": 12}
_TWO_FROM_IMAGE = {"transformer_2": build_transformer("WanTransformer3DModel", WAN | _IN_CHANNELS)}
_COGVIDEOX = replace(PIPELINES["CogVideoX video"], pipeline="CogVideoXPipeline", arguments=texts() | SIZE)
_HUNYUAN = PIPELINES["HunyuanVideo image"]
MODELS = {
    "wan2.1-t2v-1.3b": _FROM_TEXT,
    "wan2.1-t2v-14b": _FROM_TEXT,
    "wan2.1-i2v-14b-480p": _FROM_IMAGE,
    "wan2.1-i2v-14b-720p": _FROM_IMAGE,
    "wan2.1-flf2v-14b-720p": replace(_FROM_IMAGE, arguments=_FROM_IMAGE.arguments | {"last_image": IMAGE}),
    "wan2.1-vace-1.3b": PIPELINES["Wan VACE"],
    "wan2.1-vace-14b": PIPELINES["Wan VACE"],
    "wan2.2-t2v-a14b": replace(_FROM_TEXT, parts=_TWO),
    "wan2.2-i2v-a14b": replace(_FROM_IMAGE, sizes=WAN | _IN_CHANNELS, parts=_TWO_FROM_IMAGE | {"boundary_ratio": 0.9}),
    "wan2.2-ti2v-5b": replace(_FROM_TEXT, parts={"expand_timesteps": True}),
    "skyreels-v2-t2v-14b-540p": PIPELINES["SkyReels-V2"],
    "ltx-video": Tiny("LTXPipeline", "LTXVideoTransformer3DModel", LTX, NAMED_BATCH, texts() | masks() | SIZE),
    "cogvideox-2b": _COGVIDEOX,
    "cogvideox-5b": replace(_COGVIDEOX, scheduler=CogVideoXDPMScheduler),
    "hunyuanvideo": replace(
        _HUNYUAN,
        pipeline="HunyuanVideoPipeline",
        sizes=_HUNYUAN.sizes | {"in_channels": 4, "image_condition_type": None},
        arguments={name: value for name, value in _HUNYUAN.arguments.items() if name != "image"},
    ),
    "hunyuanvideo-i2v": _HUNYUAN,
    "cogvideox-5b-i2v": PIPELINES["CogVideoX image"],
    "kandinsky-5-t2v-lite": PIPELINES["Kandinsky 5"],
    "kandinsky-5-i2v-pro": PIPELINES["Kandinsky 5 image"],
    "mochi-1": PIPELINES["Mochi"],
    "cosmos-predict2.5-2b": PIPELINES["Cosmos-Predict2.5"],
    "cosmos-predict2-2b-video2world": PIPELINES["Cosmos-Predict2 video"],
    "hunyuanvideo-1.5-t2v-480p": replace(PIPELINES["HunyuanVideo 1.5"], scheduler=flow(shift=5.0)),
    "hunyuanvideo-1.5-t2v-720p": replace(PIPELINES["HunyuanVideo 1.5"], scheduler=flow(shift=9.0)),
    "wan2.2-animate-14b": PIPELINES["Wan Animate"],
    "sana-video-2b-480p": replace(PIPELINES["SANA-Video"], scheduler=unipc(flow_shift=8.0)),
    "sana-video-2b-720p": replace(PIPELINES["SANA-Video"], scheduler=unipc(flow_shift=8.0)),
    "kandinsky-6-pro": replace(PIPELINES["Kandinsky 6"], scheduler=flow(shift=5.0)),
    "kandinsky-6-pro-distill": PIPELINES["Kandinsky 6"],
}
ELSEWHERE = {
    *("ltx-2", "ltx-2.3", "ltx-2.5"),  # test_ltx2_pipelines.py has their parts
    "minimax-h3",  # test_modular_pipelines.py has its parts
}
FEW_STEPS = ("wan2.2-animate-14b", "kandinsky-6-pro-distill")


def built(name: str) -> tuple[Any, Callable[[], Any]]:
    """The tiny pipeline of a published model, and a function that runs it at the authors' settings."""
    settings = CHECKPOINTS[name].settings
    tiny = MODELS[name]
    if settings.flow_shift is not None:
        tiny = replace(tiny, scheduler=unipc(flow_shift=settings.flow_shift))
    pipe, run = tiny.build()
    takes = signature(type(pipe).__call__).parameters
    guidance = {name: getattr(settings, name) for name in ("guidance_scale", "guidance_scale_2") if name in takes}
    return pipe, lambda: run(settings.steps, **guidance)


def test_every_published_model_is_here() -> None:
    assert MODELS.keys() | ELSEWHERE == CHECKPOINTS.keys()


@pytest.mark.parametrize("name", [name for name in MODELS if name not in FEW_STEPS])
def test_nothing_is_warned_of_at_the_authors_settings(name: str, recwarn: pytest.WarningsRecorder) -> None:
    pipe, run = built(name)
    with galaxydit.accelerate(pipe) as acceleration:
        run()
    assert not [str(warning.message) for warning in recwarn if "galaxydit" in str(warning.message)]
    line = str(acceleration.report).splitlines()[0]
    assert line.startswith("Asked for 2x (the default), reached ")
    assert "because" not in line
    assert 1 / acceleration.report.compute_fraction == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("name", FEW_STEPS)
def test_a_model_that_takes_few_steps_is_computed_in_full_and_it_is_said(
    name: str, general_few_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.config.GENERAL_FEW_STEPS", general_few_steps)
    pipe, run = built(name)
    with galaxydit.accelerate(pipe) as acceleration, pytest.warns(FullComputeWarning, match="too few to reuse any"):
        run()
    assert acceleration.report.compute_fraction == 1.0
    assert CHECKPOINTS[name].settings.steps <= general_few_steps
