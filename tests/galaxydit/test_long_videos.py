"""Videos made in pieces: every chunk, window or stage is a generation of its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import HeliosScheduler
from tiny_parts import IMAGE, OFTEN, REUSED, VIDEO, Tiny, masks, texts, unipc
from tiny_table import COSMOS, FORCING, LTX, NAMED, NAMED_BATCH, PIPELINES, SAFE, UNNAMED, WAN
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig

NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(60))))


class ControlNet(nn.Module):
    """Adds 0.1 to the hidden states of two blocks."""

    dtype, device = torch.float32, torch.device("cpu")

    def forward(self, latents: Tensor, **_: Any) -> tuple[list[Tensor]]:
        tokens = latents.shape[-3] * latents.shape[-2] * latents.shape[-1] // 4
        return ([torch.full((1, tokens, 24), 0.1)] * 2,)


HISTORY = texts(num_frames=10, height=32, width=32, history_sizes=[4, 2, 1], num_latent_frames_per_chunk=2)
HELIOS = Tiny(
    "HeliosPipeline",
    "HeliosTransformer3DModel",
    WAN | {"rope_dim": (4, 4, 4)},
    NAMED,
    HISTORY,
    lambda: HeliosScheduler(stages=1),
)
LONG = {
    "Helios, chunks": HELIOS,
    "Helios, stages": replace(
        HELIOS,
        pipeline="HeliosPyramidPipeline",
        arguments=HISTORY | {"num_frames": 5, "height": 64, "width": 64, "pyramid_num_inference_steps_list": [12, 12]},
        scheduler=lambda: HeliosScheduler(stages=2, stage_range=[0, 0.5, 1], gamma=0.3),
    ),
    "SkyReels-V2, chunks": replace(
        FORCING, arguments=FORCING.arguments | {"num_frames": 21, "base_num_frames": 13, "overlap_history": 5}
    ),
    "Cosmos-Transfer2.5, chunks": Tiny(
        "Cosmos2_5_TransferPipeline",
        "CosmosTransformer3DModel",
        COSMOS | {"in_channels": 5, "controlnet_block_every_n": 2, "max_size": (8, 8, 8)},
        UNNAMED,
        texts(controls=VIDEO + VIDEO[:4], height=32, width=32, num_frames_per_chunk=5),
        unipc(),
        SAFE | {"controlnet": ControlNet()},
    ),
    "Wan Animate, segments": replace(
        PIPELINES["Wan Animate"],
        arguments=PIPELINES["Wan Animate"].arguments
        | {"pose_video": VIDEO + VIDEO[:4], "face_video": VIDEO + VIDEO[:4]},
    ),
    "Framepack, sections": replace(
        PIPELINES["Framepack"], arguments=PIPELINES["Framepack"].arguments | {"num_frames": 9}
    ),
    "LTX-Video, windows": Tiny(
        "LTXI2VLongMultiPromptPipeline",
        "LTXVideoTransformer3DModel",
        LTX,
        NAMED_BATCH,
        {"prompt": "a", "guidance_scale": 3.0, "cond_image": IMAGE, "num_frames": 33, "height": 32, "width": 32}
        | {"temporal_tile_size": 24, "temporal_overlap": 8, "num_inference_steps": 13},
    ),
}


def build(name: str) -> tuple[Any, Callable[..., Tensor]]:
    pipe, run = LONG[name].build()
    if LONG[name].arguments.get("prompt"):  # the pipeline encodes the text of each window itself
        given = texts() | masks()
        order = ("prompt_embeds", "prompt_attention_mask", "negative_prompt_embeds", "negative_prompt_attention_mask")
        pipe.encode_prompt = lambda **_: tuple(given[key] for key in order)
    return pipe, run


@pytest.mark.parametrize("name", LONG)
def test_each_part_of_a_long_video_is_a_generation_of_its_own(name: str) -> None:
    pipe, run = build(name)
    branches = LONG[name].branches
    plain = run()
    with galaxydit.accelerate(pipe, config=NEVER):
        assert torch.equal(run(), plain)
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
    assert not torch.equal(reused, plain)
    first, second = acceleration.reports
    for report in (first, second):
        assert [(call.step, call.branch, call.reused) for call in report.calls] == [
            (step, branch, step in REUSED) for step in range(12) for branch in branches
        ]
        assert report.calls[0].distance is None
        assert not report.notes

    def forget(*_: Any) -> None:
        if apart._session.current is not None and len(apart._session.current.calls) == 12 * len(branches):
            apart._session.close()

    with galaxydit.accelerate(pipe, config=OFTEN) as apart:
        handle = pipe.transformer.register_forward_pre_hook(forget)
        assert torch.equal(run(), reused), "nothing of a part reaches the next"
        handle.remove()
    assert len(apart.reports) == 2


def test_frames_at_different_noise_levels_are_computed_in_full_with_the_reason() -> None:
    pipe, run = FORCING.build()
    asynchronous = {"ar_step": 2, "causal_block_size": 1, "base_num_frames": 13}
    plain = run(**asynchronous)
    with (
        pytest.warns(galaxydit.FullComputeWarning, match="as with frames at different noise levels"),
        galaxydit.accelerate(pipe, config=OFTEN) as acceleration,
    ):
        assert torch.equal(run(**asynchronous), plain)
    (report,) = acceleration.reports
    assert not any(call.reused for call in report.calls)
    (note,) = report.notes
    assert "frames at different noise levels" in note
