"""`galaxydit compare` on a tiny saved pipeline, and its refusals."""

import json

import pytest
from command_line import exit_code


def run(*arguments: str) -> int:
    return exit_code("compare", *arguments)


@pytest.fixture
def prompt_file(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a red ball\n")
    return path


@pytest.fixture
def tuning_file(tmp_path):
    path = tmp_path / "tuning.txt"
    path.write_text("a green ball\na blue ball\n")
    return path


def test_one_command_writes_results_tables_plot_and_videos(tiny_wan_folder, prompt_file, tuning_file, tmp_path, capsys):
    out = tmp_path / "out"
    sizes = ("--steps", "10", "--height", "32", "--width", "32", "--frames", "5")
    which = ("--methods", "uniform skip order 0,uniform skip order 1", "--speedups", "2", "--tune-prompts", "1")
    files = ("--prompts", str(prompt_file), "--calibration", str(tuning_file), "--out", str(out))
    assert run("--model", str(tiny_wan_folder), *files, *which, *sizes) == 0
    names = {path.name for path in out.iterdir()}
    assert {"results.json", "table.md", "pareto.png", "side-by-side-2x.mp4"} <= names
    results = json.loads((out / "results.json").read_text())
    expected = {"method", "setting", "compute_fraction", "denoise_seconds", "end_to_end_seconds", "denoise_speedup"}
    expected |= {"psnr_mean", "psnr_min", "ssim_mean", "bytes_held", "n"}
    assert expected <= set(results["rows"][0])
    assert "at 2x by compute" in capsys.readouterr().out

    same = ("--settings-of", str(out / "results.json"), "--methods", "TeaCache", "--tune-prompts", "1")
    assert run("--model", str(tiny_wan_folder), *files[:4], *same, "--out", str(tmp_path / "other"), *sizes) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "a file with 'TeaCache'; it has uniform skip order 0, uniform skip order 1; leave the method out" in shown


def test_the_methods_can_be_listed(capsys):
    assert run("--list") == 0
    shown = capsys.readouterr().out
    for name in ("fewer steps", "SeaCache order 1", "galaxydit paper branches alone"):
        assert f"{name}: " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--methods", "TeeCache"),
            "methods='TeeCache' is not allowed: expected all, published, ablations, or names of methods with commas; "
            "`galaxydit compare --list` shows them, --plugin adds others; did you mean 'TeaCache'?",
        ),
        (("--speedups", "fast"), "is 'fast', allowed are numbers with commas"),
        (("--speedups", "0.5"), "speedups=0.5 is not allowed: expected a number from 1.05 to 10"),
        (
            ("--prompts", "nowhere.txt"),
            "--prompts='nowhere.txt' is not allowed: expected a text file that can be read (No such file",
        ),
        (("--tune-prompts", "10000"), "tuned=10000 is not allowed: expected 1 to"),
        (("--settings-of", "pyproject.toml"), "a results.json of `galaxydit compare` (JSONDecodeError"),
        (("--settings-of", "nowhere.json"), "a results.json of `galaxydit compare` (FileNotFoundError"),
    ],
)
def test_bad_input_is_refused_before_anything_is_loaded(arguments, message, capsys):
    assert run(*arguments) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in shown


def test_another_model_needs_calibration_prompts(tiny_wan_folder, prompt_file, capsys):
    assert run("--model", str(tiny_wan_folder), "--prompts", str(prompt_file)) == 2
    assert "--calibration" in capsys.readouterr().err
