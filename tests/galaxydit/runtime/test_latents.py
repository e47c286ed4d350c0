"""A transformer's input is compared with what `step` returned, value by value, wherever the latent stands in it."""

from typing import Any

import pytest
import torch
from diffusers import EulerDiscreteScheduler
from torch import Tensor

from galaxydit.runtime.latents import MOST_PLACES, SAMPLED, LatentComparison, Returned, positions_in

SHAPE = (1, 4, 6, 8, 8)
LARGE = (1, 16, 4, 16, 16)  # more values than are sampled


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compare(comparison: LatentComparison, latent: Tensor, given: Tensor, *, is_early: bool = False) -> tuple[int, int]:
    """How many positions were compared, and how many are equal."""
    is_whole = given[0].numel() < latent[0].numel()
    compared, equal = comparison.counts(Returned(latent, is_whole=is_whole), given, is_early=is_early).tolist()
    return compared, equal


def is_expected(counts: tuple[int, int]) -> bool:
    compared, equal = counts
    return 0 < compared == equal


def is_broken(counts: tuple[int, int]) -> bool:
    compared, equal = counts
    return equal < compared


UNKNOWN = (0, 0)


def next_float(latent: Tensor) -> Tensor:
    """The latent with each value moved by one unit in the last place."""
    return torch.nextafter(latent, torch.full_like(latent, torch.inf))


@pytest.mark.parametrize("shape", [SHAPE, LARGE, (1, 64, 128), (2, 4, 3, 8, 8)])
def test_a_latent_is_known_and_its_nearest_sibling_is_not(shape: tuple[int, ...]) -> None:
    latent, comparison = drawn(*shape), LatentComparison()
    most = min(SAMPLED, latent.numel())
    assert compare(comparison, latent, latent.clone(), is_early=True) == (most, most)
    compared, equal = compare(comparison, latent, next_float(latent))
    assert (compared, equal) == (most, 0)


@pytest.mark.parametrize("shape", [SHAPE, LARGE])
def test_the_sampled_positions_are_spread_over_all_axes(shape: tuple[int, ...]) -> None:
    positions = positions_in(torch.Size(shape), torch.device("cpu"))
    for size, places in zip(shape, positions, strict=True):
        assert len(places.unique()) == size
    flat = set(zip(*(places.tolist() for places in positions), strict=True))
    assert len(flat) == min(SAMPLED, torch.Size(shape).numel()), "no position is sampled twice"


def test_a_rolled_a_replaced_and_a_resized_latent_are_broken() -> None:
    latent, comparison = drawn(*SHAPE), LatentComparison()
    assert is_expected(compare(comparison, latent, latent.clone(), is_early=True))
    assert is_broken(compare(comparison, latent, latent.roll(1, -1)))
    assert is_broken(compare(comparison, latent, drawn(*SHAPE, seed=1)))
    assert is_broken(compare(comparison, latent, latent[..., :4]))
    assert is_broken(compare(comparison, latent[..., :4], latent[..., :4]))
    assert is_expected(compare(comparison, latent, latent.clone()))


def test_a_latent_that_is_edited_in_one_region_is_broken() -> None:
    latent, comparison = drawn(*SHAPE), LatentComparison()
    compare(comparison, latent, latent, is_early=True)
    edited = latent.clone()
    edited[..., 3, 5] += 1e-4
    assert is_broken(compare(comparison, latent, edited))


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_latent_that_is_changed_in_place_after_step_is_broken(*, is_whole: bool) -> None:
    latent, comparison = drawn(*SHAPE), LatentComparison()
    compare(comparison, latent, latent, is_early=True)
    returned = Returned(latent, is_whole=is_whole)
    latent.add_(1e-3)
    assert is_broken(tuple(comparison.counts(returned, latent, is_early=False).tolist()))


FEW = (1, 4, 3, 5, 4)


@pytest.mark.parametrize("start", [(0, 0, 0), (3, 0, 0), (0, 3, 4), (2, 1, 3), (3, 3, 4)])
def test_a_window_is_found_at_every_place(start: tuple[int, int, int]) -> None:
    latent, comparison = drawn(*SHAPE), LatentComparison()
    frame, row, column = start
    window = latent[:, :, frame : frame + FEW[2], row : row + FEW[3], column : column + FEW[4]]
    counts = compare(comparison, latent, window, is_early=True)
    assert counts == (window.numel(), window.numel())
    assert comparison.place is not None
    assert tuple(int(axis) for axis in comparison.place) == (0, 0, *start)
    other = drawn(*SHAPE, seed=1)
    moved = other[:, :, frame : frame + FEW[2], row : row + FEW[3], column : column + FEW[4]]
    assert is_expected(compare(comparison, other, moved)), "the place is that of the loop, not of the values"
    assert is_broken(compare(comparison, other, next_float(moved)))
    elsewhere = other.roll(1, 2)[:, :, frame : frame + FEW[2], row : row + FEW[3], column : column + FEW[4]]
    assert is_broken(compare(comparison, other, elsewhere))


