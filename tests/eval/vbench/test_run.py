"""From a run's folder to results.json through a real subprocess; its packages are stand-ins."""

import json
from pathlib import Path

import fsspec
import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.vbench import DIMENSIONS
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.vbench.results import read_results, results_path
from galaxydit.eval.vbench.run import check_weights, evaluate

CAPTIONS = ("a cat", "a/cat", "a?cat", "<script>" + "x" * 300, "日本 🐈")
FLICKER = ["temporal_flickering"]


def seen(run, variant="baseline", dimension="temporal_flickering"):
    """What the stand-in was given."""
    return json.loads((run / "vbench" / "work" / variant / dimension / "seen.json").read_text())


def test_other_prompts_go_through_the_custom_mode_with_every_video(make_run, fake_environment):
    run = make_run(CAPTIONS, samples=2)
    results = evaluate(run, FLICKER, fake_environment)
    assert results.failed == {}
    assert list(results.variants) == ["baseline", "fast"]
    for variant, scores in results.variants.items():
        given = seen(run, variant)
        assert given["mode"] == "custom_input"
        assert given["local"] is True
        assert sorted(given["prompts"].values()) == sorted(CAPTIONS * 2)
        score = scores.dimensions["temporal_flickering"]
        assert not score.complete
        assert sorted(score.videos) == sorted(r.unit for r in read_run(run).records if r.variant == variant)
        assert (score.drop is None) == (variant == "baseline")
    drop = results.variants["fast"].dimensions["temporal_flickering"].drop
    assert drop.pairs == 10
    assert drop.low <= drop.mean <= drop.high


def test_each_file_is_the_video_of_its_unit(make_run, fake_environment):
    run = make_run(CAPTIONS)
    evaluate(run, FLICKER, fake_environment)
    work = run / "vbench" / "work" / "fast" / "temporal_flickering"
    task = json.loads((work / "task.json").read_text())
    prompts = {record.unit: record.prompt for record in read_run(run).records}
    for name, unit in task["files"].items():
        assert (work / "videos" / name).resolve() == next((run / "files").glob(f"{unit}.*.mp4")).resolve()
        assert seen(run, "fast")["prompts"][name] == prompts[unit]


def test_its_own_prompts_go_through_the_standard_mode_and_are_complete_with_five_samples(make_run, fake_environment):
    run = make_run(("a stop sign", "a dog"), samples=5)
    results = evaluate(run, FLICKER, fake_environment)
    given = seen(run)
    assert given["mode"] == "vbench_standard"
    assert given["files"] == sorted(f"{prompt}-{i}.mp4" for prompt in ("a stop sign", "a dog") for i in range(5))
    assert [entry["prompt_en"] for entry in given["full_info"]] == ["a stop sign", "a dog"]
    baseline = results.variants["baseline"]
    assert baseline.dimensions["temporal_flickering"].complete
    assert baseline.total is None
    assert len(baseline.missing) == 15


def test_results_are_written_and_those_of_earlier_calls_stay(make_run, fake_environment, tmp_path):
    run = make_run(("a dog",))
    for weights in DIMENSIONS["temporal_style"].weights:
        (tmp_path / "weights" / weights.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "weights" / weights.path).touch()
    evaluate(run, FLICKER, fake_environment)
    results = evaluate(run, ["temporal_style"], fake_environment, tmp_path / "weights")
    assert set(results.variants["fast"].dimensions) == {"temporal_flickering", "temporal_style"}
    assert read_results(results_path(run)) == results
    assert seen(run, "fast", "temporal_style")["environment"]["VBENCH_CACHE_DIR"] == str(tmp_path / "weights")


def test_the_subprocess_can_reach_no_network(make_run, fake_environment):
    run = make_run(("a dog",))
    evaluate(run, FLICKER, fake_environment)
    given = seen(run)["environment"]
    assert given["HF_HUB_OFFLINE"] == given["TRANSFORMERS_OFFLINE"] == "1"
    assert {given[name] for name in ("http_proxy", "https_proxy")} == {"http://127.0.0.1:9"}
    assert given["no_proxy"] == ""


def test_absent_weights_are_named_with_place_and_source_before_anything_runs(make_run, fake_environment, tmp_path):
    run = make_run(CAPTIONS)
    with pytest.raises(GalaxyDiTError) as error:
        evaluate(run, ["motion_smoothness", "aesthetic_quality"], fake_environment, tmp_path / "weights")
    for text in (
        f"motion_smoothness needs {tmp_path / 'weights' / 'amt_model' / 'amt-s.pth'}, from https://huggingface.co/",
        f"aesthetic_quality needs {tmp_path / 'weights' / 'clip_model' / 'ViT-L-14.pt'}, from https://openaipublic",
        "sa_0_4_vit_l_14_linear.pth",
    ):
        assert text in str(error.value)
    assert not (run / "vbench").exists()


