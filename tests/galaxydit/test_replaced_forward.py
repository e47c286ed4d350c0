"""A forward function that was replaced or wrapped: the plugin is off after removal, and never without a word."""

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel
from tiny_table import PIPELINES
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, FullComputeWarning, GalaxyDiTConfig, GalaxyDiTError, Threshold

Enable = Callable[[Any], Callable[[], None]]
OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
RESIDUAL = GalaxyDiTConfig(FixedSteps((0, 1, 2, 5, 8)), reuse="residual")


def logged(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: forward(*arguments, **named)


def compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(forward, backend="eager")


def put_own_forward(module: nn.Module) -> None:
    """Replaces the forward of an instance by a copy, as scripts for other positional embeddings do."""
    own = type(module).forward
    module.forward = types.MethodType(lambda self, *arguments, **named: own(self, *arguments, **named), module)


@pytest.mark.parametrize(
    ("wrap", "config"),
    [(logged, OFTEN), (functools.partial, RESIDUAL), (compiled, RESIDUAL)],
    ids=["logged, output", "partial, residual", "compiled, residual"],
)
def test_a_function_around_the_hooked_forward_runs_the_plain_model_after_removal(
    tiny_wan: Any, wrap: Callable[..., Any], config: GalaxyDiTConfig
) -> None:
    transformer = tiny_wan.pipe.transformer
    plain = tiny_wan.run()
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        transformer.forward = wrap(transformer.forward)
        assert not torch.equal(tiny_wan.run(), plain)
        assert acceleration.report.reused_steps > 0
    assert torch.equal(tiny_wan.run(), plain)
    assert len(acceleration.reports) == 1
    del transformer.forward
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        assert not torch.equal(tiny_wan.run(), plain)


def test_a_function_around_a_text_encoder_measures_nothing_after_removal(tiny_wan: Any) -> None:
    encoder = tiny_wan.pipe.text_encoder
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        encoder.forward = logged(encoder.forward)
        tiny_wan.run()
    seconds = acceleration._session.text_seconds
    tiny_wan.run()
    assert acceleration._session.text_seconds == seconds


@pytest.mark.parametrize("seen", ["decoding", "text", "removal", "report"])
def test_a_generation_that_does_not_reach_the_plugin_warns(tiny_wan: Any, seen: str) -> None:
    acceleration = galaxydit.accelerate(tiny_wan.pipe, config=OFTEN)
    put_own_forward(tiny_wan.pipe.transformer)
    plain = tiny_wan.run()
    message = r"forward was replaced after accelerate\(\), so a generation ran without"
    if seen == "report":
        with pytest.raises(GalaxyDiTError, match=message):
            _ = acceleration.report
    else:
        act: Callable[[], Any] = {
            "decoding": lambda: tiny_wan.pipe.vae.decode(plain),
            "text": lambda: tiny_wan.pipe.encode_prompt("a", max_sequence_length=16),
            "removal": acceleration.remove,
        }[seen]
        with pytest.warns(FullComputeWarning, match=message):
            act()
    acceleration.remove()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_shows_whether_a_generation_reached_the_plugin(name: str) -> None:
    pipe, run = PIPELINES[name].build()
    acceleration = galaxydit.accelerate(pipe, config=OFTEN)
    pipe.transformer.forward = logged(pipe.transformer.forward)
    run()
    assert acceleration._missed() == "", "a wrapper reaches the plugin"
    put_own_forward(pipe.transformer)
    run()
    assert "forward was replaced" in acceleration._missed()
    acceleration.remove()


def test_a_block_whose_forward_was_replaced_is_refused_before_a_step_is_reused(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=RESIDUAL):
        tiny_wan.run()
        put_own_forward(tiny_wan.pipe.transformer.blocks[1])
        with pytest.raises(GalaxyDiTError, match="blocks of transformer"):
            tiny_wan.run()
    del tiny_wan.pipe.transformer.blocks[1].forward


def enable_patched_instance(pipe: Any) -> Callable[[], None]:
    put_own_forward(pipe.transformer)
    return lambda: delattr(pipe.transformer, "forward")


def enable_patched_class(pipe: Any) -> Callable[[], None]:
    own = WanTransformer3DModel.forward

    def teacache_forward(self: Any, *arguments: Any, **named: Any) -> Any:
        return own(self, *arguments, **named)

    WanTransformer3DModel.forward = teacache_forward
    return lambda: setattr(WanTransformer3DModel, "forward", own)


def enable_other_blocks(pipe: Any) -> Callable[[], None]:
    """As caches that run one module in place of all blocks."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = blocks

        def forward(self, hidden: Tensor, *rest: Any) -> Tensor:
            for block in self.kept:
                hidden = block(hidden, *rest)
            return hidden

    blocks = pipe.transformer.blocks
    pipe.transformer.blocks = nn.ModuleList([Cached()])
    return lambda: setattr(pipe.transformer, "blocks", blocks)


def enable_cache_dit(pipe: Any) -> Callable[[], None]:
    cache_dit = pytest.importorskip("cache_dit")
    config = cache_dit.DBCacheConfig(Fn_compute_blocks=1, Bn_compute_blocks=0, max_warmup_steps=4)
    cache_dit.enable_cache(pipe, cache_config=config)
    return lambda: cache_dit.disable_cache(pipe)


@pytest.mark.parametrize("enable", [enable_patched_instance, enable_patched_class, enable_cache_dit])
def test_another_cache_is_refused_and_can_be_disabled(tiny_wan: Any, enable: Enable) -> None:
    plain = tiny_wan.run()
    disable = enable(tiny_wan.pipe)
    try:
        with pytest.raises(GalaxyDiTError, match=r"transformer.forward is .*may be a cache.*undo the replacement"):
            galaxydit.accelerate(tiny_wan.pipe, config=OFTEN)
    finally:
        disable()
    assert torch.equal(tiny_wan.run(), plain)
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        tiny_wan.run()
    assert acceleration.report.reused_steps > 0


@pytest.mark.parametrize("first_off", ["plugin", "cache"])
@pytest.mark.parametrize("enable", [enable_patched_class, enable_cache_dit, enable_other_blocks])
def test_a_cache_put_on_an_accelerated_transformer_is_refused_and_both_can_be_removed(
    tiny_wan: Any, enable: Enable, first_off: str
) -> None:
    plain = tiny_wan.run()
    acceleration = galaxydit.accelerate(tiny_wan.pipe, config=OFTEN)
    disable = enable(tiny_wan.pipe)
    removals = [acceleration.remove, disable]
    try:
        with pytest.raises(GalaxyDiTError, match="cache"):
            tiny_wan.run()
    finally:
        for remove in removals if first_off == "plugin" else reversed(removals):
            remove()
    assert torch.equal(tiny_wan.run(), plain)


def test_a_subclass_with_a_forward_of_its_own_is_accelerated(tiny_wan: Any) -> None:
    class Own(WanTransformer3DModel):
        def forward(self, *arguments: Any, **named: Any) -> Any:
            return super().forward(*arguments, **named)

    tiny_wan.pipe.transformer.__class__ = Own
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        tiny_wan.run()
    assert acceleration.report.reused_steps == 6
