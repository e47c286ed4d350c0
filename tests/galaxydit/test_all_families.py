"""Every family, on a tiny transformer of its real diffusers class with random weights.

Sizes follow the tiny configurations of diffusers' own tests.
"""

import copy
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.hooks import HookRegistry
from diffusers.models.cache_utils import CacheMixin
from torch import Tensor, nn

import galaxydit
from galaxydit import (
    Acceleration,
    FixedSteps,
    GalaxyDiTConfig,
    GalaxyDiTError,
    Observer,
    Threshold,
    UnknownFamilyWarning,
)
from galaxydit.families import CONCATENATED, FAMILIES, SEPARATE
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.runtime.recognition import blocks_of, transformers_of

BLOCKS = 3
STEPS = 9
REUSED = (2, 3, 5, 6)
OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(12))))
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 12}
_CHANNELS = {"in_channels": 4, "out_channels": 4}
_WAN = _HEADS | _CHANNELS | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "num_layers": BLOCKS}
_HUNYUAN = _HEADS | _CHANNELS | {"rope_axes_dim": (4, 4, 4), "text_embed_dim": 16, "patch_size": 1, "num_layers": 2}
_COGVIDEO = (
    _HEADS | _CHANNELS | {"attention_head_dim": 16, "time_embed_dim": 8, "text_embed_dim": 16, "num_layers": BLOCKS}
)
_COGVIDEO |= {"sample_width": 4, "sample_height": 4, "sample_frames": 5, "max_text_seq_length": 8}
_TEXT = {"encoder_hidden_states": (8, 16)}


@dataclass(frozen=True)
class Tiny:
    """How to build one transformer, and what a call of it takes.

    Attributes:
        class_name: the diffusers class.
        sizes: arguments of its constructor.
        latents: shapes of what is denoised, without the batch, by the names of the arguments.
        conditions: shapes without the batch of what differs between the guidance branches.
        fixed: other tensors, which every sample of the batch gets, by name.
        others: arguments that are no tensors of a batch.
        timestep: shape of the timestep of one sample.
        condition_channels: channels of `hidden_states` beside the denoised ones.
        blocks: block evaluations of a call.
    """

    class_name: str
    sizes: dict[str, Any]
    latents: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"hidden_states": (4, 2, 4, 4)})
    conditions: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict(_TEXT))
    fixed: dict[str, Tensor] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    timestep: tuple[int, ...] = ()
    condition_channels: int = 0
    blocks: int = BLOCKS

    @property
    def branches(self) -> str:
        return FAMILIES[self.class_name].branches

    def build(self) -> nn.Module:
        """The transformer, with the same random weights at each call; zero-initialised ones are random, too."""
        torch.manual_seed(0)
        transformer = getattr(diffusers, self.class_name)(**self.sizes).eval()
        with torch.no_grad():
            for parameter in transformer.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.1)
        return transformer


def _frames(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.float32)


_ANIMATE = {"motion_encoder_channel_sizes": {"4": 16, "8": 16, "16": 16}, "motion_encoder_size": 16, "image_dim": 16}
_ANIMATE |= {"motion_style_dim": 8, "motion_dim": 4, "motion_encoder_dim": 16, "face_encoder_hidden_dim": 16}
_ANIMATE |= {"face_encoder_num_heads": 2, "inject_face_latents_blocks": 2, "in_channels": 12, "latent_channels": 4}
_MASK = {"encoder_attention_mask": torch.ones(8)}
_HISTORY = {
    "indices_hidden_states": _frames(2),
    "indices_latents_history_short": torch.ones(1),
    "indices_latents_history_mid": torch.ones(1),
    "indices_latents_history_long": torch.ones(4),
    "latents_history_short": torch.ones(4, 1, 4, 4),
    "latents_history_mid": torch.ones(4, 1, 4, 4),
    "latents_history_long": torch.ones(4, 4, 4, 4),
}
_FRAMEPACK = {
    "latents_clean": torch.ones(4, 1, 4, 4),
    "latents_history_2x": torch.ones(4, 1, 4, 4),
    "latents_history_4x": torch.ones(4, 4, 4, 4),
}
_FRAMEPACK_INDICES = {
    "indices_latents": _frames(2),
    "indices_latents_clean": torch.ones(1),
    "indices_latents_history_2x": torch.ones(1),
    "indices_latents_history_4x": torch.ones(4),
}
_KANDINSKY = {"in_visual_dim": 4, "out_visual_dim": 4, "in_text_dim": 16, "in_text_dim2": 8, "time_dim": 16}
_KANDINSKY |= {"model_dim": 16, "ff_dim": 32, "num_text_blocks": 1, "num_visual_blocks": BLOCKS, "axes_dims": (2, 2, 4)}
_TEXT_AND_POOLED = {"encoder_hidden_states": (8, 16), "pooled_projections": (8,)}
_LAYOUT = {
    "timestep_indices": torch.zeros(12, dtype=torch.long),
    "token_tags": torch.tensor([1] * 4 + [2] * 2 + [0] * 6),
    "position_ids": torch.arange(36.0).view(12, 3) % 5,
    "text_indices": torch.arange(4),
    "audio_indices": torch.arange(4, 6),
    "video_indices": torch.arange(6, 12),
}

