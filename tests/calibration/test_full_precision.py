"""For a recording, transformers of 16 bits compute in float32, whatever their pipeline passes, and are restored."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from tiny_table import PIPELINES

from galaxydit.calibration.full_precision import in_float32, is_rounded
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.parts import CalibrationMaker
from galaxydit.calibration.recording import Recording, rounding_between
from galaxydit.pipelines.runs import Rank, Unit
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.recognition import transformers_of
from galaxydit.validation import parse


def rounded_pipeline(name: str) -> tuple:
    pipe, _ = PIPELINES[name].build()
    for transformer in transformers_of(pipe).values():
        transformer.to(torch.bfloat16)
    return pipe, PIPELINES[name].arguments


@pytest.mark.parametrize("name", list(PIPELINES))
def test_the_transformers_compute_in_float32_and_get_their_weights_back(name: str) -> None:
    pipe, arguments = rounded_pipeline(name)
    (transformer, *_) = transformers_of(pipe).values()
    before = {key: value.clone() for key, value in transformer.state_dict().items()}
    seen: list[torch.dtype] = []
    handle = transformer.register_forward_hook(
        lambda module, args, output: seen.append((output[0] if isinstance(output, tuple) else output.sample).dtype)
    )
    assert is_rounded(pipe)
    with in_float32(pipe):
        pipe(**arguments, num_inference_steps=2, output_type="latent")
    handle.remove()
    assert set(seen) == {torch.float32}
    after = transformer.state_dict()
    assert {key: value.dtype for key, value in after.items()} == {key: value.dtype for key, value in before.items()}
    assert all(torch.equal(after[key], value) for key, value in before.items())


def test_a_model_of_32_bits_or_with_weights_elsewhere_is_recorded_as_it_is() -> None:
    pipe, _ = PIPELINES["Wan VACE"].build()
    assert not is_rounded(pipe)
    pipe, _ = rounded_pipeline("Wan VACE")
    transformer = next(iter(transformers_of(pipe).values()))
    transformer.blocks[0].to("meta")
    assert not is_rounded(pipe)


def test_only_the_layer_that_computes_is_widened_among_the_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("galaxydit.calibration.full_precision.SMALL", 0)
    pipe, arguments = rounded_pipeline("Wan VACE")
    (transformer,) = transformers_of(pipe).values()
    linear = [module for module in transformer.blocks.modules() if isinstance(module, torch.nn.Linear)]
    widened = []

    def count(*_: object) -> None:
        widened.append(sum(module.weight.dtype is torch.float32 for module in linear))

    handles = [module.register_forward_hook(count) for module in linear]
    with in_float32(pipe):
        exact = pipe(**arguments, num_inference_steps=2, output_type="latent", generator=torch.manual_seed(0)).frames
    for handle in handles:
        handle.remove()
    assert max(widened) == 1
    monkeypatch.undo()
    with in_float32(pipe):
        whole = pipe(**arguments, num_inference_steps=2, output_type="latent", generator=torch.manual_seed(0)).frames
    assert torch.equal(exact, whole)


def test_an_error_within_restores_the_weights() -> None:
    pipe, _ = rounded_pipeline("Wan VACE")
    with pytest.raises(torch.OutOfMemoryError), in_float32(pipe):
        raise torch.OutOfMemoryError
    assert all(one.dtype is torch.bfloat16 for one in next(iter(transformers_of(pipe).values())).parameters())


@pytest.mark.parametrize(("dtype", "rounds"), [("bfloat16", True), ("float32", False)])
def test_a_sample_is_recorded_in_float32_and_the_first_one_also_in_its_own_dtype(
    dtype: str, rounds: bool, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    tiny_wan_pipeline.transformer.to(getattr(torch, dtype))
    maker = CalibrationMaker(lambda: tiny_wan_pipeline)
    maker.prepare(Rank())
    start = {"part": "sample", "prompt": "a red ball", "seed": 1, "settings": asdict(settings)}
    made = maker.make(Unit("sample", {**start, "rounding": True})).result
    assert len(made["perturbations"]) == 3
    exact = parse(Recording, made["recording"])
    own, *_ = record_sample(tiny_wan_pipeline, "a red ball", settings, 1)
    assert exact.rounding == (rounding_between(own, exact) if rounds else 0)
    assert (np.diagonal(own.products) != np.diagonal(exact.products)).all() == rounds
    np.testing.assert_allclose(np.sqrt(np.diagonal(own.products)), np.sqrt(np.diagonal(exact.products)), rtol=0.5)
