"""What users of diffusers expect: attach to a transformer, remove without the handle, no second cache, few reports."""

from inspect import signature
from typing import Any

import pytest
import torch
from diffusers import FirstBlockCacheConfig
from diffusers.hooks import apply_first_block_cache

import galaxydit
from galaxydit import GalaxyDiTConfig, GalaxyDiTError, Threshold

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)


def test_a_transformer_is_accelerated_and_restored_in_the_manner_of_diffusers(tiny_wan: Any) -> None:
    plain = tiny_wan.run()
    acceleration = galaxydit.apply_galaxydit(tiny_wan.pipe.transformer, OFTEN)
    with acceleration:
        assert not torch.equal(tiny_wan.run(), plain)
    assert acceleration.report.reused_steps == 6
    galaxydit.apply_galaxydit(tiny_wan.pipe.transformer, OFTEN)
    galaxydit.remove_galaxydit(tiny_wan.pipe.transformer)
    galaxydit.remove_galaxydit(tiny_wan.pipe.transformer)
    assert torch.equal(tiny_wan.run(), plain)


def test_a_lost_handle_can_be_removed(tiny_wan: Any) -> None:
    plain = tiny_wan.run()
    galaxydit.accelerate(tiny_wan.pipe, config=OFTEN)
    tiny_wan.run()
    galaxydit.remove(tiny_wan.pipe)
    assert torch.equal(tiny_wan.run(), plain)
    modules = (tiny_wan.pipe.transformer, tiny_wan.pipe.text_encoder, tiny_wan.pipe.vae.decoder)
    registries = [module._diffusers_hook for module in modules if hasattr(module, "_diffusers_hook")]
    assert not [name for registry in registries for name in registry.hooks]
    galaxydit.remove(tiny_wan.pipe)


def test_a_cache_is_refused_when_it_is_enabled_afterwards(tiny_wan: Any) -> None:
    plain, transformer = tiny_wan.run(), tiny_wan.pipe.transformer
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN):
        for module in (transformer, torch.compile(transformer)):
            with pytest.raises(GalaxyDiTError, match=r"transformer\.enable_cache.*remove"):
                module.enable_cache(FirstBlockCacheConfig(threshold=0.1))
        assert not transformer.is_cache_enabled
        assert not torch.equal(tiny_wan.run(), plain)
        type(transformer).enable_cache(transformer, FirstBlockCacheConfig(threshold=0.1))
        with pytest.raises(GalaxyDiTError, match=r"FirstBlockCacheConfig enabled.*transformer\.disable_cache\(\)"):
            tiny_wan.run()
        transformer.disable_cache()
        assert not torch.equal(tiny_wan.run(), plain)
    assert "enable_cache" not in vars(transformer)
    assert torch.equal(tiny_wan.run(), plain)
    transformer.enable_cache(FirstBlockCacheConfig(threshold=0.1))
    transformer.disable_cache()


def test_a_cache_applied_by_its_hooks_is_refused_before_and_after(tiny_wan: Any) -> None:
    transformer = tiny_wan.pipe.transformer
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN):
        apply_first_block_cache(transformer, FirstBlockCacheConfig(threshold=0.1))
        with pytest.raises(GalaxyDiTError, match=r"cache FBC\w+ enabled"):
            tiny_wan.run()
    with pytest.raises(GalaxyDiTError, match=r"cache FBC\w+ enabled"):
        galaxydit.accelerate(tiny_wan.pipe, config=OFTEN)


def test_the_last_few_reports_are_kept_or_all_on_request(tiny_wan: Any) -> None:
    counts = {}
    for keep in (2, None):
        with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN, keep_reports=keep) as acceleration:
            for _ in range(4):
                tiny_wan.run(num_inference_steps=9)
        counts[keep] = len(acceleration.reports)
    assert counts == {2: 2, None: 4}
    assert signature(galaxydit.accelerate).parameters["keep_reports"].default == 16