@pytest.mark.parametrize("place", range(4))
def test_a_latent_is_found_wherever_conditions_are_appended(place: int) -> None:
    """Conditions before or after the latent, as channels or frames."""
    axis, is_before = 1 + place // 2, place % 2 == 0
    latent, condition, comparison = drawn(*SHAPE), drawn(*SHAPE, seed=1), LatentComparison()

    def given(latent: Tensor) -> Tensor:
        return torch.cat([condition, latent] if is_before else [latent, condition], dim=axis)

    counts = compare(comparison, latent, given(latent), is_early=True)
    assert counts == (latent.numel(), latent.numel())
    for seed in (2, 3):
        moved = drawn(*SHAPE, seed=seed)
        assert is_expected(compare(comparison, moved, given(moved)))
        assert is_broken(compare(comparison, moved, given(next_float(moved))))


def test_single_frames_that_are_stepped_are_compared_with_an_input_that_has_the_axis_of_frames() -> None:
    frame, comparison = drawn(1, 4, 8, 8), LatentComparison()
    assert is_expected(compare(comparison, frame, frame.unsqueeze(2), is_early=True))
    assert is_broken(compare(comparison, frame, next_float(frame).unsqueeze(2)))


def test_a_frame_of_a_video_is_compared_with_its_own_scheduler() -> None:
    """Where frames are stepped alone, by copies of the scheduler, each stands at its place in the input."""
    comparisons = [LatentComparison() for _ in range(3)]
    for is_early in (True, False):
        video = drawn(1, 4, 3, 8, 8, seed=int(is_early))
        for index, comparison in enumerate(comparisons):
            assert is_expected(compare(comparison, video[:, :, index : index + 1], video, is_early=is_early))
    other = video.flip(2)
    assert is_broken(compare(comparisons[0], video[:, :, :1], other))


@pytest.mark.parametrize("rows", [1, 2])
def test_guidance_in_one_batch_repeats_the_latent(rows: int) -> None:
    latent, comparison = drawn(rows, *SHAPE[1:]), LatentComparison()
    assert is_expected(compare(comparison, latent, torch.cat([latent, latent]), is_early=True))
    assert is_broken(compare(comparison, latent, torch.cat([next_float(latent)] * 2)))
    assert is_expected(compare(comparison, latent, latent)), "and one branch alone is the same latent"


def test_a_latent_in_float32_is_known_in_an_input_of_bfloat16() -> None:
    latent, comparison = drawn(*SHAPE), LatentComparison()
    assert is_expected(compare(comparison, latent, latent.bfloat16(), is_early=True))
    assert is_broken(compare(comparison, latent, (1.01 * latent).bfloat16()))
    window = latent[:, :, :3]
    assert is_expected(compare(LatentComparison(), latent, window.bfloat16(), is_early=True))
    larger = torch.cat([latent, drawn(*SHAPE, seed=1)], dim=1)
    assert is_expected(compare(LatentComparison(), latent, larger.bfloat16(), is_early=True))


def scale(returned: Returned, scheduler: Any, latent: Tensor, step: int) -> Tensor:
    scaled: Tensor = scheduler.scale_model_input(latent, scheduler.timesteps[step])
    returned.scale(latent, scaled)
    return scaled


@pytest.mark.parametrize("has_condition", [False, True])
@pytest.mark.parametrize("is_doubled", [False, True])
def test_a_latent_is_known_after_scale_model_input(*, is_doubled: bool, has_condition: bool) -> None:
    scheduler, comparison, condition = EulerDiscreteScheduler(), LatentComparison(), drawn(*SHAPE, seed=9)
    scheduler.set_timesteps(6)

    def given(latent: Tensor, step: int, returned: Returned) -> Tensor:
        scaled = scale(returned, scheduler, torch.cat([latent, latent]) if is_doubled else latent, step)
        return torch.cat([scaled, condition.expand(len(scaled), -1, -1, -1, -1)], dim=1) if has_condition else scaled

    for step in range(4):
        scheduler._step_index = step
        latent = 10 * drawn(*SHAPE, seed=step)
        returned = Returned(latent, is_whole=False)
        model_input = given(latent, step, returned)
        assert not torch.equal(model_input[:1, :4], latent)
        counts = comparison.counts(returned, model_input, is_early=step < 2)
        assert is_expected(tuple(counts.tolist()))
    returned = Returned(latent, is_whole=False)
    other = given(next_float(latent), 3, returned)
    assert is_broken(tuple(comparison.counts(returned, other, is_early=False).tolist()))


