"""Operations of models with sound, and of this year's others, equal those that PyTorch counts on diffusers' classes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from galaxydit.eval.cost.architecture import Architecture, architecture_of
from galaxydit.eval.cost.operations import count_operations

FRAMES, SIDE = 3, 8  # of the latent
TEXT = 16
TIME = torch.tensor([500.0])


@dataclass(frozen=True)
class Case:
    """A published model made small: changes of its shape, and how diffusers' class of so many blocks is called."""

    changes: dict[str, Any]
    build: Callable[[Architecture, int], Any]
    call: Callable[[Any, Architecture, int], Any]  # with the number of audio tokens


def heads_of(shape: Architecture) -> dict[str, int]:
    return {"num_attention_heads": shape.heads, "attention_head_dim": shape.head_dim}


def embedded(dim: int, tokens: int = TEXT) -> Tensor:
    return torch.zeros(1, tokens, dim)


def ltx2(shape: Architecture, blocks: int) -> Any:
    audio = {"audio_num_attention_heads": shape.audio_heads, "audio_attention_head_dim": shape.audio_head_dim}
    audio["audio_cross_attention_dim"] = shape.audio_heads * shape.audio_head_dim
    options = {"gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True, "audio_cross_attn_mod": True}
    options |= {"use_prompt_embeddings": False, "perturbed_attn": True, "rope_type": "split"}
    sizes = heads_of(shape) | audio | {"cross_attention_dim": shape.width, "num_layers": blocks}
    return diffusers.LTX2VideoTransformer3DModel(**sizes, **options)


def call_ltx2(transformer: Any, shape: Architecture, audio: int) -> None:
    inner = shape.audio_heads * shape.audio_head_dim
    size = {"num_frames": FRAMES, "height": SIDE, "width": SIDE, "audio_num_frames": audio, "fps": 24.0}
    latents = embedded(128, FRAMES * SIDE**2), embedded(128, audio), embedded(shape.width), embedded(inner)
    transformer(*latents, timestep=TIME, sigma=TIME, **size)


def kandinsky6(shape: Architecture, blocks: int) -> Any:
    audio = shape.audio_heads * shape.audio_head_dim
    sizes = {"model_dim": shape.width, "ff_dim": shape.ffn_dim, "model_dim_a": audio, "ff_dim_a": shape.audio_ffn_dim}
    options = {"ca_rope": True, "cross_gates": True, "fix_modulation": True, "in_text_dim": 16, "time_dim": 8}
    return diffusers.Kandinsky6Transformer3DModel(
        **sizes, **options, num_visual_blocks=blocks, num_text_blocks=1, visual_cond=False
    )


def call_kandinsky6(transformer: Any, shape: Architecture, audio: int) -> None:
    video = torch.zeros(1, FRAMES, SIDE, SIDE, 16)
    text = {"encoder_hidden_states": embedded(16), "pooled_projections": torch.zeros(1, 768)}
    transformer(video, **text, timestep=TIME, audio_hidden_states=embedded(20, audio))


def minimax_h3(shape: Architecture, blocks: int) -> Any:
    sizes = {"hidden_size": shape.width, "ffn_dim": shape.ffn_dim, "num_layers": blocks, "num_refiner_layers": 1}
    sizes |= {"text_dim": 16, "time_embed_dim": 4, "rope_freq_dim": 2}
    return diffusers.MiniMaxH3Transformer3DModel(**heads_of(shape), **sizes)


def call_minimax_h3(transformer: Any, shape: Architecture, audio: int) -> None:
    video = FRAMES * (SIDE // 2) ** 2
    ends = torch.tensor([TEXT, audio, video]).cumsum(0).tolist()
    rows = [torch.arange(end - count, end) for end, count in zip(ends, (TEXT, audio, video), strict=True)]
    layout = {"timestep_indices": torch.zeros(ends[-1], dtype=torch.long)}
    layout["token_tags"] = torch.zeros(ends[-1], dtype=torch.long)
    layout["position_ids"] = torch.zeros(ends[-1], 3)
    layout |= dict(zip(("text_indices", "audio_indices", "video_indices"), rows, strict=True))
    tokens = {"hidden_states": embedded(96, video), "audio_hidden_states": embedded(32, audio)}
    transformer(**tokens, encoder_hidden_states=embedded(16), timestep=TIME, **layout)


def hunyuan15(shape: Architecture, blocks: int) -> Any:
    sizes = {"num_layers": blocks, "num_refiner_layers": 1, "text_embed_dim": 16, "text_embed_2_dim": 8}
    sizes |= {"image_embed_dim": 8, "in_channels": 4, "out_channels": 4, "rope_axes_dim": (16, 24, 24)}
    return diffusers.HunyuanVideo15Transformer3DModel(**heads_of(shape), **sizes)


def call_hunyuan15(transformer: Any, shape: Architecture, audio: int) -> None:
    """Its text is that of two encoders and of an image."""
    parts = {"encoder_hidden_states": embedded(16, 8), "encoder_hidden_states_2": embedded(8, 4)}
    masks = {"encoder_attention_mask": torch.ones(1, 8), "encoder_attention_mask_2": torch.ones(1, 4)}
    transformer(torch.zeros(1, 4, FRAMES, SIDE, SIDE), TIME, **parts, **masks, image_embeds=embedded(8, 4))


def wan_animate(shape: Architecture, blocks: int) -> Any:
    motion = {"motion_encoder_channel_sizes": {"4": 16, "8": 16, "16": 16}, "motion_encoder_size": 16}
    motion |= {"motion_style_dim": 8, "motion_dim": 4, "motion_encoder_dim": 16, "face_encoder_hidden_dim": 16}
    motion |= {"inject_face_latents_blocks": 1, "image_dim": 16, "added_kv_proj_dim": shape.width}
    sizes = {"ffn_dim": shape.ffn_dim, "num_layers": blocks, "text_dim": 16, "freq_dim": 16}
    return diffusers.WanAnimateTransformer3DModel(
        **heads_of(shape), **sizes, **motion, in_channels=12, latent_channels=4, out_channels=4
    )


def call_wan_animate(transformer: Any, shape: Architecture, audio: int) -> None:
    """The first latent frame is that of the given image."""
    video, pose = torch.zeros(1, 12, FRAMES, SIDE, SIDE), torch.zeros(1, 4, FRAMES - 1, SIDE, SIDE)
    image, face = embedded(16, shape.image_tokens), torch.zeros(1, 3, 4 * FRAMES - 7, 16, 16)
    transformer(video, TIME, embedded(16), image, pose, face)


def sana_video(shape: Architecture, blocks: int) -> Any:
    heads = {"num_cross_attention_heads": shape.heads, "cross_attention_head_dim": shape.head_dim}
    sizes = {"num_layers": blocks, "cross_attention_dim": shape.width, "caption_channels": 16, "sample_size": SIDE}
    sizes["mlp_ratio"] = shape.ffn_dim / shape.width
    return diffusers.SanaVideoTransformer3DModel(**heads_of(shape), **heads, **sizes, patch_size=shape.patch)


def call_sana_video(transformer: Any, shape: Architecture, audio: int) -> None:
    transformer(torch.zeros(1, 16, FRAMES, SIDE, SIDE), embedded(16), TIME)


SMALL = {"heads": 4, "head_dim": 64, "text_tokens": TEXT}
WITH_AUDIO = {"audio_heads": 2, "audio_head_dim": 64}
CASES = {
    "ltx-2.3": Case(SMALL | WITH_AUDIO | {"ffn_dim": 1024}, ltx2, call_ltx2),
    "kandinsky-6-pro": Case(
        {"heads": 2, "head_dim": 128, "ffn_dim": 512, "text_tokens": TEXT, "audio_ffn_dim": 256}
        | {"audio_heads": 1, "audio_head_dim": 128},
        kandinsky6,
        call_kandinsky6,
    ),
    "minimax-h3": Case(SMALL | {"hidden_dim": 192, "ffn_dim": 512}, minimax_h3, call_minimax_h3),
    "hunyuanvideo-1.5-t2v-480p": Case(SMALL | {"ffn_dim": 1024}, hunyuan15, call_hunyuan15),
    "wan2.2-animate-14b": Case(SMALL | {"ffn_dim": 512, "image_tokens": 8}, wan_animate, call_wan_animate),
    "sana-video-2b-480p": Case(SMALL | {"ffn_dim": 768}, sana_video, call_sana_video),
}


@torch.no_grad()
def counted(case: Case, shape: Architecture, blocks: int, audio: int) -> int:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # missing in PyTorch's own table
    formulas = {attention: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)}
    transformer = case.build(shape, blocks).eval()
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        case.call(transformer, shape, audio)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("model", CASES)
def test_operations_of_a_block_equal_those_that_pytorch_counts(model: str) -> None:
    case = CASES[model]
    shape = replace(architecture_of(model), **case.changes)
    vae = replace(shape.vae, temporal=4, clip=0)
    shape = replace(shape, vae=vae)
    frames = 1 + 4 * (FRAMES - 1 - shape.reference_frames)
    size = (SIDE * vae.spatial, SIDE * vae.spatial, frames)

    def ours(blocks: int) -> int:
        few = replace(shape, blocks=blocks, face_blocks=blocks if shape.face_blocks else 0)
        return count_operations(few, *size).flops

    audio = shape.audio_tokens(frames)
    assert bool(audio) == (model in ("ltx-2.3", "kandinsky-6-pro", "minimax-h3"))
    # What lies outside the blocks cancels in the difference.
    expected = counted(case, shape, 3, audio) - counted(case, shape, 2, audio)
    assert ours(3) - ours(2) == pytest.approx(expected, rel=0.02)


def test_a_clip_of_minimax_h3_has_the_latent_frames_that_diffusers_counts() -> None:
    from diffusers.modular_pipelines.minimax_h3.modular_pipeline import video_latent_num_frames

    vae = architecture_of("minimax-h3").vae
    for frames in (124, 141, 345):
        assert vae.latent_frames(frames) == video_latent_num_frames(frames, vae.clip, vae.clip_latents)
    assert vae.latent_frames(120) == vae.latent_frames(124), "the pipeline makes the next number that it can"


def test_the_last_noise_level_of_minimax_h3_takes_no_call() -> None:
    from galaxydit.eval.cost.cost_estimate import estimate

    few, many = (estimate("minimax-h3", steps=steps).plain.denoise_s.value for steps in (26, 51))
    assert many / few == pytest.approx(2.0)


def test_each_term_of_the_guidance_of_ltx_2_takes_a_prediction() -> None:
    shape = architecture_of("ltx-2.3")
    assert (shape.branches, shape.calls) == (4, 3), "one call has two of them in one batch"