_ENTRIES = (
    Tiny("WanTransformer3DModel", _WAN),
    Tiny(
        "WanVACETransformer3DModel",
        _WAN | {"vace_layers": [0, 2], "vace_in_channels": 6},
        fixed={"control_hidden_states": torch.ones(6, 2, 4, 4)},
        blocks=BLOCKS + 2,
    ),
    Tiny(
        "WanAnimateTransformer3DModel",
        _WAN | _ANIMATE | {"num_layers": 4},  # two for each face adapter
        {"hidden_states": (4, 3, 4, 4)},
        conditions=_TEXT | {"encoder_hidden_states_image": (4, 16)},
        fixed={"pose_hidden_states": torch.ones(4, 2, 4, 4), "face_pixel_values": torch.ones(3, 5, 16, 16)},
        condition_channels=8,
        blocks=4,
    ),
    Tiny("SkyReelsV2Transformer3DModel", _WAN),
    Tiny("ChronoEditTransformer3DModel", _WAN),
    Tiny("HeliosTransformer3DModel", _WAN | {"rope_dim": (4, 4, 4)}, fixed=_HISTORY),
    Tiny(
        "AnyFlowTransformer3DModel",
        _WAN,
        {"hidden_states": (2, 4, 4, 4)},
        fixed={"r_timestep": torch.zeros(2)},
        timestep=(2,),
    ),
    Tiny(
        "CosmosTransformer3DModel",
        _HEADS
        | _CHANNELS
        | {"num_layers": BLOCKS, "text_embed_dim": 16, "adaln_lora_dim": 4, "max_size": (4, 8, 8)}
        | {"concat_padding_mask": False},
        others={"fps": 16},
    ),
    Tiny(
        "HunyuanVideoTransformer3DModel",
        _HUNYUAN | {"num_single_layers": 1, "num_refiner_layers": 1, "pooled_projection_dim": 8},
        conditions=_TEXT_AND_POOLED,
        fixed=_MASK | {"guidance": torch.tensor(6000.0)},
    ),
    Tiny(
        "HunyuanVideoFramepackTransformer3DModel",
        _HUNYUAN
        | {"num_single_layers": 1, "num_refiner_layers": 1, "pooled_projection_dim": 8, "patch_size": 2}
        | {"has_image_proj": True, "image_proj_dim": 8, "has_clean_x_embedder": True},
        conditions=_TEXT_AND_POOLED,
        fixed=_MASK | _FRAMEPACK | {"guidance": torch.tensor(6000.0), "image_embeds": torch.ones(3, 8)},
        others=_FRAMEPACK_INDICES,
    ),
    Tiny(
        "HunyuanVideo15Transformer3DModel",
        _HUNYUAN
        | {"num_layers": BLOCKS, "num_refiner_layers": 1, "text_embed_2_dim": 8, "image_embed_dim": 8}
        | {"task_type": "t2v", "target_size": 16},
        conditions=_TEXT | {"encoder_hidden_states_2": (4, 8)},
        fixed=_MASK | {"encoder_attention_mask_2": torch.ones(4), "image_embeds": torch.zeros(3, 8)},
    ),
    Tiny("MotifVideoTransformer3DModel", _HUNYUAN | {"num_single_layers": 1, "image_embed_dim": 8}),
    Tiny("CogVideoXTransformer3DModel", _COGVIDEO, {"hidden_states": (2, 4, 4, 4)}),
    Tiny("ConsisIDTransformer3DModel", _COGVIDEO, {"hidden_states": (2, 4, 4, 4)}),
    Tiny(
        "LTXVideoTransformer3DModel",
        _HEADS | _CHANNELS | {"cross_attention_dim": 24, "num_layers": BLOCKS, "caption_channels": 16},
        {"hidden_states": (8, 4)},
        fixed=_MASK,
        others={"num_frames": 2, "height": 2, "width": 2},
    ),
    Tiny(
        "LTX2VideoTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 8, "cross_attention_dim": 16, "audio_in_channels": 4}
        | {"audio_out_channels": 4, "audio_num_attention_heads": 2, "audio_attention_head_dim": 4}
        | {
            "audio_cross_attention_dim": 8,
            "num_layers": BLOCKS,
            "caption_channels": 16,
            "rope_double_precision": False,
        },
        {"hidden_states": (8, 4), "audio_hidden_states": (3, 4)},
        conditions=_TEXT | {"audio_encoder_hidden_states": (8, 16)},
        fixed=_MASK,
        others={"num_frames": 2, "height": 2, "width": 2, "audio_num_frames": 3, "fps": 25.0},
    ),
    Tiny(
        "MochiTransformer3DModel",
        _HEADS
        | {"in_channels": 4, "num_layers": BLOCKS, "pooled_projection_dim": 16, "text_embed_dim": 16}
        | {"time_embed_dim": 4, "max_sequence_length": 8, "attention_head_dim": 8},
        fixed={"encoder_attention_mask": torch.ones(8, dtype=torch.bool)},
    ),
    Tiny(
        "Kandinsky5Transformer3DModel",
        _KANDINSKY,
        {"hidden_states": (2, 4, 4, 4)},
        conditions=_TEXT_AND_POOLED,
        others={
            "visual_rope_pos": [torch.arange(2), torch.arange(2), torch.arange(2)],
            "text_rope_pos": torch.arange(8),
        },
    ),
    Tiny(
        "Kandinsky6Transformer3DModel",
        _KANDINSKY | {"visual_cond": False, "in_audio_dim": 4, "out_audio_dim": 4},
        {"hidden_states": (2, 4, 4, 4), "audio_hidden_states": (3, 4)},
        conditions=_TEXT_AND_POOLED,
    ),
    Tiny(
        "EasyAnimateTransformer3DModel",
        _HEADS
        | _CHANNELS
        | {"attention_head_dim": 16, "num_layers": BLOCKS, "mmdit_layers": 2, "patch_size": 2}
        | {"text_embed_dim": 16, "time_embed_dim": 8},
    ),
    Tiny(
        "AllegroTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": BLOCKS, "caption_channels": 16}
        | {"cross_attention_dim": 24, "sample_width": 4, "sample_height": 4, "sample_frames": 2},
    ),
    Tiny(
        "LatteTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "caption_channels": 16}
        | {"cross_attention_dim": 16, "sample_size": 4, "patch_size": 2, "activation_fn": "gelu-approximate"}
        | {"num_embeds_ada_norm": 1000, "norm_type": "ada_norm_single", "norm_elementwise_affine": False}
        | {"video_length": 2},
        blocks=4,
    ),
    Tiny(
        "SanaVideoTransformer3DModel",
        _HEADS
        | _CHANNELS
        | {"num_layers": BLOCKS, "num_cross_attention_heads": 2, "cross_attention_head_dim": 12}
        | {"cross_attention_dim": 24, "caption_channels": 16, "sample_size": 4},
    ),
    Tiny(
        "SanaWMTransformer3DModel",
        {"in_channels": 4, "num_layers": BLOCKS, "hidden_size": 24, "num_attention_heads": 2, "linear_head_dim": 12}
        | {"caption_channels": 16, "softmax_every_n": 2, "chunk_plucker_post_attn_blocks": 0, "image_size": 64}
        | {"use_chunk_plucker_post_attn": False},
        conditions={"encoder_hidden_states": (1, 8, 16)},
        fixed={"mask": torch.ones(8)},
        timestep=(1, 2),
    ),
    Tiny(
        "MiniMaxH3Transformer3DModel",
        {"num_attention_heads": 2, "attention_head_dim": 16, "hidden_size": 24, "num_layers": BLOCKS, "ffn_dim": 32}
        | {"num_refiner_layers": 1, "in_channels": 4, "audio_in_channels": 6, "text_dim": 16, "freq_dim": 8}
        | {"time_embed_hidden_dim": 24, "time_embed_dim": 16, "rope_freq_dim": 2},
        {"hidden_states": (6, 16), "audio_hidden_states": (2, 6)},
        conditions={"encoder_hidden_states": (4, 16)},
        others=_LAYOUT,
    ),
)
TINY = {tiny.class_name: tiny for tiny in _ENTRIES}
_LTX_23 = {"gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True, "audio_cross_attn_mod": True}
_LTX_23 |= {"use_prompt_embeddings": False, "perturbed_attn": True}
_LTX_25 = {"ff_bias": False, "use_keyframes_abs_pos_embedding": True}
_LTX_2 = TINY["LTX2VideoTransformer3DModel"]
VERSIONS = {
    name: replace(
        _LTX_2,
        sizes=_LTX_2.sizes | sizes,
        conditions=_TEXT | {"audio_encoder_hidden_states": (8, 8)},  # projected before the transformer
        fixed=_LTX_2.fixed | {"sigma": torch.tensor(500.0)},
    )
    for name, sizes in {"LTX-2.3": _LTX_23, "LTX-2.5": _LTX_23 | _LTX_25}.items()
}
"""Published versions of a class whose blocks differ, with what diffusers' converters set."""


def noise(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """Normal noise of these shapes with a batch of 1."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(1, *shape, generator=generator) for name, shape in shapes.items()}


def batch_of(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """One batch of tensors that have a batch of 1 each."""
    return {name: torch.cat([sample[name] for sample in samples]) for name in samples[0]}


@torch.no_grad()
def denoise(
    transformer: Any,
    tiny: Tiny,
    scheduler: Any,
    steps: int = STEPS,
    guided: range = range(1000),
    samples: tuple[int, ...] = (0,),
) -> dict[str, Tensor]:
    """The final latents of a batch of samples; guidance comes as the family has it, in the steps of `guided`."""
    scheduler.set_timesteps(steps)
    latents = batch_of([noise(tiny.latents, 10 * sample) for sample in samples])
    texts = texts_of(tiny, samples)
    for index, timestep in enumerate(scheduler.timesteps):
        predicted = predict(transformer, tiny, latents, timestep, texts, index in guided)
        latents = move(latents, predicted, timestep, scheduler, index)
    return latents


def texts_of(tiny: Tiny, samples: tuple[int, ...] = (0,)) -> dict[str, dict[str, Tensor]]:
    """The conditions of a batch of samples: of the conditional branch, of the unconditional one, and of both."""
    cond, uncond = (batch_of([noise(tiny.conditions, 10 * sample + text) for sample in samples]) for text in (1, 2))
    return {"cond": cond, "uncond": uncond, "both": {name: torch.cat([uncond[name], cond[name]]) for name in cond}}


def predict(
    transformer: Any,
    tiny: Tiny,
    latents: dict[str, Tensor],
    timestep: Tensor,
    texts: dict[str, dict[str, Tensor]],
    is_guided: bool = True,
) -> list[Tensor]:
    """The predictions of one step for all latents; guidance comes as the family has it."""
    if tiny.branches == CONCATENATED and is_guided:
        doubled = {name: torch.cat([latent] * 2) for name, latent in latents.items()}
        halves = [part.chunk(2) for part in call(transformer, tiny, doubled, timestep, texts["both"], "cond_uncond")]
        return [cond + 2.0 * (cond - uncond) for uncond, cond in halves]
    name = "cond_uncond" if tiny.branches == CONCATENATED else "cond"
    outputs = [call(transformer, tiny, latents, timestep, texts["cond"], name)]
    if tiny.branches == SEPARATE and is_guided:
        outputs.append(call(transformer, tiny, latents, timestep, texts["uncond"], "uncond"))
    return [parts[0] + 2.0 * (parts[0] - parts[-1]) for parts in zip(*outputs, strict=True)]


def move(
    latents: dict[str, Tensor], predicted: list[Tensor], timestep: Tensor, scheduler: Any, index: int
) -> dict[str, Tensor]:
    """The latents after a step: the video by the scheduler, others by a copy of it, as in diffusers' pipelines."""
    video, *others = latents
    if others and scheduler.step_index is None:
        vars(scheduler).pop("copy_of_others", None)
        scheduler.copy_of_others = copy.deepcopy(scheduler)
    moved = {}
    for name, output in zip(others, predicted[1:], strict=True):
        moved[name] = scheduler.copy_of_others.step(output, timestep, latents[name], return_dict=False)[0]
    return {video: scheduler.step(predicted[0], timestep, latents[video], return_dict=False)[0]} | moved


def call(
    transformer: Any,
    tiny: Tiny,
    latents: dict[str, Tensor],
    timestep: Tensor,
    text: dict[str, Tensor],
    name: str,
    stated: dict[str, Any] | None = None,
) -> tuple[Tensor, ...]:
    """The predictions of one call, in a cache context of this name, which states this, where the class has them."""
    batch = len(latents["hidden_states"])
    arguments = latents | text | tiny.others
    if tiny.condition_channels:
        given = torch.ones(batch, tiny.condition_channels, *latents["hidden_states"].shape[2:])
        arguments["hidden_states"] = torch.cat([latents["hidden_states"], given], dim=1)
    arguments |= {name: tensor.expand(batch, *tensor.shape) for name, tensor in tiny.fixed.items()}
    context = (
        transformer.cache_context(name, **(stated or {})) if hasattr(transformer, "cache_context") else nullcontext()
    )
    with context:
        output = transformer(timestep=timestep.expand(batch, *tiny.timestep), **arguments, return_dict=False)
    return (output,) if isinstance(output, Tensor) else tuple(output)


@torch.no_grad()
def call_steps(transformer: Any, tiny: Tiny, steps: range) -> None:
    """Calls of the conditional branch of a generation of `STEPS` steps, whose context states all that diffusers has."""
    text, latents = noise(tiny.conditions, 1), noise(tiny.latents, 0)
    for step in steps:
        sigma = 1 - step / STEPS
        where = {"step_index": step, "num_inference_steps": STEPS, "sigma": sigma, "timestep": 1000 * sigma}
        call(transformer, tiny, latents, torch.tensor(1000 * sigma), text, "cond", where)


def hooks_of(transformer: nn.Module) -> list[tuple[str, str]]:
    """Module and name of every hook of diffusers in a transformer."""
    modules = [(path, module) for path, module in transformer.named_modules() if hasattr(module, "_diffusers_hook")]
    return [(path, name) for path, module in modules for name in module._diffusers_hook.hooks]


def equal(latents: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return all(torch.equal(latent, others[name]) for name, latent in latents.items())


class EveryProxy(Observer):
    """Keeps the shapes of every proxy that a generation has read."""

    def __init__(self, proxies: tuple[str, ...]) -> None:
        self.proxies = frozenset(proxies)
        self.shapes: dict[str, list[torch.Size]] = {name: [] for name in proxies}

    def on_proxy(self, call: Any, name: str, tensor: Tensor) -> None:
        assert tensor.isfinite().all()
        self.shapes[name].append(tensor.shape)


@pytest.fixture(params=[*TINY, *VERSIONS])
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return (TINY | VERSIONS)[request.param]


@pytest.fixture
def scheduler() -> Any:
    return FlowMatchEulerDiscreteScheduler(shift=3.0)


def test_every_family_has_a_tiny_transformer() -> None:
    assert TINY.keys() == FAMILIES.keys()


def test_a_family_keeps_all_promises(tiny: Tiny, scheduler: Any) -> None:
    transformer = tiny.build()
    calls = 2 if tiny.branches == SEPARATE else 1
    plain = denoise(transformer, tiny, scheduler)
    (description,) = galaxydit.describe(transformer)
    family = FAMILIES[tiny.class_name]
    assert (description.family, description.blocks, description.branches) == (family.name, tiny.blocks, family.branches)

    # Threshold 0 computes every step, bit for bit, and every proxy that the family offers can be read.
    observer = EveryProxy(description.proxies)
    with Acceleration(transformer, GalaxyDiTConfig(Threshold(0)), scheduler, observer=observer) as acceleration:
        assert equal(denoise(transformer, tiny, scheduler), plain)
    assert acceleration.report.compute_fraction == 1.0
    assert {name: len(shapes) for name, shapes in observer.shapes.items()} == dict.fromkeys(
        description.proxies, STEPS * calls
    )
    assert all(len(set(shapes)) == 1 for shapes in observer.shapes.values())

    # Reuse skips the blocks that the report says, in all branches of a step alike.
    ran: list[int] = []
    blocks = blocks_of(transformer, family)
    handles = [block.register_forward_pre_hook(lambda *_: ran.append(1)) for block in blocks]
    with galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler) as acceleration:
        reused = denoise(transformer, tiny, scheduler)
        report, counted = acceleration.report, len(ran)
        assert equal(denoise(transformer, tiny, scheduler), reused), "the second generation starts afresh"
    for handle in handles:
        handle.remove()
    assert [(call.step, call.reused) for call in report.calls] == [
        (step, step in REUSED) for step in range(STEPS) for _ in range(calls)
    ]
    assert counted == sum(call.blocks_run for call in report.calls) == 5 * calls * tiny.blocks + 4
    assert len(acceleration.reports) == 2
    assert not report.notes
    assert not equal(reused, plain)

    # A speedup is met, and nothing of the plugin is left.
    with galaxydit.accelerate(transformer, speedup=2.0, scheduler=scheduler) as acceleration:
        denoise(transformer, tiny, scheduler, 10)
    assert acceleration.report.compute_fraction == 0.5
    registries = [module._diffusers_hook for module in transformer.modules() if hasattr(module, "_diffusers_hook")]
    assert not [name for registry in registries for name in registry.hooks]
    assert equal(denoise(transformer, tiny, scheduler), plain)


@torch.no_grad()
def test_a_family_keeps_the_contract_of_diffusers_caches(tiny: Tiny, scheduler: Any) -> None:
    """The checks of diffusers' `CacheTesterMixin`; classes without `CacheMixin` are reset by their hook registry."""
    transformer = tiny.build()
    before = hooks_of(transformer)
    acceleration = galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler)
    assert ("", "galaxydit") in hooks_of(transformer)
    with pytest.raises(ValueError, match="accelerated already"):
        galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler)
    reused = denoise(transformer, tiny, scheduler)

    # A reset in the middle ends the generation, and nothing of it is in the next one.
    is_cache_mixin = isinstance(transformer, CacheMixin)
    registry = HookRegistry.check_if_exists_or_initialize(transformer)
    reset = transformer._reset_stateful_cache if is_cache_mixin else registry.reset_stateful_hooks
    scheduler.set_timesteps(STEPS)
    latents = noise(tiny.latents, 0)
    for index, timestep in enumerate(scheduler.timesteps[:3]):
        predicted = call(transformer, tiny, latents, timestep, noise(tiny.conditions, 1), "cond")
        latents = move(latents, predicted, timestep, scheduler, index)
    reset()
    assert [report.steps_run for report in acceleration.reports] == [STEPS, 3]
    assert not acceleration._session.current.histories
    assert equal(denoise(transformer, tiny, scheduler), reused)
    assert len(acceleration.reports) == 3
    acceleration.remove()
    assert hooks_of(transformer) == before

    if not is_cache_mixin:
        return
    # Without a scheduler, the contexts state the step; a reset makes the same steps a generation of their own.
    with galaxydit.accelerate(transformer, config=OFTEN) as acceleration:
        call_steps(transformer, tiny, range(4))
        transformer._reset_stateful_cache()
        call_steps(transformer, tiny, range(STEPS))
    first, second = ([(made.step, made.reused) for made in report.calls] for report in acceleration.reports)
    assert second == [(step, step in REUSED) for step in range(STEPS)]
    assert first == second[:4]


