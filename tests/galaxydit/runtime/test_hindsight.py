"""From the outputs of full steps to the numbers of the guard."""

import numpy as np
import pytest
import torch

from galaxydit.families import FAMILIES
from galaxydit.policies.safeguard import Safeguard
from galaxydit.runtime.guidance import branches_of, guidance_of, guided
from galaxydit.runtime.hindsight import LARGEST_SAMPLE, Trail, measure, sampled

WAN, LTX = FAMILIES["WanTransformer3DModel"], FAMILIES["LTXVideoTransformer3DModel"]
EPSILON = 0.01


def outputs(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(500, generator=generator) for name in ("cond", "uncond")}


def test_large_outputs_are_sampled_at_a_stride_that_meets_every_column() -> None:
    output = torch.arange(4 * 8 * 160 * 160).reshape(1, 4, 8, 160, 160)
    found = sampled([output])
    assert found.dtype == torch.float32
    assert LARGEST_SAMPLE / 2 < len(found) <= LARGEST_SAMPLE
    assert len((found.long() % 160).unique()) == 160


def test_a_sample_is_a_copy() -> None:
    output = torch.zeros(1, 4, 2, 4, 4)
    found = sampled([output])
    output.fill_(1.0)
    assert not found.any()


def test_products_are_those_of_the_guided_outputs() -> None:
    trail, scale = Trail(Safeguard()), 3.0
    sigmas = [1.0, 0.9, 0.7, 0.4, 0.3]
    complete = []
    for step, sigma in enumerate(sigmas):
        for name, values in outputs(step).items():
            complete.append(trail.add(step, sigma, {name: values}, scale, EPSILON))
    # The first step has none before it; it is complete when the second one begins.
    assert complete == [False, False, False, True, False, True, False, True, False, True]
    found = measure(trail.steps)
    y = [guided(outputs(step), scale).double().numpy() for step in (4, 3, 2, 1)]
    differences = np.array([y[0] - y[1], y[1] - y[2], y[2] - y[3]])
    assert np.allclose(found.products, differences @ differences.T / 500, rtol=1e-4)
    assert found.ahead == pytest.approx(0.85 * 0.1 / 0.3)
    assert found.skipping == pytest.approx((0.85 * 0.4 / 0.2, 0.85 * 0.3 / 0.2))
    assert found.inner == pytest.approx(0.3 / 0.4)
    squares = {name: float(values.square().mean()) for name, values in outputs(4).items()}
    assert found.rounding == pytest.approx(EPSILON**2 * (9 * squares["cond"] + 4 * squares["uncond"]), rel=1e-4)
    assert found.step == 4


def test_a_change_of_branches_starts_anew() -> None:
    trail = Trail(Safeguard())
    for step in range(3):
        for name, values in outputs(step).items():
            trail.add(step, 1 - step / 10, {name: values}, 3.0, EPSILON)
    alone = [trail.add(step, 1 - step / 10, {"cond": outputs(step)["cond"]}, 3.0, EPSILON) for step in (3, 4, 5)]
    assert alone == [False, True, True]
    assert [step.step for step in trail.steps] == [3, 4, 5]


def test_branches_of_one_batch_are_taken_apart() -> None:
    batch = torch.arange(4.0).reshape(4, 1)
    halves = branches_of(batch, "cond_uncond", LTX, 3.0)
    assert {name: rows.flatten().tolist() for name, rows in halves.items()} == {"uncond": [0, 1], "cond": [2, 3]}
    assert list(branches_of(batch, "cond_uncond", LTX, 1.0)) == ["cond_uncond"]
    assert list(branches_of(batch, "call 1", WAN, 3.0)) == ["uncond"]


def test_branches_of_unknown_names_are_compared_side_by_side() -> None:
    values = torch.ones(2)
    assert guided({"cond": values, "uncond": 0 * values}, 3.0).tolist() == [3.0, 3.0]
    assert guided({"call 2": 2 * values, "cond": values}, 3.0).tolist() == [2.0, 2.0, 1.0, 1.0]


def test_the_guidance_scale_of_the_second_transformer_is_its_own() -> None:
    class Pipe:
        _guidance_scale, _guidance_scale_2 = 4.0, 3.0

    assert (guidance_of(Pipe()), guidance_of(Pipe(), "transformer_2"), guidance_of(object())) == (4.0, 3.0, 1.0)
