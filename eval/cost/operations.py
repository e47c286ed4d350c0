"""Operations and bytes of one transformer call, counted from the shapes of its layers alone.

They equal PyTorch's FlopCounterMode on diffusers' classes. `video` are video tokens, `frames` decoded frames.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from galaxydit.eval.cost.architecture import BYTES, Architecture

FACE_TOKENS = 5  # of the face in one frame, of Wan Animate: `face_encoder_num_heads` + 1 of diffusers' class


@dataclass(frozen=True)
class Operations:
    """Operations of one transformer call, or a part of it, for one sample and branch; bytes in bfloat16."""

    matrix_flops: int = 0  # of `linear`, two for each multiply-add
    attention_flops: int = 0  # of the two products inside attention
    scores: int = 0  # each takes one exponential
    activation_bytes: int = 0  # inputs and outputs of all layers, moved by elementwise kernels
    weight_bytes: int = 0
    exchanged_bytes: int = 0  # queries of self-attention; keys, values and outputs take as many each
    attentions: int = 0  # self-attention layers

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(
            *(one + another for one, another in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    @property
    def flops(self) -> int:
        return self.matrix_flops + self.attention_flops


def count_operations(shape: Architecture, height: int, width: int, frames: int) -> Operations:
    """Operations of all blocks in one call, of a video in pixels and decoded frames."""
    return BLOCKS[shape.family](shape, shape.tokens(height, width, frames), frames)


def linear(times: int, tokens: int, inputs: int, outputs: int) -> Operations:
    """`times` matrix products of `(tokens, inputs)` with weights `(inputs, outputs)`; `times` is that of layers."""
    # A multiply-add counts as two operations.
    weights = times * inputs * outputs
    moved = times * tokens * (inputs + outputs)
    return Operations(matrix_flops=2 * tokens * weights, activation_bytes=BYTES * moved, weight_bytes=BYTES * weights)


def attention(times: int, queries: int, keys: int, heads: int, head_dim: int) -> Operations:
    """Attention of `queries` tokens over `keys` tokens."""
    scores = times * queries * keys * heads
    moved = 2 * times * (queries + keys) * heads * head_dim
    return Operations(attention_flops=4 * scores * head_dim, scores=scores, activation_bytes=BYTES * moved)


def self_attention(times: int, tokens: int, heads: int, head_dim: int) -> Operations:
    """Attention of tokens over themselves, which context parallelism exchanges."""
    exchanged = BYTES * times * tokens * heads * head_dim
    return replace(attention(times, tokens, tokens, heads, head_dim), exchanged_bytes=exchanged, attentions=times)


def _stream(times: int, tokens: int, width: int, ffn_dim: int) -> Operations:
    """Projections of self-attention and feed-forward of one stream, without the attention."""
    feed_forward = linear(times, tokens, width, ffn_dim) + linear(times, tokens, ffn_dim, width)
    return linear(4 * times, tokens, width, width) + feed_forward


def _cross(times: int, queries: int, keys: int, widths: tuple[int, int], heads: int, head_dim: int) -> Operations:
    """Cross-attention of `queries` tokens of width `widths[0]` to `keys` tokens of width `widths[1]`."""
    inner = heads * head_dim
    projections = linear(times, queries, widths[0], inner) + linear(times, queries, inner, widths[0])
    return projections + linear(2 * times, keys, widths[1], inner) + attention(times, queries, keys, heads, head_dim)


def _with_cross_attention(shape: Architecture, video: int, frames: int) -> Operations:
    """Wan, LTX-Video, Cosmos and Kandinsky: self-attention, cross-attention to text and image, feed-forward."""
    times = shape.blocks + shape.control_blocks
    width = shape.width
    heads = (shape.heads, shape.head_dim)
    made = _stream(times, video, width, shape.ffn_dim) + self_attention(times, video, *heads)
    made += _cross(times, video, shape.text_tokens, (width, shape.text_dim or width), *heads)
    if shape.image_tokens:
        made += linear(2 * times, shape.image_tokens, width, width)
        made += attention(times, video, shape.image_tokens, *heads)
    if shape.control_blocks:
        made += linear(shape.control_blocks + 1, video, width, width)
    return made


def _joint(shape: Architecture, video: int, frames: int) -> Operations:
    """CogVideoX: text and video in one stream with shared weights."""
    tokens = video + shape.text_tokens
    stream = _stream(shape.blocks, tokens, shape.width, shape.ffn_dim)
    return stream + self_attention(shape.blocks, tokens, shape.heads, shape.head_dim)


def _hunyuan(shape: Architecture, video: int, frames: int) -> Operations:
    """HunyuanVideo: blocks with a stream each for text and video, then blocks with one for both, which 1.5 lacks."""
    width = shape.width
    tokens = video + shape.text_tokens
    single = shape.single_blocks
    made = _stream(shape.blocks, video, width, shape.ffn_dim)
    made += _stream(shape.blocks, shape.text_tokens, width, shape.ffn_dim)
    made += linear(3 * single, tokens, width, width)
    made += linear(single, tokens, width, shape.ffn_dim)
    made += linear(single, tokens, width + shape.ffn_dim, width)
    return made + self_attention(shape.blocks + single, tokens, shape.heads, shape.head_dim)


def _mochi(shape: Architecture, video: int, frames: int) -> Operations:
    """Mochi: a stream each for text and video, with gated feed-forward; the last block has no text output."""
    width = shape.width
    text_dim = shape.text_dim or shape.width
    text = shape.text_tokens
    made = linear(4 * shape.blocks, video, width, width)
    made += linear(shape.blocks, video, width, 2 * shape.ffn_dim)
    made += linear(shape.blocks, video, shape.ffn_dim, width)
    made += linear(3 * shape.blocks, text, text_dim, width)
    inner = shape.ffn_dim * text_dim // width
    made += linear(shape.blocks - 1, text, width, text_dim)
    made += linear(shape.blocks - 1, text, text_dim, 2 * inner)
    made += linear(shape.blocks - 1, text, inner, text_dim)
    return made + self_attention(shape.blocks, video + text, shape.heads, shape.head_dim)


def _with_audio(shape: Architecture, video: int, frames: int, heads: tuple[int, int]) -> Operations:
    """A video and an audio stream, each with cross-attention to the text and to the other; `heads`, number and
    dimension, are those with which the video reads the audio."""
    times = shape.blocks
    audio_heads = (shape.audio_heads, shape.audio_head_dim)
    width = shape.width
    inner = shape.audio_heads * shape.audio_head_dim
    audio = shape.audio_tokens(frames)
    made = _with_cross_attention(shape, video, frames)
    made += _stream(times, audio, inner, shape.audio_ffn_dim or 4 * inner)
    made += attention(times, audio, audio, *audio_heads)
    made += _cross(times, audio, shape.text_tokens, (inner, inner), *audio_heads)
    made += _cross(times, video, audio, (width, inner), *heads)
    return made + _cross(times, audio, video, (inner, width), *audio_heads)


def _ltx2(shape: Architecture, video: int, frames: int) -> Operations:
    return _with_audio(shape, video, frames, (shape.audio_heads, shape.audio_head_dim))


def _kandinsky6(shape: Architecture, video: int, frames: int) -> Operations:
    return _with_audio(shape, video, frames, (shape.heads, shape.head_dim)) + _modulation(shape)


def _minimax_h3(shape: Architecture, video: int, frames: int) -> Operations:
    """MiniMax-H3: text, audio and video in one stream, with gated feed-forward."""
    times = shape.blocks
    width = shape.width
    inner = shape.heads * shape.head_dim
    tokens = video + shape.audio_tokens(frames) + shape.text_tokens
    made = linear(3 * times, tokens, width, inner) + linear(times, tokens, inner, width)
    made += linear(times, tokens, width, 2 * shape.ffn_dim) + linear(times, tokens, shape.ffn_dim, width)
    return made + self_attention(times, tokens, shape.heads, shape.head_dim) + _modulation(shape)


def _modulation(shape: Architecture) -> Operations:
    """Projections of the time embedding, which few rows read: weights without operations that count."""
    return Operations(weight_bytes=BYTES * shape.blocks * shape.modulation_weights)


def _wan_animate(shape: Architecture, video: int, frames: int) -> Operations:
    """Wan Animate: Wan's blocks, and some in which the tokens of a frame read the motion of the face in it."""
    times = shape.face_blocks
    width = shape.width
    motions = FACE_TOKENS * (shape.vae.latent_frames(frames) + shape.reference_frames)
    made = linear(2 * times, video, width, width) + linear(2 * times, motions, width, width)
    made += attention(times, video, FACE_TOKENS, shape.heads, shape.head_dim)
    return made + _with_cross_attention(shape, video, frames)