class Tables:
    """A policy that reuses other steps in each sample: the state that a sample starts with counts the samples."""

    reads_proxy = True
    learns_errors = False
    reuses = True
    reused = ((3, 6), (4, 6, 7), (2, 5))

    def __init__(self, *samples: int) -> None:
        self.new = list(samples)

    def decide(self, observation: Observation, state: int | None) -> tuple[Decision, int]:
        sample = self.new.pop(0) if state is None else state
        return Decision(observation.step in self.reused[sample], Reason.CUSTOM), sample


CHAINS = [name for name in TINY if FAMILIES[name].is_chain]
TOGETHER = {name: "output" for name in TINY if name != "MiniMaxH3Transformer3DModel"}
TOGETHER |= dict.fromkeys(CHAINS[::2], "residual")


@pytest.mark.parametrize(("name", "reuse"), TOGETHER.items())
def test_each_sample_of_a_batch_is_computed_and_reused_as_if_it_were_alone(
    name: str, reuse: str, scheduler: Any
) -> None:
    """MiniMax-H3 packs the tokens of all samples into one row. What is reused takes turns over the families."""
    tiny, samples = TINY[name], (0, 1, 2)
    transformer = tiny.build()
    calls = 2 if tiny.branches == SEPARATE else 1
    alone = []
    for sample in samples:
        config: Any = GalaxyDiTConfig(Tables(sample), reuse=reuse)
        with galaxydit.accelerate(transformer, config=config, scheduler=scheduler):
            alone.append(denoise(transformer, tiny, scheduler, samples=(sample,)))
    config = GalaxyDiTConfig(Tables(*samples), reuse=reuse)
    with galaxydit.accelerate(transformer, config=config, scheduler=scheduler) as acceleration:
        together = denoise(transformer, tiny, scheduler, samples=samples)
    report = acceleration.report
    assert not report.notes
    for sample in samples:
        records = [record for record in report.calls if record.sample == sample]
        assert [record.step for record in records if record.reused] == [
            step for step in Tables.reused[sample] for _ in range(calls)
        ]
        assert sum(record.blocks_run for record in records) == (
            (STEPS - len(Tables.reused[sample])) * calls * tiny.blocks + len(Tables.reused[sample])
        )
    expected = batch_of(alone)
    for latent, tensor in together.items():
        torch.testing.assert_close(tensor, expected[latent], atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.is_chain])
