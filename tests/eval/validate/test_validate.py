"""`galaxydit validate`: one command from a model to a page, which resumes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import exit_code

from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.validate.validation_job import RUNS, validation_job, validation_prompts
from galaxydit.eval.validate.validation_page import PageProgress, markdown
from galaxydit.pipelines.runs import Record

pytestmark = pytest.mark.filterwarnings("ignore::galaxydit.NoEffectWarning", "ignore::galaxydit.ProfileWarning")


@pytest.fixture(autouse=True)
def _keep_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes SIGTERM over, which is the test run's."""
    monkeypatch.setattr("signal.signal", lambda *_: None)


def validate(out: Path, *arguments: str | Path) -> dict[str, Any]:
    assert exit_code("validate", "--out", str(out), *arguments) == 0
    return json.loads((out / "validation.json").read_text())


def content(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What the time and the process do not change."""
    names = ("unit", "seed", "variant", "status", "compute_fraction", "metrics", "frames_sha256")
    return [tuple(video[name] for name in names) for video in data["videos"]]


@pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning")
def test_every_run_is_on_the_page_and_a_stopped_validation_resumes(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, finish = [], PageProgress.finish
    controls = [name for name in RUNS if not name.startswith("galaxydit")]

    def finish_and_look(self: PageProgress, worker: int, record: Record) -> None:
        finish(self, worker, record)
        name = record.data["variant"]["name"]
        if name != BASELINE:
            rows = json.loads((self.out / "validation.json").read_text())["runs"]
            shown = (self.out / "validation.md").read_text()
            pages.append(
                (
                    name,
                    [
                        row["run"]
                        for row in rows
                        if (row["done"] and f"`{row['run']}`" in shown) or row["run"] == BASELINE
                    ],
                )
            )

    monkeypatch.setattr(PageProgress, "finish", finish_and_look)
    prompts, out = tmp_path / "prompts.txt", tmp_path / "out"
    prompts.write_text("a red ball\na blue square\n")
    options = ("--model", tiny_wan_folder, "--prompts", prompts, "--steps", "10", "--guidance", "3")
    options += ("--height", "32", "--width", "32", "--frames", "5", "--dtype", "float32")
    data = validate(out, *options)
    assert "16 videos to make, about" in capsys.readouterr().out
    of_plugin = [BASELINE, *(name for name in RUNS if name.startswith("galaxydit"))]
    assert [name for name, *_ in pages] == ["galaxydit-2x", *of_plugin[2:], *of_plugin[1:], *controls, *controls]
    assert pages[0][1] == [BASELINE, "galaxydit-2x"], "after the first video of the plugin"
    assert pages[-1][1] == [BASELINE, *RUNS]
    assert [row["run"] for row in data["runs"]] == [BASELINE, *RUNS]
    assert all((row["done"], row["failed"]) == (2, 0) for row in data["runs"])
    figures = {row["run"]: row["figures"] for row in data["runs"]}
    for name, fraction in (("repeated-plain-run", 1), ("half-the-steps", 0.5), ("galaxydit-2x", 0.5)):
        assert figures[name]["compute_fraction"]["mean"] == pytest.approx(fraction)
    assert figures["plain-at-2x-levels"]["compute_fraction"]["mean"] == pytest.approx(0.5)
    assert {each["minus"]: each["prompts"] for each in data["differences"]}["half-the-steps"] == 2
    page = (out / "validation.md").read_text()
    assert all(f"| `{name}` | {what} |" in page for name, what in RUNS.items())
    assert "Not measured: si_sdr, log_mel, rms_ratio, because the video has no sound." in page
    assert "SI-SDR" not in page
    for row in data["runs"][1:]:
        row["figures"]["si_sdr"] = {"mean": 12.345}
    assert "| SI-SDR dB |" in markdown(data)
    assert markdown(data).count("| 12.35 |") == len(RUNS)
    for row in data["runs"][1:]:
        del row["figures"]["si_sdr"]
    assert str(tmp_path) not in page + json.dumps(data)  # it is posted in public
    assert (out / "report.html").is_file()
    shown = (out / "validation.html").read_text()
    assert "galaxydit validate made 16 videos of 2 prompts" in shown
    assert "With speedup=2 the videos have a PSNR of" in shown
    assert all(f"<code>{name}</code>" in shown for name in RUNS)
    assert str(tmp_path) not in shown

    made = sorted((out / "units").glob("*.json"))
    for record in (made[1], made[4], made[15]):
        record.unlink()
    again = validate(out, *options, "--json")
    shown = capsys.readouterr()
    assert json.loads(shown.out) == again
    assert "3 videos to make" in shown.err
    assert "15 done, 0 failed, 1 remaining" in shown.err
    assert content(again) == content(data)
    assert again["differences"] == data["differences"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_embedded_model_is_validated(tmp_path: Path) -> None:
    runs = "galaxydit-2x,half-the-steps,plain-at-2x-levels"
    options = ("--model", "wan-tiny", "--prompts", "1", "--steps", "9", "--dtype", "float32", "--runs", runs)
    options += ("--height", "32", "--width", "32", "--frames", "5")
    data = validate(tmp_path / "out", *options)
    assert [row["run"] for row in data["runs"]] == [BASELINE, *runs.split(",")]
    assert all(5 < row["figures"]["psnr"]["mean"] < 60 for row in data["runs"][1:])
    assert data["conditions"]["model"]["name"] == "wan-tiny"


def test_a_published_model_is_validated_at_its_authors_steps() -> None:
    job = validation_job({"model": "wan2.1-t2v-1.3b"}, validation_prompts())
    assert (len(job.prompts), job.steps) == (10, 50)
    options = {variant.name: variant.options for variant in job.variants}
    assert options["half-the-steps"] == {"steps": 25}
    assert len(options["published-list"]["full"]) == 24
    assert list(options) == [BASELINE, *RUNS]


def test_a_model_that_is_not_published_needs_a_number_of_steps(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("validate", "--model", str(tiny_wan_folder), "--out", str(tmp_path / "out")) == 2
    assert "steps=None is not allowed" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_json_of_a_plan_is_refused_because_a_plan_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("validate", "--model", "wan-tiny", "--out", str(tmp_path), "--dry-run", "--json") == 2
    assert "--json: has no effect with --dry-run" in " ".join(capsys.readouterr().err.split())


WITHOUT_NETWORK = """
import sys
from galaxydit.cli import main
for command in (["validate", "--dry-run", "--out", sys.argv[1]], ["inspect", "--json"]):
    try:
        main([*command, "--model", "wan2.1-t2v-1.3b"])
    except SystemExit as ended:
        assert not ended.code
    print("END")
"""


def test_without_weights_and_network_the_cost_is_a_prediction(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty")}
    command = [sys.executable, "-c", WITHOUT_NETWORK, str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    planned, inspected, _ = done.stdout.split("END\n")
    assert "80 videos to make, about" in planned
    assert "a prediction for one H100" in " ".join(planned.split())
    known = json.loads(inspected)
    assert (known["shape"]["blocks"], known["recommended_settings"]["flow_shift"]) == (30, 8.0)
    assert known["estimate"]["plain"]["denoise_s"]["value"] == pytest.approx(64, rel=0.1)  # measured on one H100
