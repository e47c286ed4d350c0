"""Load from the middle of a run is flagged in each report of seconds, and a quiet run is not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import exit_code
from diffusers import WanPipeline
from fake_clock import FakeClock

from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.calibration.profile_tables import target_table
from galaxydit.eval import demo
from galaxydit.eval.compare.compare_job import CompareJob
from galaxydit.eval.compare.contender import contenders_of
from galaxydit.eval.compare.markdown import markdown
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.demo import run_demo
from galaxydit.eval.jobs import maker
from galaxydit.eval.jobs.gates import Gates
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.jobfile import job_of
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.latency import latency_table, timed_trajectory
from galaxydit.eval.latency.latency_run import LatencyRun
from galaxydit.eval.latency.latency_settings import LatencySettings
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory
from galaxydit.eval.methods.method_registry import load_method
from galaxydit.eval.report.payload import page_data
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.report.verdicts import check_run
from galaxydit.pipelines.settings import GenerationSettings

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SMALL = {"height": 32, "width": 32, "frames": 5, "steps": 10, "guidance": 3.0, "dtype": "float32"}
PROMPTS = ["a red ball", "a blue square"]


@pytest.fixture
def quiet_then_loaded(fake_clock: FakeClock) -> Callable[[Callable[[], Any]], tuple[Any, Any]]:
    """Runs a function on a quiet machine, and again with load from the middle of its blocks."""

    def both(function: Callable[[], Any]) -> tuple[Any, Any]:
        before = fake_clock.blocks
        quiet = function()
        fake_clock.loaded_from = fake_clock.blocks + (fake_clock.blocks - before) // 2
        return quiet, function()

    return both


@pytest.fixture
def connected(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines that a job loads run on the fake clock."""
    load = maker.load_pipeline
    monkeypatch.setattr(maker, "load_pipeline", lambda *args, **kwargs: fake_clock.connect(load(*args, **kwargs)))


@pytest.mark.usefixtures("connected")
def test_a_job_says_that_it_was_disturbed_and_does_not_judge_its_seconds(
    tiny_wan_folder: Path, tmp_path: Path, quiet_then_loaded: Callable[..., Any], capsys: pytest.CaptureFixture
) -> None:
    keys = SMALL | {"model": str(tiny_wan_folder), "prompts": {"texts": PROMPTS}, "metrics": ["psnr"]}
    variants = {"galaxydit": {"speedup": 2.0}, "half": {"method": "fewer-steps", "steps": 5}}
    job = job_of(keys | {"variants": variants}, tmp_path)
    folders = iter(("quiet", "loaded"))

    def make() -> Any:
        store = open_run(tmp_path / next(folders), job)
        run_job(job, store)
        return read_run(store.root)

    quiet, loaded = quiet_then_loaded(make)
    assert not quiet.disturbance
    assert "seconds for equal compute differ" in loaded.disturbance
    pages = [page_data(each, {}, "") for each in (quiet, loaded)]
    marked = [{figure["key"] for figure in page["figures"] if figure["isDisturbed"]} for page in pages]
    assert not marked[0]
    assert {"denoise_speedup", "denoise_seconds"} <= marked[1]
    assert "psnr" not in marked[1]
    assert any(loaded.disturbance in note for note in pages[1]["notes"])
    gates = Gates(min={"denoise_speedup": 0.5, "psnr": 1.0})
    assert [[verdict.holds for verdict in check_run(each, gates)] for each in (quiet, loaded)] == [
        [True, True, True, True],
        [False, True, False, True],
    ]
    assert exit_code("eval", "check", str(tmp_path / "loaded"), "--min", "denoise_speedup=0.5") == 1
    assert "not judged, disturbed" in (shown := capsys.readouterr().out)
    assert "seconds are not judged, because other work disturbed the run" in shown


@pytest.mark.usefixtures("connected")
def test_a_validation_shows_disturbed_speedups_in_brackets(
    tiny_wan_folder: Path, tmp_path: Path, quiet_then_loaded: Callable[..., Any]
) -> None:
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    sizes = [part for name, value in SMALL.items() for part in (f"--{name}", str(value))]
    given = ["--model", str(tiny_wan_folder), "--prompts", str(tmp_path / "prompts.txt"), *sizes]
    folders = iter(("quiet", "loaded"))

    def make() -> tuple[str, dict[str, Any]]:
        out = tmp_path / next(folders)
        runs = "repeated-plain-run,half-the-steps,galaxydit-2x"
        assert exit_code("validate", *given, "--out", out, "--runs", runs) == 0
        return (out / "validation.md").read_text(), json.loads((out / "validation.json").read_text())

    quiet, loaded = quiet_then_loaded(make)
    assert not quiet[1]["disturbance"]
    assert "disturbed" not in quiet[0]
    assert loaded[0].count("x, disturbed)") + loaded[0].count(", disturbed)") >= 6
    assert f"do not compare its seconds: {loaded[1]['disturbance']}." in loaded[0]