def test_the_residual_of_a_chain_of_blocks_is_reused(name: str, scheduler: Any) -> None:
    tiny = TINY[name]
    transformer = tiny.build()
    plain = denoise(transformer, tiny, scheduler)
    every, some = FixedSteps(tuple(range(STEPS))), FixedSteps((0, 1, 4, 7, 8))
    with galaxydit.accelerate(transformer, config=GalaxyDiTConfig(every, reuse="residual"), scheduler=scheduler):
        assert equal(denoise(transformer, tiny, scheduler), plain)
    with galaxydit.accelerate(
        transformer, config=GalaxyDiTConfig(some, reuse="residual"), scheduler=scheduler
    ) as acceleration:
        reused = denoise(transformer, tiny, scheduler)
    assert acceleration.report.reused_steps == 4
    assert all(latent.isfinite().all() for latent in reused.values())
    assert not equal(reused, plain)


@pytest.mark.parametrize("guided", [range(5), range(5, 12)], ids=["off", "on"])
@pytest.mark.parametrize("name", ["WanTransformer3DModel", "LTXVideoTransformer3DModel", "LTX2VideoTransformer3DModel"])
def test_guidance_switched_in_mid_run_stays_one_generation(name: str, guided: range, scheduler: Any) -> None:
    tiny = TINY[name]
    transformer = tiny.build()
    plain = denoise(transformer, tiny, scheduler, 12, guided)
    for policy in (FixedSteps(tuple(range(12))), Threshold(50.0)):
        config = GalaxyDiTConfig(policy, max_consecutive=2)
        with galaxydit.accelerate(transformer, config=config, scheduler=scheduler) as acceleration:
            latents = denoise(transformer, tiny, scheduler, 12, guided)
        assert equal(latents, plain) == isinstance(policy, FixedSteps)
    (report,) = acceleration.reports
    assert not report.notes
    assert sorted({call.step for call in report.calls}) == list(range(12))
    reused = {call.step for call in report.calls if call.reused}
    assert min(reused) == 3
    assert max(reused) >= 9
    if tiny.branches == CONCATENATED:
        assert 5 not in reused, "what was cached has another batch size"


