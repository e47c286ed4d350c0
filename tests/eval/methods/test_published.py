"""Peers at published settings, against the step lists and formulas that were published with them."""

from dataclasses import replace

import pytest
import torch

from galaxydit.eval.methods import mag_cache, step_lists
from galaxydit.eval.methods.method_registry import load_method, names_of
from galaxydit.eval.methods.taylorseer import HermiteState, TaylorSeerState, scaled_hermite
from galaxydit.pipelines.compute_counter import ComputeCounter, measure_parts
from galaxydit.pipelines.generate import generate

PUBLISHED = {name: load_method(name) for name in names_of(["published"])}
# Steps that the authors' released script computes on Wan2.1-1.3B, by threshold and limit of consecutive reuse.
RELEASED = {(0.12, 2): 25, (0.12, 4): 21, (0.24, 6): 18, (8.0, 40): 10}


@pytest.mark.parametrize("knobs", RELEASED)
def test_mag_cache_with_the_published_ratios_computes_as_many_steps_as_the_authors_code(
    knobs, tiny_wan_pipeline, tiny_settings
):
    settings = replace(tiny_settings, steps=50)
    setting = next(
        one
        for one in PUBLISHED["MagCache published"].settings(50)
        if one["ratios"] == mag_cache.WAN and (one["threshold"], one["max_skip_steps"]) == knobs
    )
    parts = measure_parts(tiny_wan_pipeline, "a", settings)
    plain = 2 * 50 * sum(part.flops for part in parts)
    with (
        PUBLISHED["MagCache published"].attach(tiny_wan_pipeline, setting, None),
        ComputeCounter(tiny_wan_pipeline.transformer, parts) as counter,
    ):
        generate(tiny_wan_pipeline, "a", settings, 0, decode=False)
    assert 50 * counter.flops / plain == pytest.approx(RELEASED[knobs])


def test_the_lists_have_the_published_numbers_of_steps():
    counts = {one["list"]: len(one["full"]) + len(one["conditional_only"]) / 2 for one in step_lists.settings(50)}
    assert list(counts.values()) == [24, 19, 19, 18, 14.5, 10]
    lemica = PUBLISHED["LeMiCa published"].settings(50)
    assert [len(one["full"]) for one in lemica] == [25, 20, 17, 14]
    first_ten = {"list": "first 10 steps, shift 5", "full": [0, 1], "conditional_only": []}
    assert step_lists.settings(10)[5] == first_ten


def test_scaled_hermite_polynomials_are_those_of_the_formula():
    assert [scaled_hermite(0, 3), scaled_hermite(1, 3), scaled_hermite(2, 3)] == pytest.approx([1, 1.5, (9 - 2) / 4])


def test_hicache_goes_half_as_far_as_taylorseer_at_order_1():
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 6.0])
    predicted = []
    for kind in (TaylorSeerState, HermiteState):
        state = kind(torch.float32, 1)
        for step, output in ((0, first), (1, second)):
            state.current_step = step
            state.update((output,))
        state.current_step = 3
        predicted.append(state.predict()[0])
    assert predicted[0].tolist() == [4.0, 14.0]
    assert torch.equal(predicted[1], (second + predicted[0]) / 2)
