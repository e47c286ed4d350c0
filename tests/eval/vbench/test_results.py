import json
import math
from dataclasses import asdict

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.vbench.results import DimensionScore, Drop, Results, VariantScores, read_results, read_scores

FILES = {"a-0.mp4": "unit a", "b-0.mp4": "unit b"}


def written(tmp_path, content):
    path = tmp_path / "scores.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def videos(**values):
    return [{"video_path": f"/data/videos/{name}-0.mp4", "video_results": value} for name, value in values.items()]


def test_the_score_and_those_of_single_videos_are_read_by_unit(tmp_path):
    path = written(tmp_path, {"dynamic_degree": [0.5, videos(a=True, b=False)]})
    assert read_scores(path, "dynamic_degree", FILES) == (0.5, {"unit a": 1.0, "unit b": 0.0})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        {"color": []},
        {"color": [None, []]},
        {"color": [0.5]},
        {"color": [math.nan, []]},
        {"scene": [0.5, []]},
        {"color": [0.5, [1]]},
        {"color": [0.5, [{"video_path": "a-0.mp4"}]]},
    ],
    ids=str,
)
def test_a_file_that_does_not_hold_the_score_is_refused(tmp_path, content):
    with pytest.raises(GalaxyDiTError, match="does not hold a score of color"):
        read_scores(written(tmp_path, content), "color", FILES)


@pytest.mark.parametrize("value", [None, "0.9", math.nan, [0.9]], ids=str)
def test_a_video_without_a_score_is_refused_by_name(tmp_path, value):
    path = written(tmp_path, {"color": [0.5, videos(a=0.9, b=value)]})
    with pytest.raises(GalaxyDiTError, match=r"no score for 1 of 2 videos, the first is 'b-0\.mp4'"):
        read_scores(path, "color", FILES)


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