def test_a_third_call_of_another_batch_size_follows_the_decision(scheduler: Any) -> None:
    """LTX-2 calls its concatenated batch, then the conditional half without some attention, then apart from audio."""
    tiny = TINY["LTX2VideoTransformer3DModel"]
    transformer = tiny.build()
    text = [noise(tiny.conditions, seed) for seed in (1, 2)]
    both = {name: torch.cat([text[1][name], text[0][name]]) for name in text[0]}
    start = noise(tiny.latents, 0)

    @torch.no_grad()
    def three_branches() -> list[Tensor]:
        scheduler.set_timesteps(12)
        video, outputs = start["hidden_states"], []
        for timestep in scheduler.timesteps:
            latents = start | {"hidden_states": video}
            doubled = {name: torch.cat([latent] * 2) for name, latent in latents.items()}
            outputs = [*call(transformer, tiny, doubled, timestep, both, "cond_uncond")]
            outputs += call(transformer, tiny, latents, timestep, text[0], "uncond_stg")
            with transformer.cache_context("uncond_modality"):
                outputs += transformer(
                    timestep=timestep.expand(1),
                    isolate_modalities=True,
                    encoder_attention_mask=torch.ones(1, 8),
                    **latents,
                    **text[0],
                    **tiny.others,
                    return_dict=False,
                )
            prediction = outputs[0][1:] + outputs[2] - outputs[4]
            video = scheduler.step(prediction, timestep, video, return_dict=False)[0]
        return [video, *outputs]

    plain = three_branches()
    assert [len(output) for output in plain] == [1, 2, 2, 1, 1, 1, 1]
    with galaxydit.accelerate(transformer, config=NEVER, scheduler=scheduler):
        assert all(map(torch.equal, three_branches(), plain))
    with galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler) as acceleration:
        three_branches()
    branches = ("cond_uncond", "uncond_stg", "uncond_modality")
    assert [(call.step, call.branch, call.reused) for call in acceleration.report.calls] == [
        (step, branch, step in (3, 4, 6, 7, 9, 10)) for step in range(12) for branch in branches
    ]
    assert not acceleration.report.notes


