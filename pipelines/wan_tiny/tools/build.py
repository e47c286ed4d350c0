"""The components of wan-tiny before training: configurations and tokenizer of the shipped folder, with new weights."""

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
from torch import nn
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from galaxydit.pipelines.model_names import EMBEDDED

SHIPPED = EMBEDDED["wan-tiny"]
LATENT_CHANNELS = 16
TEXT_DIM = 128
CROSS_ATTENTION_GAIN = 2.0
# Distance in words from each word to the word that a head looks at, by layer and head.
TEXT_NEIGHBOURS = ((3, -3, 1, -1), (2, -2, 3, -3))
TEXT_NEIGHBOUR_LOGIT = 6.0
TEXT_MIX = 1.0  # gain of the projection by which all heads of a layer add to a word
FLOW_SHIFT = 1.5
MAX_TEXT_TOKENS = 512  # what WanPipeline pads to by default


def build_vae() -> AutoencoderKLWan:
    """An untrained causal autoencoder as Wan's: 16 channels, 1 + (frames - 1) / 2 frames, 1/4 of height and width."""
    config = AutoencoderKLWan.load_config(SHIPPED, subfolder="vae")
    return AutoencoderKLWan.from_config(
        config, latents_mean=[0.0] * LATENT_CHANNELS, latents_std=[1.0] * LATENT_CHANNELS
    )


def build_transformer() -> WanTransformer3DModel:
    """An untrained transformer as Wan2.1's for text-to-video, with 10 blocks of width 224."""
    config = WanTransformer3DModel.load_config(SHIPPED, subfolder="transformer")
    transformer = WanTransformer3DModel.from_config(config)
    # Normalised queries and keys of 32 channels give logits of at most 5.7, less than the log(490) = 6.2 that padding
    # weighs: at a gain of 1 the words of a caption are hardly seen, and training lowers the gain further.
    for block in transformer.blocks:
        for norm in (block.attn2.norm_q, block.attn2.norm_k):
            nn.init.constant_(norm.weight, CROSS_ATTENTION_GAIN)
    return transformer


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer for the captions of world.py; other words become `<unk>`."""
    return PreTrainedTokenizerFast.from_pretrained(SHIPPED / "tokenizer")


def build_text_encoder() -> UMT5EncoderModel:
    """A two-layer UMT5 encoder of width 128, frozen: each head looks at one neighbouring word, up to three words apart.

    Trained with the transformer it loses this: T5 does not scale attention logits, so they grow until a word no longer
    depends on the words around it.
    """
    encoder = UMT5EncoderModel(UMT5Config.from_pretrained(SHIPPED / "text_encoder"))
    for block, neighbours in zip(encoder.encoder.block, TEXT_NEIGHBOURS, strict=True):
        attention, feed_forward = block.layer[0].SelfAttention, block.layer[1].DenseReluDense
        biases = attention.relative_attention_bias.weight
        nn.init.normal_(biases, std=0.1)
        with torch.no_grad():
            for head, neighbour in enumerate(neighbours):
                ahead = biases.shape[0] // 2 if neighbour > 0 else 0  # T5 keeps words ahead in the second half
                biases[ahead + abs(neighbour), head] = TEXT_NEIGHBOUR_LOGIT
        nn.init.orthogonal_(attention.o.weight, gain=TEXT_MIX)
        nn.init.zeros_(feed_forward.wo.weight)
    return encoder.requires_grad_(False)


def build_scheduler() -> UniPCMultistepScheduler:
    """Wan2.1's scheduler, at flow shift 1.5: Wan2.1's own 5, multiplied by 0.3 (README.md)."""
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=FLOW_SHIFT
    )
