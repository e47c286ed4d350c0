import numpy as np
import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.vbench import DIMENSIONS, GROUP_WEIGHTS, VBENCH
from galaxydit.eval.vbench.results import DimensionScore, VariantScores
from galaxydit.eval.vbench.score import measure_drop, normalise, total_up

RAW = {
    "subject_consistency": 0.95,
    "background_consistency": 0.96,
    "temporal_flickering": 0.98,
    "motion_smoothness": 0.985,
    "aesthetic_quality": 0.6,
    "imaging_quality": 0.65,
    "dynamic_degree": 0.5,
    "object_class": 0.8,
    "multiple_objects": 0.6,
    "human_action": 0.9,
    "color": 0.85,
    "spatial_relationship": 0.7,
    "scene": 0.4,
    "appearance_style": 0.2,
    "temporal_style": 0.24,
    "overall_consistency": 0.26,
}


def test_there_are_sixteen_dimensions():
    assert len(DIMENSIONS) == len(RAW) == 16
    groups = [dimension.group for dimension in DIMENSIONS.values()]
    assert [groups.count(name) for name in GROUP_WEIGHTS] == [7, 9]


def totals(raw: dict[str, float], complete) -> VariantScores:
    """The totals of raw scores."""
    return total_up(
        VBENCH,
        {
            name: DimensionScore(score, normalise(DIMENSIONS[name], score), "", name in complete, {}, None)
            for name, score in raw.items()
        },
    )


def test_the_total_is_that_of_the_published_arithmetic():
    quality = (
        (0.95 - 0.1462) / (1 - 0.1462)
        + (0.96 - 0.2615) / (1 - 0.2615)
        + (0.98 - 0.6293) / (1 - 0.6293)
        + (0.985 - 0.706) / (0.9975 - 0.706)
        + 0.6
        + 0.65
        + 0.5 * 0.5
    ) / 6.5
    semantic = (
        0.8 + 0.6 + 0.9 + 0.85 + 0.7 + 0.4 / 0.8222 + (0.2 - 0.0009) / (0.2855 - 0.0009) + 0.24 / 0.364 + 0.26 / 0.364
    ) / 9
    found = totals(RAW, set(RAW))
    assert found.groups == {"Quality": pytest.approx(100 * quality), "Semantic": pytest.approx(100 * semantic)}
    assert found.total == pytest.approx(100 * (4 * quality + semantic) / 5)


def test_best_scores_total_a_hundred_and_worst_ones_nothing():
    assert totals({name: one.high for name, one in DIMENSIONS.items()}, DIMENSIONS).total == pytest.approx(100)
    assert totals({name: one.low for name, one in DIMENSIONS.items()}, DIMENSIONS).total == pytest.approx(0)


def test_partial_sets_have_no_total_and_what_is_missing_is_named():
    partial = {name: value for name, value in RAW.items() if name not in ("color", "scene")}
    found = totals(partial, partial)
    assert found.total is None
    assert found.missing == ("color", "scene")
    assert found.groups == {"Quality": totals(RAW, RAW).groups["Quality"]}


def test_a_dimension_measured_on_too_few_videos_does_not_count():
    found = totals(RAW, set(RAW) - {"temporal_flickering"})
    assert found.total is None
    assert found.missing == ("temporal_flickering",)
    assert list(found.groups) == ["Semantic"]


def test_the_drop_is_in_points_and_positive_where_the_variant_is_worse():
    flicker = DIMENSIONS["temporal_flickering"]
    baseline = {(index, 0): 0.97 + 0.001 * index for index in range(8)}
    variant = {pair: value - 0.01 for pair, value in baseline.items()}
    drop = measure_drop(flicker, baseline, variant)
    assert drop.mean == pytest.approx(normalise(flicker, 0.97) - normalise(flicker, 0.96))
    assert drop.low == pytest.approx(drop.mean)
    assert drop.high == pytest.approx(drop.mean)
    assert drop.pairs == 8


def test_single_videos_on_a_larger_scale_give_the_same_points():
    quality = DIMENSIONS["imaging_quality"]
    drop = measure_drop(quality, {(0, 0): 65.0, (1, 0): 70.0}, {(0, 0): 64.0, (1, 0): 69.0})
    assert drop.mean == pytest.approx(normalise(quality, 0.65) - normalise(quality, 0.64))


def test_the_interval_covers_the_true_difference_and_shrinks_with_more_prompts():
    flicker = DIMENSIONS["temporal_flickering"]
    rng = np.random.default_rng(0)

    def drop_of(prompts: int):
        baseline = {(index, 0): float(rng.normal(0.97, 0.02)) for index in range(prompts)}
        return measure_drop(
            flicker, baseline, {pair: v - float(rng.normal(0.01, 0.004)) for pair, v in baseline.items()}
        )

    truth = 100 * 0.01 / (1 - 0.6293)
    few, many = drop_of(20), drop_of(500)
    assert all(drop.low <= truth <= drop.high for drop in (few, many))
    assert many.high - many.low < (few.high - few.low) / 2


def test_one_prompt_has_no_interval():
    videos = {(0, 0): 0.9, (0, 1): 0.8}
    drop = measure_drop(DIMENSIONS["temporal_flickering"], videos, videos)
    assert (drop.mean, drop.low, drop.high, drop.pairs) == (0.0, None, None, 2)


def test_only_videos_that_both_have_are_compared():
    flicker = DIMENSIONS["temporal_flickering"]
    drop = measure_drop(flicker, {(0, 0): 0.9, (1, 0): 0.9}, {(1, 0): 0.9, (2, 0): 0.5})
    assert (drop.mean, drop.pairs) == (0.0, 1)
    assert measure_drop(flicker, {(0, 0): 0.9}, {(1, 0): 0.9}) is None


def test_unknown_dimensions_are_refused_with_what_is_allowed():
    with pytest.raises(GalaxyDiTError, match="dimensions='flicker' is not allowed: expected one of 'subject_"):
        VBENCH.select(["flicker"])
    with pytest.raises(GalaxyDiTError, match="name at least one"):
        VBENCH.select([])
    assert [one.name for one in VBENCH.select(["scene", "color", "scene"])] == ["scene", "color"]