def test_unnamed_branches_may_have_latents_of_their_own(scheduler: Any) -> None:
    """Cosmos' video-to-world puts the given frames into the conditional latent alone."""
    tiny = TINY["CosmosTransformer3DModel"]
    transformer = tiny.build()
    text = [noise(tiny.conditions, seed) for seed in (1, 2)]

    @torch.no_grad()
    def denoise_given_frames() -> Tensor:
        scheduler.set_timesteps(12)
        video = noise(tiny.latents, 0)["hidden_states"]
        for timestep in scheduler.timesteps:
            given = video.clone()
            given[:, :, 0] = 1.0
            (cond,) = call(transformer, tiny, {"hidden_states": given}, timestep, text[0], "")
            (uncond,) = call(transformer, tiny, {"hidden_states": video}, timestep, text[1], "")
            video = scheduler.step(cond + 2 * (cond - uncond), timestep, video, return_dict=False)[0]
        return video

    plain = denoise_given_frames()
    with galaxydit.accelerate(transformer, config=NEVER, scheduler=scheduler):
        assert torch.equal(denoise_given_frames(), plain)
    with galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler) as acceleration:
        assert not torch.equal(denoise_given_frames(), plain)
        denoise_given_frames()
    assert len(acceleration.reports) == 2
    assert [(call.step, call.branch, call.reused) for call in acceleration.report.calls] == [
        (step, branch, step in (3, 4, 6, 7, 9, 10)) for step in range(12) for branch in ("call 0", "call 1")
    ]