def test_a_demo_burns_no_disturbed_seconds_into_its_video(
    tiny_wan_pipeline: WanPipeline,
    tiny_settings: GenerationSettings,
    tmp_path: Path,
    fake_clock: FakeClock,
    quiet_then_loaded: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_clock.connect(tiny_wan_pipeline)
    burned: list[list[str]] = []
    monkeypatch.setattr("galaxydit.eval.jobs.estimate.TIMED_VIDEOS", 2)  # so that the load begins in a timed video
    draw = demo.demo_frames
    monkeypatch.setattr(
        demo,
        "demo_frames",
        lambda frames, labels, texts, report: burned.append(texts) or draw(frames, labels, texts, report),
    )
    settings, options = replace(tiny_settings, steps=10), {"acceleration": {"speedup": 2.0}, "on_progress": print}
    quiet, loaded = quiet_then_loaded(
        lambda: run_demo(tiny_wan_pipeline, PROMPTS[:1], settings, 0, tmp_path, **options)
    )
    assert not quiet.disturbance
    assert loaded.disturbance
    assert burned[0][0].endswith(" s")
    assert all("x, " in text and text.endswith(" dB") for text in burned[0][1:])
    compute = [f"{share}% of the compute" for share in (100, 50, 50)]
    assert [text.split(",")[0] for text in burned[1]] == compute
    assert burned[1][0].endswith("seconds disturbed")
    assert not any(" s," in text for text in burned[1])
    assert json.loads((tmp_path / "report.json").read_text())["disturbance"] == loaded.disturbance


def test_a_calibration_shows_disturbed_speedups_in_brackets(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, fake_clock: FakeClock, quiet_then_loaded: Callable[..., Any]
) -> None:
    fake_clock.connect(tiny_wan_pipeline)
    settings = GenerationSettings(height=32, width=32, num_frames=5, steps=12, guidance_scale=3.0)
    folders = iter(("quiet", "loaded"))
    prompts = ["a red ball", "a blue ball", "a green ball", "a white ball"]

    def make() -> Any:
        options = {"budget": Budget((2, 2), True, 8, 2), "speedups": (2.0,), "settings": settings}
        return calibrate(tiny_wan_pipeline, prompts, resume_dir=tmp_path / next(folders), **options).profile

    quiet, loaded = quiet_then_loaded(make)
    assert not quiet.evidence.seconds.disturbance
    assert loaded.evidence.seconds.disturbance
    assert [row["seconds, measured"].endswith("disturbed)") for row in target_table(quiet)] == [False]
    assert [row["seconds, measured"].endswith("disturbed)") for row in target_table(loaded)] == [True]


@pytest.mark.usefixtures("connected")
def test_a_comparison_shows_disturbed_speedups_in_brackets(
    tiny_wan_folder: Path, tmp_path: Path, quiet_then_loaded: Callable[..., Any]
) -> None:
    prompts = (*PROMPTS, "a green ring", "a white cube")
    plan = ComparisonPlan(prompts, (0,), calibration_prompts=("a cube",), speedups=(2.0,), tuned=1)
    method = replace(load_method("fewer steps"), settings=lambda steps: [{"steps": count} for count in (7, 5, 4)])
    job = Job(model=str(tiny_wan_folder), prompts=prompts, **SMALL)
    folders = iter(("quiet", "loaded"))

    def make() -> tuple[Any, str]:
        made = CompareJob(job, contenders_of([method]), plan, tmp_path / next(folders)).run()
        return made, markdown(made)

    quiet, loaded = quiet_then_loaded(make)
    assert not any(row.disturbance for row in quiet[0].rows)
    assert "disturbed" not in quiet[1]
    assert any(row.disturbance for row in loaded[0].rows)
    assert "x, disturbed)" in loaded[1]


def test_a_latency_run_shows_disturbed_speedups_in_brackets(
    tmp_path: Path, fake_clock: FakeClock, quiet_then_loaded: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = TimedTrajectory.__init__

    def connected(trajectory: TimedTrajectory, *args: Any, **kwargs: Any) -> None:
        built(trajectory, *args, **kwargs)
        fake_clock.connect(SimpleNamespace(transformer=trajectory.transformer))

    monkeypatch.setattr(TimedTrajectory, "__init__", connected)
    monkeypatch.setattr(timed_trajectory, "time", SimpleNamespace(thread_time=fake_clock.perf_counter))
    settings = LatencySettings(
        size="32x32x5", steps=12, repeats=3, device="cpu", methods=["plain", "galaxydit output, no proxy"]
    )

    def make() -> str:
        return latency_table.markdown(LatencyRun(settings).measure(tmp_path / "run.json"))

    quiet, loaded = quiet_then_loaded(make)
    assert "disturbed" not in quiet
    assert "x, disturbed)" in loaded
    assert "do not compare its seconds: " in loaded


def test_load_counts_where_other_processes_lengthen_the_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.eval.latency.latency_run.load_per_core", lambda: 4.0)
    settings = LatencySettings(size="32x32x5", steps=12, repeats=1, device="cpu", methods=["plain"])
    assert not LatencyRun(settings).measure(tmp_path / "run.json")["rows"][0]["disturbance"]
    monkeypatch.setattr("galaxydit.eval.latency.latency_run.clock_name", lambda _: "wall clock")
    assert "wanted to run" in LatencyRun(settings).measure(tmp_path / "run.json")["rows"][0]["disturbance"]
