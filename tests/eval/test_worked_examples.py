"""The worked examples of eval/README.md run as they are printed."""

import re
from pathlib import Path

import numpy as np
import pytest

from galaxydit import plugins
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.methods import method as method_module
from galaxydit.eval.metrics import measure
from galaxydit.eval.metrics.registry import metrics_in
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.report.verdicts import check_run
from galaxydit.plugins import load_plugin

README = Path(__file__).parents[2] / "eval" / "README.md"


def block(heading: str, language: str) -> str:
    """The first block of code in a language under a heading."""
    section = README.read_text(encoding="utf-8").split(f"### {heading}\n")[1]
    return re.search(rf"```{language}\n(.*?)```", section, re.DOTALL).group(1)


def test_the_metric_is_found_in_its_file_and_measured(tmp_path, monkeypatch):
    (tmp_path / "own_metrics").mkdir()
    (tmp_path / "own_metrics" / "mean_error.py").write_text(block("Adding a metric", "python"))
    monkeypatch.syspath_prepend(tmp_path)
    metric = metrics_in(tmp_path / "own_metrics", "own_metrics")["mean_error"]
    video, reference = np.full((2, 8, 8, 3), 0.25), np.zeros((2, 8, 8, 3))
    values, *_ = measure(video, reference, "", [metric])
    assert values["mean_error"] == pytest.approx(0.25)


def test_the_method_is_compared(tiny_wan_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(method_module, "METHODS", dict(method_module.METHODS))
    monkeypatch.setattr(plugins, "_loaded", {})
    (tmp_path / "every_other_step.py").write_text(block("Adding a method", "python"))
    load_plugin(tmp_path / "every_other_step.py")
    declared = method_module.METHODS["every other step"]
    assert [setting["first"] for setting in declared.settings(50)] == [25, 10, 1]
    variant = block("Adding a method", "toml").replace("first = 5, steps = 50", "first = 2, steps = 10")
    sizes = "height = 32\nwidth = 32\nframes = 5\nguidance = 3.0\nsteps = 10\ndtype = 'float32'\nmetrics = ['psnr']"
    (tmp_path / "job.toml").write_text(
        f"model = '{tiny_wan_folder}'\n{sizes}\nprompts = {{ texts = ['a red ball'] }}\n{variant}"
    )
    job = read_job(tmp_path / "job.toml")
    assert run_job(job, open_run(tmp_path / "run", job)).failed == 0
    mine = read_run(tmp_path / "run").records[1]
    assert mine.compute_fraction == pytest.approx(0.6)  # 0, 1, 3, 5, 7, 9
    assert 0 < mine.metrics["psnr"] < 120


@pytest.mark.filterwarnings("ignore::galaxydit.ProfileWarning")
def test_the_gates_are_checked(tiny_wan_folder, tmp_path):
    sizes = "height = 32\nwidth = 32\nframes = 5\nguidance = 3.0\nsteps = 10\ndtype = 'float32'\nmetrics = ['psnr']"
    rest = "[prompts]\ntexts = ['a red ball']\n[variants.galaxydit]\nspeedup = 2.0\n[variants.half-the-steps]\n"
    rest += "method = 'fewer-steps'\nsteps = 5\n" + block("Adding a gate", "toml")
    (tmp_path / "job.toml").write_text(f"model = '{tiny_wan_folder}'\n{sizes}\n{rest}")
    job = read_job(tmp_path / "job.toml")
    assert run_job(job, open_run(tmp_path / "run", job)).failed == 0
    verdicts = check_run(read_run(tmp_path / "run"), job.gates)
    assert {each.variant for each in verdicts} == {"galaxydit"}
    assert {each.name: each.is_minimum for each in verdicts} == {
        "psnr": True,
        "worst_psnr": True,
        "compute_fraction": False,
    }
    assert verdicts[-1].holds, verdicts[-1]
