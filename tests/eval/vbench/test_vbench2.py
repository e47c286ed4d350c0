"""VBench-2.0: groups, names, numbers of videos and totals.

GALAXYDIT_TEST_VBENCH2=DIR, the folder of `galaxydit eval vbench setup --suite vbench2`, also holds them to the package.
GALAXYDIT_TEST_VBENCH2_SCRIPTS=DIR, the folder VBench-2.0/scripts of github.com/Vchitect/VBench, to its aggregation.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.published.vbench2 import VBENCH2
from galaxydit.eval.vbench.arrange import CUSTOM, STANDARD, arrange
from galaxydit.eval.vbench.environment import open_environment, read_full_info
from galaxydit.eval.vbench.results import DimensionScore, VariantScores, read_scores
from galaxydit.eval.vbench.score import normalise, total_up
from galaxydit.eval.vbench.share_maker import DRIVER

DIMENSIONS = VBENCH2.dimensions
ENVIRONMENT, SCRIPTS = (os.environ.get(f"GALAXYDIT_TEST_VBENCH2{end}") for end in ("", "_SCRIPTS"))
MADE_UP = {name: round(0.3 + 0.037 * index, 4) for index, name in enumerate(DIMENSIONS)}


def clips(prompts, samples) -> list[VideoRecord]:
    return [
        VideoRecord(f"unit {i} {j}", {}, "done", 1, 1.0, "", "", prompt=prompt, sample=j, video="")
        for i, prompt in enumerate(prompts)
        for j in range(samples)
    ]


def totals(raw) -> VariantScores:
    scores = {
        name: DimensionScore(score, normalise(DIMENSIONS[name], score), STANDARD, True, {}, None)
        for name, score in raw.items()
    }
    return total_up(VBENCH2, scores)


def test_eighteen_dimensions_lie_in_five_groups():
    groups = [dimension.group for dimension in DIMENSIONS.values()]
    assert {group: groups.count(group) for group in VBENCH2.groups} == {
        "Creativity": 2,
        "Commonsense": 2,
        "Controllability": 7,
        "Human Fidelity": 3,
        "Physics": 4,
    }
    assert all(one.needs or one.weights for one in DIMENSIONS.values()), "no dimension is without weights"


def test_the_total_is_the_mean_of_the_means_of_the_groups():
    found = totals(MADE_UP)
    means = {
        group: sum(MADE_UP[name] for name, one in DIMENSIONS.items() if one.group == group)
        / sum(one.group == group for one in DIMENSIONS.values())
        for group in VBENCH2.groups
    }
    assert found.groups == pytest.approx({group: 100 * mean for group, mean in means.items()})
    assert found.total == pytest.approx(100 * sum(means.values()) / 5)
    assert totals({name: value for name, value in MADE_UP.items() if name != "Material"}).total is None


def test_names_hold_the_first_180_characters_and_diversity_has_twenty_videos():
    full_info = [
        {"prompt_en": "x" * 200, "dimension": ["Composition"]},
        {"prompt_en": "a forest", "dimension": ["Diversity"]},
    ]
    both = clips(["x" * 200, "a forest"], 20)
    composition = arrange(VBENCH2, DIMENSIONS["Composition"], both, full_info)
    assert list(composition.files) == [f"{'x' * 180}-{index}.mp4" for index in range(3)]
    diversity = arrange(VBENCH2, DIMENSIONS["Diversity"], both, full_info)
    assert list(diversity.files) == [f"a forest-{index}.mp4" for index in range(20)]
    assert composition.complete
    assert diversity.complete


def test_only_five_dimensions_take_other_prompts():
    full_info = [{"prompt_en": "a forest", "dimension": ["Diversity"]}]
    others = clips(["a cat"], 1)
    assert arrange(VBENCH2, DIMENSIONS["Human_Anatomy"], others, full_info).mode == CUSTOM
    with pytest.raises(GalaxyDiTError, match=r"takes only the prompts of VBench-2\.0.*--suite vbench2"):
        arrange(VBENCH2, DIMENSIONS["Composition"], others, full_info)
    assert sum(one.custom for one in DIMENSIONS.values()) == 5


def test_upstreams_file_may_score_some_videos_only_and_its_score_is_taken(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"Diversity": [0.7, [{"video_path": "/x/a forest-0.mp4", "video_results": 0.7}]]}))
    names = [f"a forest-{index}.mp4" for index in range(20)]
    assert read_scores(path, DIMENSIONS["Diversity"], names) == (0.7, {"a forest-0.mp4": (0.7, 1.0)})


@pytest.mark.skipif(SCRIPTS is None, reason="set GALAXYDIT_TEST_VBENCH2_SCRIPTS to run it")
def test_totals_equal_upstreams_script(tmp_path):
    with zipfile.ZipFile(tmp_path / "scores.zip", "w") as archive:
        for name, score in MADE_UP.items():
            archive.writestr(f"{name}_eval_results.json", json.dumps({name: [score, []]}))
    command = [
        sys.executable,
        Path(SCRIPTS) / "cal_final_score.py",
        "--zip_file",
        "scores.zip",
        "--model_name",
        "made up",
    ]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    rows = [line.strip("|").split("|") for line in printed.splitlines() if "score|" in line]
    theirs = {label.strip(): float(value) for label, value in rows}
    found = totals(MADE_UP)
    ours = {f"{group.lower()} score": points / 100 for group, points in found.groups.items()}
    assert theirs == pytest.approx(ours | {"total score": found.total / 100}, abs=1e-12)


@pytest.mark.skipif(ENVIRONMENT is None, reason="set GALAXYDIT_TEST_VBENCH2 to run it")
def test_upstreams_loader_finds_every_video_under_our_names(tmp_path):
    environment = open_environment(Path(ENVIRONMENT), VBENCH2)
    assert environment.version == VBENCH2.version
    full_info = read_full_info(environment, VBENCH2)
    assert {name for entry in full_info for name in entry["dimension"]} == set(DIMENSIONS)
    arranged = {}
    for name, dimension in DIMENSIONS.items():
        prompts = list(dict.fromkeys(entry["prompt_en"] for entry in full_info if name in entry["dimension"]))
        found = arrange(VBENCH2, dimension, clips(prompts, dimension.samples), full_info)
        assert found.complete
        assert len(found.files) == len(prompts) * dimension.samples, "no two videos share a name"
        folder = tmp_path / name
        (folder / "videos").mkdir(parents=True)
        for file in found.files:
            (folder / "videos" / file).touch()
        (folder / "prompts.json").write_text(json.dumps(found.entries))
        arranged[name] = len(found.entries) * dimension.samples  # upstream lists a prompt twice, and counts it twice
    code = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import shims
shims.install("vbench2", "")
from vbench2 import VBench2
counts = {}
for folder in Path(sys.argv[1]).iterdir():
    benchmark = VBench2("cpu", str(folder / "prompts.json"), str(folder))
    path = benchmark.build_full_info_json(str(folder / "videos"), "found", [folder.name])
    counts[folder.name] = sum(len(entry["video_list"]) for entry in json.load(open(path)))
print("counts", json.dumps(counts))
"""
    done = subprocess.run(
        [environment.python, "-c", code, tmp_path, DRIVER.parent], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout.rpartition("counts ")[2]) == arranged
    assert "WARNING" not in done.stdout
