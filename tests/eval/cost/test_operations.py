"""Counted operations equal those that PyTorch counts on diffusers' own classes, without weights."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from galaxydit.eval.cost.architecture import Architecture, architecture_of, architectures
from galaxydit.eval.cost.operations import count_operations
from galaxydit.pipelines.published_models import CHECKPOINTS


def transformer_of(shape: Architecture, blocks: int) -> Any:
    """The diffusers class with the shape's widths and few blocks, as fake tensors."""
    import diffusers

    heads = {"num_attention_heads": shape.heads, "attention_head_dim": shape.head_dim}
    with torch.device("cpu"):
        if shape.family == "wan":
            return diffusers.WanTransformer3DModel(
                **heads, ffn_dim=shape.ffn_dim, num_layers=blocks, in_channels=16, text_dim=4096
            )
        if shape.family == "cogvideox":
            return diffusers.CogVideoXTransformer3DModel(
                **heads, num_layers=blocks, use_rotary_positional_embeddings=True
            )
        if shape.family == "hunyuan":
            return diffusers.HunyuanVideoTransformer3DModel(**heads, num_layers=blocks, num_single_layers=blocks)
        if shape.family == "ltx":
            return diffusers.LTXVideoTransformer3DModel(**heads, num_layers=blocks, cross_attention_dim=shape.width)
        if shape.family == "mochi":
            return diffusers.MochiTransformer3DModel(**heads, num_layers=blocks, pooled_projection_dim=shape.text_dim)
        if shape.family == "cosmos":
            return diffusers.CosmosTransformer3DModel(
                **heads, num_layers=blocks, in_channels=16, extra_pos_embed_type=None, concat_padding_mask=False
            )
        return diffusers.Kandinsky5Transformer3DModel(
            in_visual_dim=16, out_visual_dim=16, model_dim=shape.width, ff_dim=shape.ffn_dim, num_visual_blocks=blocks,
            axes_dims=(shape.head_dim // 4, shape.head_dim * 3 // 8, shape.head_dim * 3 // 8), num_text_blocks=1,
        )  # fmt: skip


def call(shape: Architecture, transformer: Any) -> None:
    """Run the transformer on a latent of 2 frames of 16x16."""
    text, frames, side = shape.text_tokens, 2, 16
    with torch.device("cpu"):
        latent = torch.empty(1, shape.vae.latent_channels, frames, side, side)
        time = torch.empty(1)
        if shape.family == "wan":
            transformer(latent, time, torch.empty(1, text, 4096))
        elif shape.family == "cogvideox":
            tokens = frames * (side // 2) ** 2
            rotary = (torch.empty(tokens, shape.head_dim), torch.empty(tokens, shape.head_dim))
            transformer(latent.transpose(1, 2), torch.empty(1, text, 4096), time, image_rotary_emb=rotary)
        elif shape.family == "hunyuan":
            mask = torch.ones(1, text, dtype=torch.bool)
            transformer(latent, time, torch.empty(1, text, 4096), mask, torch.empty(1, 768), guidance=time)
        elif shape.family == "ltx":
            tokens = torch.empty(1, frames * side**2, 128)
            mask = torch.ones(1, text)
            transformer(tokens, torch.empty(1, text, 4096), time, mask, num_frames=frames, height=side, width=side)
        elif shape.family == "mochi":
            transformer(latent, torch.empty(1, text, 4096), time, torch.ones(1, text, dtype=torch.bool))
        elif shape.family == "cosmos":
            transformer(latent, time, torch.empty(1, text, 1024))
        else:
            rope = [torch.arange(n) for n in (frames, side // 2, side // 2)]
            words = torch.arange(text)
            video = latent.movedim(1, -1)
            transformer(video, torch.empty(1, text, 3584), time, torch.empty(1, 768), rope, words)


def counted(shape: Architecture, blocks: int) -> float:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # missing in PyTorch's own table
    formulas = {attention: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)}
    is_small = shape.family == "mochi"  # its attention depends on the values of the mask, which fake tensors lack
    with nullcontext() if is_small else FakeTensorMode(), torch.no_grad():
        transformer = transformer_of(shape, blocks).eval()
        with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
            call(shape, transformer)
    return float(counter.get_total_flops())


FAMILIES = ("wan2.1-t2v-1.3b", "cogvideox-5b", "hunyuanvideo", "ltx-video", "mochi-1", "cosmos-predict2.5-2b")
FAMILIES += ("kandinsky-5-t2v-lite",)


@pytest.mark.parametrize("model", FAMILIES)
def test_operations_of_a_block_equal_those_that_pytorch_counts(model: str) -> None:
    shape = architecture_of(model)
    if shape.family == "mochi":
        shape = replace(shape, heads=3, ffn_dim=1024, text_dim=192)
    size = (16 * shape.vae.spatial, 16 * shape.vae.spatial, 1 + shape.vae.temporal)

    def ours(blocks: int) -> float:
        few = replace(shape, blocks=blocks, single_blocks=blocks if shape.single_blocks else 0)
        return count_operations(few, *size).flops

    # What lies outside the blocks cancels in the difference.
    assert ours(3) - ours(2) == pytest.approx(counted(shape, 3) - counted(shape, 2), rel=0.02)


def test_the_shape_of_every_published_checkpoint_is_known() -> None:
    assert all(architecture_of(name) is architecture_of(one.hub_id) for name, one in CHECKPOINTS.items())
    assert all(shape.source for shape in architectures().values())
