"""The components of wan-tiny before training: genuine diffusers and transformers classes in small sizes."""

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from galaxydit.pipelines.wan_tiny.world import BACKGROUNDS, COLOURS, MOTIONS, SHAPES

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
    """An untrained causal video autoencoder as Wan's, whose latents have 16 channels, 1 + (frames - 1) / 2 frames, and
    1/4 of the video's height and width.
    """
    return AutoencoderKLWan(
        base_dim=16,
        decoder_base_dim=24,
        z_dim=LATENT_CHANNELS,
        dim_mult=[2, 2],
        num_res_blocks=1,
        attn_scales=[],
        temperal_downsample=[True],
        patch_size=2,
        in_channels=12,
        out_channels=12,
        scale_factor_temporal=2,
        scale_factor_spatial=4,
        is_residual=True,
        latents_mean=[0.0] * LATENT_CHANNELS,
        latents_std=[1.0] * LATENT_CHANNELS,
    )


def build_transformer() -> WanTransformer3DModel:
    """An untrained transformer as Wan2.1's for text-to-video, with 10 blocks of width 224."""
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=7,
        attention_head_dim=32,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        text_dim=TEXT_DIM,
        freq_dim=128,
        ffn_dim=896,
        num_layers=10,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=128,
    )
    # Normalised queries and keys of 32 channels give logits of at most 5.7, less than the log(490) = 6.2 that padding
    # weighs: at a gain of 1 the words of a caption are hardly seen, and training lowers the gain further.
    for block in transformer.blocks:
        for norm in (block.attn2.norm_q, block.attn2.norm_k):
            nn.init.constant_(norm.weight, CROSS_ATTENTION_GAIN)
    return transformer


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer for the words of the captions of world.py; other words become `<unk>`."""
    phrases = [*COLOURS, *SHAPES, *MOTIONS, *BACKGROUNDS, "a", "and", "over", "in front of", "background", ","]
    words = list(dict.fromkeys(word for phrase in phrases for word in phrase.split()))
    vocabulary = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=MAX_TEXT_TOKENS,
    )


def build_text_encoder(vocabulary_size: int) -> UMT5EncoderModel:
    """A two-layer UMT5 encoder of width 128 with frozen initial weights: no stage of the training changes them.

    Each head looks at one neighbouring word, so that the encoder tells which colour a motion belongs to; the two words
    stand up to three words apart. An encoder trained together with the transformer loses this, whatever it starts from:
    T5 does not scale its attention logits, so they soon grow until a word no longer depends on the words around it.
    """
    encoder = UMT5EncoderModel(
        UMT5Config(
            vocab_size=vocabulary_size,
            d_model=TEXT_DIM,
            d_kv=32,
            num_heads=4,
            d_ff=256,
            num_layers=2,
            dropout_rate=0.0,
            pad_token_id=0,
            eos_token_id=1,
        )
    )
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
