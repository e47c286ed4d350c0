"""From a run's folder to results.json through a real subprocess; its packages are stand-ins."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from threading import Thread

import fsspec
import psutil
import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.vbench import DIMENSIONS, VBENCH
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.vbench.measure_dimensions import check_weights, evaluate
from galaxydit.eval.vbench.results import read_results, results_path

CAPTIONS = ("a cat", "a/cat", "a?cat", "<script>" + "x" * 300, "日本 🐈")
FLICKER = ["temporal_flickering"]
UNFILTERED = {"static_filter": False}  # the filter needs RAFT


@pytest.fixture
def weights(tmp_path) -> Path:
    """A cache with empty files for the model files of two dimensions."""
    for name in ("motion_smoothness", "subject_consistency"):
        for one in DIMENSIONS[name].weights:
            (tmp_path / "weights" / one.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "weights" / one.path).touch()
    return tmp_path / "weights"


def test_other_prompts_go_through_the_custom_mode_with_every_video(make_run, fake_environment, seen):
    run = make_run(CAPTIONS, samples=2)
    results = evaluate(run, FLICKER, fake_environment)
    assert results.failed == {}
    assert list(results.variants) == ["baseline", "fast"]
    for given in seen():
        assert given["mode"] == "custom_input"
        assert given["local"] is True
        assert sorted(given["prompts"].values()) == sorted(CAPTIONS * 2)
    for variant, scores in results.variants.items():
        score = scores.dimensions["temporal_flickering"]
        assert not score.complete
        assert sorted(score.videos) == sorted(r.unit for r in read_run(run).records if r.variant == variant)
        assert (score.drop is None) == (variant == "baseline")
    drop = results.variants["fast"].dimensions["temporal_flickering"].drop
    assert drop.pairs == 10
    assert drop.low is None  # five captions


def test_each_file_is_the_video_of_the_prompt_that_upstream_is_told(make_run, fake_environment, seen):
    run = make_run(CAPTIONS)
    evaluate(run, FLICKER, fake_environment)
    prompts = {Path(record.video).name: record.prompt for record in read_run(run).records}
    for given in seen():
        assert len(given["files"]) == len(CAPTIONS)
        for name, video in given["files"].items():
            assert given["prompts"][name] == prompts[Path(video).name]


def test_its_own_prompts_go_through_the_standard_mode_with_five_samples(make_run, fake_environment, seen):
    run = make_run(("a stop sign", "a dog"), samples=6)
    results = evaluate(run, FLICKER, fake_environment, **UNFILTERED)
    given = seen()[0]
    assert given["mode"] == "vbench_standard"
    assert sorted(given["files"]) == sorted(
        f"{prompt}-{i}.mp4" for prompt in ("a stop sign", "a dog") for i in range(5)
    )
    assert [entry["prompt_en"] for entry in given["full_info"]] == ["a stop sign", "a dog"]
    baseline = results.variants["baseline"]
    assert not baseline.dimensions["temporal_flickering"].complete, "the protocol filters for static videos"
    assert baseline.total is None
    assert len(baseline.missing) == 16


def test_shares_combine_to_the_score_of_the_whole(make_run, fake_environment, seen, tmp_path):
    whole = evaluate(make_run(CAPTIONS, samples=2), FLICKER, fake_environment)
    calls = len(seen())
    shutil.rmtree(tmp_path / "run" / "vbench")
    shared = evaluate(tmp_path / "run", FLICKER, fake_environment, share=3)
    assert [len(given["files"]) for given in seen()[calls:]] == [6, 4] * 2, "videos of a name stay together"
    for variant, scores in whole.variants.items():
        ours = shared.variants[variant].dimensions["temporal_flickering"]
        assert ours.score == pytest.approx(scores.dimensions["temporal_flickering"].score, abs=1e-12)
        assert ours.videos == scores.dimensions["temporal_flickering"].videos


def test_each_share_is_measured_by_a_process_of_its_own_that_has_ended(make_run, fake_environment, seen):
    evaluate(make_run(CAPTIONS), FLICKER, fake_environment, share=3)
    processes = [given["process"] for given in seen()]
    assert len(set(processes)) == len(processes) == 4
    assert not any(map(psutil.pid_exists, processes))


@pytest.fixture
def heeded():
    """A shell ignores SIGINT in the jobs that it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_call_leaves_no_process_of_the_benchmark(make_run, fake_environment, fault, heeded):
    fault("waits")
    number = fake_environment.package / "process.txt"
    number.unlink(missing_ok=True)

    def interrupt() -> None:
        while not (number.is_file() and number.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        evaluate(make_run(CAPTIONS), FLICKER, fake_environment)
    assert not psutil.pid_exists(int(number.read_text()))


def test_finished_shares_are_not_measured_again_and_another_size_is_refused(make_run, fake_environment, seen):
    run = make_run(CAPTIONS)
    first = evaluate(run, FLICKER, fake_environment, share=2)
    calls = len(seen())
    next((run / "vbench" / "shares" / "units").glob("*.json")).unlink()
    assert evaluate(run, FLICKER, fake_environment) == first
    assert len(seen()) == calls + 1
    with pytest.raises(GalaxyDiTError, match="share=3 is not allowed: expected 2, that of the shares"):
        evaluate(run, FLICKER, fake_environment, share=3)


def test_results_are_written_and_those_of_earlier_calls_stay(make_run, fake_environment, weights, seen):
    run = make_run(("a dog",))
    evaluate(run, FLICKER, fake_environment, **UNFILTERED)
    results = evaluate(run, ["motion_smoothness"], fake_environment, weights)
    assert set(results.variants["fast"].dimensions) == {"temporal_flickering", "motion_smoothness"}
    assert read_results(results_path(run)) == results
    assert seen()[-1]["environment"]["VBENCH_CACHE_DIR"] == str(weights)


def test_the_subprocess_can_reach_no_network_and_loads_tensors_only(make_run, fake_environment, seen):
    run = make_run(("a cat",))
    evaluate(run, FLICKER, fake_environment)
    given = seen()[-1]["environment"]
    assert given["HF_HUB_OFFLINE"] == given["TRANSFORMERS_OFFLINE"] == "1"
    assert {given[name] for name in ("http_proxy", "https_proxy")} == {"http://127.0.0.1:9"}
    assert given["no_proxy"] == ""
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" not in given


def test_weights_are_unpickled_only_on_request(make_run, fake_environment, seen):
    evaluate(make_run(("a cat",)), FLICKER, fake_environment, trust=True)
    assert seen()[-1]["environment"]["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"


def test_absent_weights_are_named_with_place_and_source_before_anything_runs(make_run, fake_environment, tmp_path):
    run = make_run(CAPTIONS)
    with pytest.raises(GalaxyDiTError) as error:
        evaluate(run, ["motion_smoothness", "aesthetic_quality"], fake_environment, tmp_path / "weights")
    for text in (
        f"motion_smoothness needs {tmp_path / 'weights' / 'amt_model' / 'amt-s.pth'}, from https://huggingface.co/",
        f"aesthetic_quality needs {tmp_path / 'weights' / 'clip_model' / 'ViT-L-14.pt'}, from https://openaipublic",
        "sa_0_4_vit_l_14_linear.pth",
        "galaxydit eval vbench fetch --dimensions motion_smoothness,aesthetic_quality",
    ):
        assert text in str(error.value)
    assert not (run / "vbench").exists()


def test_the_static_filter_needs_raft_and_says_how_to_do_without(make_run, fake_environment, tmp_path):
    run = make_run(("a stop sign",))
    with pytest.raises(GalaxyDiTError, match=r"temporal_flickering needs .*raft-things\.pth.*--no-static-filter"):
        evaluate(run, FLICKER, fake_environment, tmp_path / "weights")


def test_a_model_of_the_hub_is_looked_for_in_its_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("galaxydit.eval.vbench.measure_dimensions.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(GalaxyDiTError, match="scene needs bert-base-uncased in the hub's cache"):
        check_weights(VBENCH, [DIMENSIONS["scene"]], tmp_path, static_filter=False)


def test_dinos_weights_are_put_where_its_own_code_looks(make_run, fake_environment, weights, seen):
    results = evaluate(make_run(CAPTIONS), ["subject_consistency"], fake_environment, weights)
    assert seen()[0]["checkpoints"] == ["dino_vitbase16_pretrain.pth"]
    assert "No module named 'vbench.utils'" in results.failed["fast/subject_consistency"], "the stand-in counts nothing"


def test_a_dimension_that_raises_is_named_with_its_reason_and_the_others_stay(
    make_run, fake_environment, fault, weights
):
    fault("raises")
    run = make_run(("a cat",))
    results = evaluate(run, ["motion_smoothness", *FLICKER], fake_environment, weights)
    assert set(results.failed) == {"baseline/motion_smoothness", "fast/motion_smoothness"}
    assert "No module named 'clip'" in results.failed["fast/motion_smoothness"]
    assert set(results.variants["fast"].dimensions) == set(FLICKER)


def test_a_failed_share_is_measured_again_by_the_next_call(make_run, fake_environment, fault):
    run = make_run(("a cat",))
    fault("dies")
    failed = evaluate(run, FLICKER, fake_environment)
    assert set(failed.failed) == {"baseline/temporal_flickering", "fast/temporal_flickering"}
    assert "died with exit code 0; its last words: Killed by something" in failed.failed["fast/temporal_flickering"]
    assert failed.variants["fast"].dimensions == {}
    fault("")
    assert evaluate(run, FLICKER, fake_environment).failed == {}


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


def test_scores_of_other_videos_than_now_are_forgotten(make_run, fake_environment, weights):
    run = make_run(CAPTIONS)
    record = next((run / "units").glob("00001*-fast-*.json"))
    text = record.read_text()
    record.unlink()
    evaluate(run, FLICKER, fake_environment)
    record.write_text(text)
    results = evaluate(run, ["motion_smoothness"], fake_environment, weights)
    assert set(results.variants["baseline"].dimensions) == {"motion_smoothness"}


def test_a_run_without_a_common_video_is_refused(make_run, fake_environment):
    run = make_run(("a dog",))
    next((run / "units").glob("*-fast-*.json")).unlink()
    with pytest.raises(GalaxyDiTError, match=r"no prompt and seed with a video in every variant .*baseline 1, fast 0"):
        evaluate(run, FLICKER, fake_environment)


def test_a_run_in_a_bucket_is_measured_and_its_results_are_written_there(make_run, fake_environment, seen):
    memory = fsspec.filesystem("memory")
    memory.put(str(make_run(CAPTIONS)), "/elsewhere", recursive=True)
    results = evaluate("memory://elsewhere", FLICKER, fake_environment, share=2)
    assert results.failed == {}
    written = json.loads(memory.cat("/elsewhere/vbench/results.json"))
    assert written["variants"]["fast"]["dimensions"]["temporal_flickering"]["score"] > 0
    assert not any(Path(video).exists() for given in seen() for video in given["files"].values()), "copies are removed"


def test_the_benchmark_says_where_its_weights_are(make_run, fake_environment, monkeypatch, tmp_path, seen):
    run = make_run(("a cat",))
    monkeypatch.setenv("VBENCH_CACHE_DIR", str(tmp_path))
    evaluate(run, FLICKER, fake_environment)
    assert seen()[-1]["environment"]["VBENCH_CACHE_DIR"] == str(tmp_path)