class Unknown(nn.Module):
    """A transformer of no family: an embedding, equal blocks in one list, a head."""

    def __init__(self, count: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.proj_in = nn.Linear(4, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(count))
        self.proj_out = nn.Linear(16, 4)

    def forward(self, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> tuple[Tensor]:
        hidden = self.proj_in(hidden_states) + timestep[:, None, None] / 1000 + encoder_hidden_states.mean()
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return (self.proj_out(hidden),)


@torch.no_grad()
def denoise_unknown(transformer: Any, scheduler: Any) -> Tensor:
    scheduler.set_timesteps(12)
    text, video = torch.ones(1, 2, 16), torch.randn(1, 8, 4, generator=torch.Generator().manual_seed(0))
    for timestep in scheduler.timesteps:
        (prediction,) = transformer(video, timestep.expand(1), text)
        video = scheduler.step(prediction, timestep, video, return_dict=False)[0]
    return video


def test_an_unknown_transformer_is_recognised_by_its_blocks_with_a_warning(scheduler: Any) -> None:
    transformer = Unknown(4)
    plain = denoise_unknown(transformer, scheduler)
    with pytest.warns(UnknownFamilyWarning, match="Unknown is no family.*layers is taken for its blocks"):
        acceleration = galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler)
    with acceleration:
        assert not torch.equal(denoise_unknown(transformer, scheduler), plain)
    assert [call.step for call in acceleration.report.calls if call.reused] == [3, 4, 6, 7, 9, 10]
    assert {call.blocks for call in acceleration.report.calls} == {4}
    assert torch.equal(denoise_unknown(transformer, scheduler), plain)


def test_an_unknown_transformer_is_found_under_an_unknown_name_but_no_control_network() -> None:
    class ControlNet(Unknown):
        pass

    pipe = SimpleNamespace(denoiser=Unknown(4), controlnet=ControlNet(4), encoder=nn.ModuleList([nn.Linear(2, 2)] * 2))
    assert transformers_of(pipe) == {"denoiser": pipe.denoiser}


def test_an_unknown_transformer_without_a_list_of_blocks_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match=r"transformer='Unknown' is not allowed: expected one of Wan.*FAMILIES"):
        galaxydit.accelerate(Unknown(1), config=OFTEN)