def test_a_model_of_the_hub_is_looked_for_in_its_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("galaxydit.eval.vbench.run.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(GalaxyDiTError, match="scene needs bert-base-uncased in the hub's cache"):
        check_weights([DIMENSIONS["scene"]], tmp_path)


def test_dinos_weights_are_put_where_its_own_code_looks(make_run, fake_environment, tmp_path):
    run = make_run(CAPTIONS)
    for weights in DIMENSIONS["subject_consistency"].weights:
        (tmp_path / weights.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / weights.path).touch()
    evaluate(run, ["subject_consistency"], fake_environment, tmp_path)
    home = seen(run, dimension="subject_consistency")["environment"]["TORCH_HOME"]
    place = Path(home) / "hub" / "checkpoints" / "dino_vitbase16_pretrain.pth"
    assert place.resolve() == (tmp_path / "dino_model" / "dino_vitbase16_pretrain.pth").resolve()


def test_a_dimension_that_raises_is_named_with_its_reason_and_the_others_stay(
    make_run, fake_environment, fault, tmp_path
):
    fault("raises")
    run = make_run(("a dog",))
    for weights in DIMENSIONS["temporal_style"].weights:
        (tmp_path / weights.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / weights.path).touch()
    results = evaluate(run, ["temporal_style", *FLICKER], fake_environment, tmp_path)
    assert set(results.failed) == {"baseline/temporal_style", "fast/temporal_style"}
    assert "No module named 'clip'" in results.failed["fast/temporal_style"]
    assert set(results.variants["fast"].dimensions) == set(FLICKER)


def test_an_exit_status_of_zero_without_a_file_is_a_failure(make_run, fake_environment, fault):
    fault("dies")
    results = evaluate(make_run(("a dog",)), FLICKER, fake_environment)
    assert set(results.failed) == {"baseline/temporal_flickering", "fast/temporal_flickering"}
    assert "wrote no results file; its last words: Killed by something" in results.failed["fast/temporal_flickering"]
    assert results.variants["fast"].dimensions == {}


def test_a_file_of_an_earlier_call_is_not_taken_for_a_new_one(make_run, fake_environment, fault):
    run = make_run(("a dog",))
    evaluate(run, FLICKER, fake_environment)
    fault("dies")
    assert "fast/temporal_flickering" in evaluate(run, FLICKER, fake_environment).failed


def test_a_video_that_the_benchmark_skipped_is_a_failure(make_run, fake_environment, fault):
    fault("drops one")
    results = evaluate(make_run(CAPTIONS), FLICKER, fake_environment)
    assert "holds no score for 1 of 5 videos" in results.failed["baseline/temporal_flickering"]


def test_only_prompts_and_seeds_that_every_variant_has_count(make_run, fake_environment):
    run = make_run(CAPTIONS)
    next((run / "units").glob("00001*-fast-*.json")).unlink()
    results = evaluate(run, FLICKER, fake_environment)
    assert results.left_out == 1
    for record in (run / "units").glob("00002*.json"):
        record.unlink()
    assert evaluate(run, FLICKER, fake_environment).left_out == 2
    assert all(len(scores.dimensions["temporal_flickering"].videos) == 4 for scores in results.variants.values())


def test_scores_of_other_videos_than_now_are_forgotten(make_run, fake_environment, tmp_path):
    run = make_run(CAPTIONS)
    record = next((run / "units").glob("00001*-fast-*.json"))
    text = record.read_text()
    record.unlink()
    evaluate(run, FLICKER, fake_environment)
    record.write_text(text)
    for weights in DIMENSIONS["temporal_style"].weights:
        (tmp_path / weights.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / weights.path).touch()
    results = evaluate(run, ["temporal_style"], fake_environment, tmp_path)
    assert set(results.variants["baseline"].dimensions) == {"temporal_style"}


def test_a_run_without_a_common_video_is_refused(make_run, fake_environment):
    run = make_run(("a dog",))
    next((run / "units").glob("*-fast-*.json")).unlink()
    with pytest.raises(GalaxyDiTError, match=r"no prompt and seed with a video in every variant .*baseline 1, fast 0"):
        evaluate(run, FLICKER, fake_environment)


def test_a_run_that_is_not_on_this_machine_is_refused(make_run, fake_environment):
    memory = fsspec.filesystem("memory")
    memory.put(str(make_run(("a cat",))), "/elsewhere", recursive=True)
    with pytest.raises(GalaxyDiTError, match=r"memory://elsewhere.* expected a folder on this machine"):
        evaluate("memory://elsewhere", FLICKER, fake_environment)


def test_the_benchmark_says_where_its_weights_are(make_run, fake_environment, monkeypatch, tmp_path):
    run = make_run(("a dog",))
    monkeypatch.setenv("VBENCH_CACHE_DIR", str(tmp_path))
    evaluate(run, FLICKER, fake_environment)
    assert seen(run)["environment"]["VBENCH_CACHE_DIR"] == str(tmp_path)
    monkeypatch.delenv("VBENCH_CACHE_DIR")
    evaluate(run, FLICKER, fake_environment)
    assert Path(seen(run)["environment"]["VBENCH_CACHE_DIR"]).parts[-2:] == (".cache", "vbench")
