import json
import math
from dataclasses import asdict

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.vbench import DIMENSIONS
from galaxydit.eval.vbench.results import (
    DimensionScore,
    Drop,
    Results,
    VariantScores,
    combine,
    read_results,
    read_scores,
)

NAMES = ("a-0.mp4", "b-0.mp4")
DYNAMIC = DIMENSIONS["dynamic_degree"]


def written(tmp_path, content):
    path = tmp_path / "scores.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def videos(**values):
    return [{"video_path": f"/data/videos/{name}-0.mp4", "video_results": value} for name, value in values.items()]


def test_the_score_and_value_and_count_of_single_videos_are_read(tmp_path):
    path = written(tmp_path, {"dynamic_degree": [0.5, videos(a=True, b=False)]})
    assert read_scores(path, DYNAMIC, NAMES) == (0.5, {"a-0.mp4": (1.0, 1.0), "b-0.mp4": (0.0, 1.0)})


def counted(dimension, *entries):
    return {dimension: [score_of(dimension), [{"video_path": f"{name}-0.mp4"} | rest for name, rest in entries]]}


def score_of(dimension) -> float:
    return {"object_class": 3 / 20, "spatial_relationship": 0.4, "background_consistency": 3.5 / 4}[dimension]


@pytest.mark.parametrize(
    ("dimension", "entries"),
    [
        (
            "object_class",
            [
                ("a", {"video_results": 1 / 4, "success_frame_count": 1, "frame_count": 4}),
                ("b", {"video_results": 2 / 16, "success_frame_count": 2, "frame_count": 16}),
            ],
        ),
        (
            "spatial_relationship",
            [
                ("a", {"video_results": 0.5, "frame_results": [0, 1]}),
                ("b", {"video_results": 1 / 3, "frame_results": [0, 0, 1]}),
            ],
        ),
        (
            "background_consistency",
            [
                ("a", {"video_results": 0.5, "cnt_per_video": 1}),
                ("b", {"video_results": 1.0, "cnt_per_video": 3}),
            ],
        ),
    ],
)
def test_videos_count_by_what_upstream_averages_over(tmp_path, dimension, entries):
    score, found = read_scores(written(tmp_path, counted(dimension, *entries)), DIMENSIONS[dimension], NAMES)
    assert combine(DIMENSIONS[dimension], found.values()) == pytest.approx(score, abs=1e-12)


def test_the_scale_of_single_videos_is_taken_back(tmp_path):
    path = written(tmp_path, {"imaging_quality": [0.65, videos(a=60.0, b=70.0)]})
    assert read_scores(path, DIMENSIONS["imaging_quality"], NAMES)[0] == 0.65


def test_videos_that_do_not_give_the_score_are_refused(tmp_path):
    path = written(tmp_path, {"dynamic_degree": [0.6, videos(a=True, b=False)]})
    with pytest.raises(GalaxyDiTError, match=r"do not give its score, 0\.6"):
        read_scores(path, DYNAMIC, NAMES)


def test_color_may_leave_out_videos_without_the_object_and_have_none(tmp_path):
    color = DIMENSIONS["color"]
    assert read_scores(written(tmp_path, {"color": [0.5, videos(a=0.5)]}), color, NAMES) == (0.5, {"a-0.mp4": (0.5, 1)})
    assert read_scores(written(tmp_path, {"color": [None, []]}), color, NAMES) == (None, {})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        {"dynamic_degree": []},
        {"dynamic_degree": [0.5]},
        {"dynamic_degree": [math.nan, []]},
        {"scene": [0.5, []]},
        {"dynamic_degree": [0.5, [1]]},
    ],
    ids=str,
)
def test_a_file_that_does_not_hold_the_score_is_refused(tmp_path, content):
    with pytest.raises(GalaxyDiTError, match="does not hold a score of dynamic_degree"):
        read_scores(written(tmp_path, content), DYNAMIC, NAMES)


@pytest.mark.parametrize("value", [None, "0.9", math.nan, [0.9]], ids=str)
def test_a_video_without_a_score_is_refused_by_name(tmp_path, value):
    path = written(tmp_path, {"dynamic_degree": [0.5, videos(a=0.5, b=value)]})
    with pytest.raises(GalaxyDiTError, match=r"no score for 1 of 2 videos, the first is 'b-0\.mp4'"):
        read_scores(path, DYNAMIC, NAMES)


def some_results() -> Results:
    score = DimensionScore(0.98, 94.6, "custom_input", False, {"unit a": 0.98}, Drop(0.1, None, None, 1))
    return Results(2, "0.1.5", True, 0, {"fast": VariantScores({}, None, ("scene",), {"color": score})}, {})


def text() -> str:
    return json.dumps(asdict(some_results()), indent=1)


def test_results_come_back_as_they_were_written(tmp_path):
    path = written(tmp_path, text())
    assert read_results(path) == some_results()


def test_damaged_and_foreign_results_are_refused(tmp_path):
    with pytest.raises(GalaxyDiTError, match="is damaged"):
        read_results(written(tmp_path, text()[:-20]))
    with pytest.raises(GalaxyDiTError, match="not of version 2"):
        read_results(written(tmp_path, {"version": 1}))
    with pytest.raises(GalaxyDiTError, match="total='high'"):
        read_results(written(tmp_path, text().replace('"total": null', '"total": "high"')))