def test_another_latent_that_was_scaled_in_between_is_broken() -> None:
    """Only the input of the latest scaling is the latent, and its output has to reach the transformer."""
    scheduler, comparison = EulerDiscreteScheduler(), LatentComparison()
    scheduler.set_timesteps(6)
    latent = 10 * drawn(*SHAPE)
    returned = Returned(latent, is_whole=False)
    assert is_expected(
        tuple(comparison.counts(returned, scale(returned, scheduler, latent, 0), is_early=True).tolist())
    )
    returned = Returned(latent, is_whole=False)
    own = scale(returned, scheduler, latent, 0)
    scale(returned, scheduler, drawn(*SHAPE, seed=1), 0)
    assert is_broken(tuple(comparison.counts(returned, own, is_early=False).tolist()))


def test_positions_that_are_not_carried_over_in_the_first_two_steps_are_left_out() -> None:
    """The first frame is a condition, which the pipeline writes into the latent before each call."""
    condition, comparison = drawn(*SHAPE, seed=99)[:, :, :1], LatentComparison()

    def given(latent: Tensor) -> Tensor:
        return torch.cat([condition, latent[:, :, 1:]], dim=2)

    carried = drawn(*SHAPE)[:, :, 1:].numel()
    for seed in range(4):
        latent = drawn(*SHAPE, seed=seed)
        assert compare(comparison, latent, given(latent), is_early=seed < 2) == (carried, carried)
    assert is_broken(compare(comparison, latent, given(next_float(latent))))


def test_a_position_has_to_be_carried_over_in_both_of_the_first_steps() -> None:
    latents, comparison = [drawn(*SHAPE, seed=seed) for seed in range(2)], LatentComparison()
    halves = [latents[0].clone(), latents[1].clone()]
    halves[0][..., :4] = 0
    halves[1][..., 4:] = 0
    assert is_expected(compare(comparison, latents[0], halves[0], is_early=True))
    assert is_broken(compare(comparison, latents[1], halves[1], is_early=True)), "no position is left"
    assert not is_expected(compare(comparison, latents[1], latents[1]))


def test_an_input_that_shares_no_value_is_unknown() -> None:
    latent, comparison = drawn(*SHAPE), LatentComparison()
    assert compare(comparison, latent, 2 * latent, is_early=True) == UNKNOWN
    assert compare(comparison, latent, 2 * latent) == UNKNOWN


@pytest.mark.parametrize(
    "shape", [(1, 64, 32), (1, 2, 12, 8, 8), (1, 4, 6, 64)], ids=["tokens", "mixed", "an axis less"]
)
def test_an_input_of_another_arrangement_is_unknown(shape: tuple[int, ...]) -> None:
    assert compare(LatentComparison(), drawn(*SHAPE), drawn(*shape), is_early=True) == UNKNOWN


def test_an_input_of_another_arrangement_is_not_of_the_loop_that_follows() -> None:
    """A call whose input could not be compared is another latent's, if those of other calls can be."""
    latent, comparison = drawn(*SHAPE), LatentComparison()
    window, whole = latent[:, :, :3], Returned(latent, is_whole=False)
    first = tuple(comparison.counts(whole, window, is_early=True).tolist())
    second = compare(comparison, latent, latent, is_early=True)
    assert is_broken(first) or is_broken(second)


def test_a_window_among_too_many_places_is_unknown() -> None:
    latent = drawn(1, 1, 20, 20, 20)
    assert MOST_PLACES < 17**3
    assert compare(LatentComparison(), latent, latent[:, :, 3:7, 3:7, 3:7], is_early=True) == UNKNOWN
    assert is_expected(compare(LatentComparison(), latent, latent[:, :, 3:8, 3:8, 3:8], is_early=True))


def test_a_latent_among_too_many_places_is_unknown() -> None:
    latent = drawn(1, 1, 4, 4, 4)
    padded = torch.nn.functional.pad(latent, (8, 8, 8, 8, 8, 8))
    assert compare(LatentComparison(), latent, padded, is_early=True) == UNKNOWN


def test_a_latent_that_is_kept_is_not_the_tensor_that_the_pipeline_goes_on_with() -> None:
    latent = drawn(*SHAPE)
    for is_whole in (False, True):
        returned, before = Returned(latent, is_whole=is_whole), latent.clone()
        latent.zero_()
        assert returned.values.equal(before[positions_in(before.shape, before.device)])
        assert returned.whole is None if not is_whole else returned.whole is not None and returned.whole.equal(before)
        latent.copy_(before)


def test_gradients_are_not_recorded_through_a_comparison() -> None:
    latent = drawn(*SHAPE).requires_grad_()
    counts = LatentComparison().counts(Returned(latent, is_whole=True), latent * 1, is_early=True)
    assert not counts.requires_grad