def _sana_video(shape: Architecture, video: int, frames: int) -> Operations:
    """SANA-Video: linear self-attention, cross-attention to the text, feed-forward of convolutions."""
    times = shape.blocks
    width = shape.width
    hidden = shape.ffn_dim
    heads = (shape.heads, shape.head_dim)
    made = linear(4 * times, video, width, width)
    # values @ keys and their product with the queries, (head_dim, head_dim) each, and the sum of keys @ queries
    made += Operations(matrix_flops=times * video * shape.heads * (4 * shape.head_dim**2 + 2 * shape.head_dim))
    made += _cross(times, video, shape.text_tokens, (width, width), *heads)
    made += linear(times, video, width, 2 * hidden) + linear(times, video, hidden, width)
    depthwise = 2 * hidden * video * times
    made += Operations(matrix_flops=2 * 9 * depthwise, activation_bytes=2 * BYTES * depthwise)  # 3x3
    return made + linear(times, video, 3 * width, width)  # over three frames


BLOCKS: dict[str, Callable[[Architecture, int, int], Operations]] = {
    **dict.fromkeys(("wan", "ltx", "cosmos", "kandinsky"), _with_cross_attention),
    "cogvideox": _joint,
    **dict.fromkeys(("hunyuan", "hunyuan15"), _hunyuan),
    "mochi": _mochi,
    "ltx2": _ltx2,
    "kandinsky6": _kandinsky6,
    "minimax_h3": _minimax_h3,
    "wan_animate": _wan_animate,
    "sana_video": _sana_video,
}
"""By family: the function from shape, number of video tokens and number of frames to the operations of all blocks."""
MASKED = ("hunyuan", "hunyuan15")
"""Families whose diffusers class passes a mask to self-attention."""
