"""Quantised weights and other attention kernels: the plugin changes neither, and reuses as it does without them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel
from quantised import QUANTISED
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold
from galaxydit.profiles.fingerprint import model_mismatch, model_of, project_weights

pytestmark = pytest.mark.usefixtures("native_attention")
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(12))))
CONFIGS = {
    reuse: GalaxyDiTConfig(Threshold(50.0), max_consecutive=2, reuse=reuse, proxy="self_attention")
    for reuse in ("output", "residual")
}


def window(transformer: WanTransformer3DModel) -> None:
    """Sparse attention: each token attends to its neighbours in the sequence only."""

    class Windowed:
        def __call__(
            self, attn: Any, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None, *_: Any, **__: Any
        ) -> Tensor:
            source = hidden_states if encoder_hidden_states is None else encoder_hidden_states
            query, key, value = attn.to_q(hidden_states), attn.to_k(source), attn.to_v(source)
            mask = None
            if encoder_hidden_states is None:
                places = torch.arange(hidden_states.shape[1])
                mask = (places[:, None] - places).abs() <= 2
            out = nn.functional.scaled_dot_product_attention(
                *(part.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for part in (query, key, value)), attn_mask=mask
            )
            return attn.to_out[1](attn.to_out[0](out.transpose(1, 2).flatten(2)))

    transformer.set_attn_processor(Windowed())


CHANGES: dict[str, Callable[[WanTransformer3DModel], None]] = {
    **QUANTISED,
    "native attention": lambda transformer: transformer.set_attention_backend("native"),
    "math attention": lambda transformer: transformer.set_attention_backend("_native_math"),
    "sparse attention": window,
}


@pytest.mark.matrix(change=CHANGES, order=["changed first", "accelerated first"], reuse=CONFIGS)
def test_changed_layers_are_computed_as_without_the_plugin(tiny_wan: Any, change: str, order: str, reuse: str) -> None:
    pipe = tiny_wan.pipe
    if order == "changed first":
        CHANGES[change](pipe.transformer)
    acceleration = galaxydit.accelerate(pipe, config=CONFIGS[reuse])
    if order == "accelerated first":
        CHANGES[change](pipe.transformer)
    latents = tiny_wan.run()
    assert torch.equal(tiny_wan.run(), latents)
    acceleration.remove()
    assert [report.reused_steps for report in acceleration.reports] == [6, 6]
    plain = tiny_wan.run()
    assert not torch.equal(latents, plain)
    with galaxydit.accelerate(pipe, config=NEVER):
        assert torch.equal(tiny_wan.run(), plain)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_quantised_model_is_not_taken_for_another_checkpoint(tiny_wan: Any) -> None:
    """Its weights cannot be read, so its architecture decides whether a profile belongs to it."""
    identity = model_of(tiny_wan.pipe.transformer)
    QUANTISED["torchao"](tiny_wan.pipe.transformer)
    assert project_weights(tiny_wan.pipe.transformer) == ()
    assert model_mismatch(identity, tiny_wan.pipe.transformer) is None
