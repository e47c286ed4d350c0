"""Parts that several packages test with."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from diffusers.models.attention_dispatch import AttentionBackendName, attention_backend
from diffusers.modular_pipelines import WanBlocks

from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.wan_tiny.tools import build
from galaxydit.policies.policy import FEW_STEPS, GENERAL_FEW_STEPS

pytest_plugins = ("encoded_texts", "exhaustive", "fake_clock", "simulated_gpu")

# Tiny matrices: handing them to a second thread costs more than it saves, and slows other processes down.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start


def build_tiny_transformer(num_layers: int) -> WanTransformer3DModel:
    """Wan2.1's transformer with random weights and blocks of width 32."""
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=build.LATENT_CHANNELS,
        out_channels=build.LATENT_CHANNELS,
        text_dim=build.TEXT_DIM,
        freq_dim=32,
        ffn_dim=64,
        num_layers=num_layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    ).eval()


def build_tiny_vae(base_dim: int = 4) -> AutoencoderKLWan:
    """Wan2.1's compression, 4x in time and 8x in space, with random weights: wan-tiny's own compresses less."""
    return AutoencoderKLWan(
        base_dim=base_dim,
        z_dim=build.LATENT_CHANNELS,
        dim_mult=[1, 4, 4],
        num_res_blocks=1,
        attn_scales=[],
        temperal_downsample=[True, True],
        patch_size=2,
        in_channels=12,
        out_channels=12,
        scale_factor_temporal=4,
        scale_factor_spatial=8,
        is_residual=True,
        latents_mean=[0.0] * build.LATENT_CHANNELS,
        latents_std=[1.0] * build.LATENT_CHANNELS,
    ).eval()


@pytest.fixture(autouse=True)
def general_few_steps(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lets the general schedule serve the short generations of tests; returns the constant, which wan-tiny decided."""
    monkeypatch.setattr("galaxydit.config.GENERAL_FEW_STEPS", FEW_STEPS)
    return GENERAL_FEW_STEPS


@pytest.fixture
def native_attention() -> Iterator[None]:
    """For tests of other backends: `set_attention_backend` of one model sets that of the process, too."""
    with attention_backend(AttentionBackendName.NATIVE):
        yield


@pytest.fixture(scope="session")
def tiny_transformer() -> Callable[[int], WanTransformer3DModel]:
    """Builds a transformer of so many blocks."""
    return build_tiny_transformer


def build_tiny_wan_pipeline(vae_dim: int = 4) -> WanPipeline:
    """A whole WanPipeline with random weights, the same ones at each call: a step takes milliseconds."""
    torch.manual_seed(0)
    pipe = WanPipeline(
        tokenizer=build.build_tokenizer(),
        text_encoder=build.build_text_encoder().eval(),
        vae=build_tiny_vae(vae_dim),
        transformer=build_tiny_transformer(3),
        # Wan2.1's shift, which spreads a few steps over both transformers of Wan2.2.
        scheduler=UniPCMultistepScheduler.from_config(build.build_scheduler().config, flow_shift=8.0),
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="session")
def tiny_wan_builder() -> Callable[..., WanPipeline]:
    """Builds the pipeline of `tiny_wan_pipeline`, for fixtures that outlive a test."""
    return build_tiny_wan_pipeline


@pytest.fixture
def tiny_wan_pipeline() -> WanPipeline:
    """A tiny WanPipeline of its own for each test."""
    return build_tiny_wan_pipeline()


@pytest.fixture(scope="session")
def saved_tiny_wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `tiny_wan_folder` copies."""
    folder = tmp_path_factory.mktemp("saved") / "tiny-wan"
    build_tiny_wan_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_wan_folder(saved_tiny_wan: Path, tmp_path: Path) -> Path:
    """The same pipeline, saved; the folder is the test's own."""
    torch.manual_seed(0)  # as where the pipeline is built
    return Path(shutil.copytree(saved_tiny_wan, tmp_path / "tiny-wan"))


@pytest.fixture
def tiny_modular_folder(tiny_wan_pipeline: WanPipeline, tmp_path: Path) -> Path:
    """The parts of the same pipeline, saved as those of a modular one."""
    pipe = WanBlocks().init_pipeline()
    names = ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")
    pipe.update_components(**{name: getattr(tiny_wan_pipeline, name) for name in names})
    pipe.save_pretrained(str(tmp_path / "modular"), overwrite_modular_index=True)
    return tmp_path / "modular"


@pytest.fixture
def tiny_settings() -> GenerationSettings:
    return GenerationSettings(height=32, width=32, num_frames=5, steps=4, guidance_scale=3.0, fps=8.0)
