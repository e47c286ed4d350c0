import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from diffusers import WanTransformer3DModel
from torch import nn

from galaxydit.profiles.fingerprint import model_mismatch, model_of, project_weights


def test_the_order_in_which_modules_were_registered_does_not_matter() -> None:
    parts = {name: nn.Linear(8, 8) for name in "abcdefghijkl"}
    forth, back = nn.Module(), nn.Module()
    for name in parts:
        forth.add_module(name, parts[name])
    for name in reversed(parts):
        back.add_module(name, parts[name])
    assert project_weights(forth) == project_weights(back)
    assert len(project_weights(forth)) == 8


def test_weights_of_another_kind_are_not_read() -> None:
    """Quantised weights are subclasses of parameters, and many operations on them fail."""

    class Packed(nn.Parameter):
        pass

    model = nn.Linear(8, 8)
    assert project_weights(model)
    model.weight = Packed(model.weight.detach())
    assert project_weights(model) == ()


@pytest.mark.parametrize(("where", "change"), [("ffn", 0.05), ("to_q", 0.05), ("", 0.02)])
def test_a_fine_tune_of_some_layers_is_told_from_its_base(
    tiny_transformer: Callable[[int], WanTransformer3DModel], where: str, change: float
) -> None:
    model = tiny_transformer(3)
    before = model_of(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if where in name and weights.ndim >= 2:
                weights.add_(torch.randn_like(weights) * weights.std() * change)
    assert model_mismatch(before, model).part == "weights"


def test_a_subclass_keeps_the_profile_of_its_base(tiny_transformer: Callable[[int], WanTransformer3DModel]) -> None:
    """`fully_shard` gives a model such a class, and so do users who change a forward."""
    model = tiny_transformer(2)
    known = model_of(model)
    model.__class__ = type("FSDPWanTransformer3DModel", (WanTransformer3DModel,), {})
    assert model_mismatch(known, model) is None
    assert model_of(model) == known
    assert model_mismatch(replace(known, class_name="LTXVideoTransformer3DModel"), model).part == "class"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_or_fused_projections_are_the_same_checkpoint(
    tiny_transformer: Callable[[int], WanTransformer3DModel], dtype: torch.dtype
) -> None:
    model = tiny_transformer(3)
    before = model_of(model)
    assert model_mismatch(before, model.to(dtype)) is None
    model.fuse_qkv_projections()
    assert model_mismatch(before, model) is None


def test_another_adapter_of_the_same_name_is_told_apart(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    peft = pytest.importorskip("peft")
    base = tiny_transformer(2)

    def with_adapter(seed: int) -> WanTransformer3DModel:
        model = copy.deepcopy(base)
        torch.manual_seed(seed)
        model.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False), "default_0")
        return model

    known = model_of(with_adapter(0))
    assert model_mismatch(known, with_adapter(0)) is None
    assert model_mismatch(known, with_adapter(1)).part == "weights"
