import csv
import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from command_line import exit_code
from typer.main import get_command

from galaxydit.cli import app, main
from galaxydit.commands.captions import KNOWN_WORDS, read_or_draw_prompts, warn_of_unknown_words
from galaxydit.commands.console import show_json
from galaxydit.commands.demo_command import demo_table
from galaxydit.commands.families_command import TRY_FIRST
from galaxydit.commands.inspect_command import describe_profile
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.demo import DemoResult
from galaxydit.eval.jobs import maker
from galaxydit.families import FAMILIES
from galaxydit.pipelines import model_names
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.pipelines.settings import GenerationSettings, Offload
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import load_video, to_uint8
from galaxydit.pipelines.wan_tiny.world import COLOURS, SHAPES
from galaxydit.policies.policy import GENERAL_FEW_STEPS
from galaxydit.profiles.profile_registry import load_profile

SMALL = ["--height", "32", "--width", "32", "--frames", "5", "--steps", "12", "--guidance", "3", "--seed", "2"]
PROMPT = "a red ball moves left over a plain background"


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture):
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"galaxydit {version('galaxydit')}\n"


def test_help_and_the_list_of_methods_do_not_wait_for_models_and_codecs():
    script = (
        "import sys; from galaxydit.cli import main\n"
        "for words in (['--help'], ['compare', '--list']):\n"
        "    try: main(words)\n"
        "    except SystemExit: pass\n"
        "assert not {'torch', 'diffusers', 'transformers', 'av', 'torchmetrics', 'matplotlib'} & set(sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "demo" in finished.stdout
    assert "galaxydit paper: " in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["inspect", "--model", "no-such-model"],
            "error: model='no-such-model' is not allowed: expected one of ",
        ),
        (
            ["generate", "--model", "/nowhere", "--prompt", "x", "--out", "a.mp4"],
            "error: model='/nowhere' is not",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list, message: str, capsys: pytest.CaptureFixture):
    assert exit_code(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "a.avi"], "--out"),
        (["generate", "--model", "m", "--prompt", "x", "--out", "a.mp4", "--steps", "0"], "--steps"),
        (
            ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "a.mp4", "--speedup", "2", "--no-accelerate"],
            "--speedup",
        ),
        (["generate", "--model", "m", "--prompt", "x", "--out", "a.mp4", "--offload", "disk"], "--offload"),
        (["demo", "--prompt", "x", "--prompts", "2"], "--prompts"),
        (["demo", "--prompts", "0"], "--prompts"),
        (["demo", "--speedup", "0.5"], "--speedup"),
    ],
)
def test_options_out_of_range_are_named(arguments: list, option: str, capsys: pytest.CaptureFixture):
    assert exit_code(*arguments) == 2
    assert option in capsys.readouterr().err


def test_debug_shows_where_an_error_came_from():
    with pytest.raises(ValueError, match="no-such-model"):
        main(["--debug", "inspect", "--model", "no-such-model"])


@pytest.mark.parametrize("offload", ["none", "model", "sequential"])
def test_generate_without_acceleration_writes_the_plain_video(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, offload: str
):
    out = tmp_path / "videos" / "plain.mp4"
    options = ["--model", tiny_wan_folder, "--prompt", PROMPT, "--out", out, "--lossless", "--no-accelerate"]
    options += ["--offload", offload]
    assert exit_code("generate", *options, *SMALL) == 0
    settings = GenerationSettings(height=32, width=32, num_frames=5, steps=12, guidance_scale=3.0)
    expected = generate(load_pipeline(tiny_wan_folder), PROMPT, settings, seed=2)
    np.testing.assert_array_equal(load_video(out), to_uint8(expected.frames))
    assert "denoising " in capsys.readouterr().out


@pytest.mark.parametrize("offload", get_args(Offload))
@pytest.mark.parametrize("command", ["generate", "calibrate", "compare"])
def test_every_command_that_loads_a_model_may_offload_it_and_choose_its_dtype(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, offload: str
):
    texts, others = tmp_path / "texts.txt", tmp_path / "others.txt"
    texts.write_text("\n".join(f"a ball, number {index}" for index in range(10)))
    others.write_text("\n".join(f"a square, number {index}" for index in range(8)))
    options = {
        "generate": ["--prompt", PROMPT, "--out", tmp_path / "a.mp4"],
        "calibrate": ["--prompts", texts, "--out", tmp_path / "a.json"],
        "compare": ["--prompts", texts, "--calibration", others, "--out", tmp_path / "a"],
    }
    asked = []

    def stop(name: str, **options: str | None) -> None:
        asked.append((options["offload"], options["dtype"]))
        raise GalaxyDiTError("enough")

    for place in ("eval.jobs.maker", "pipelines.loading"):  # the import of the first takes over what the second has
        monkeypatch.setattr(f"galaxydit.{place}.load_pipeline", stop)
    loading = ("--model", tiny_wan_folder, "--offload", offload, "--dtype", "float32")
    assert exit_code(command, *loading, *options[command]) == 2
    assert asked == [(offload, torch.float32)]


def test_generate_with_acceleration_reports_what_it_did(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    options = ["--model", tiny_wan_folder, "--prompt", PROMPT, "--out", tmp_path / "fast.mp4", "--quality", "high"]
    assert exit_code("generate", *options, *SMALL) == 0
    assert load_video(tmp_path / "fast.mp4").shape == (5, 32, 32, 3)
    shown = capsys.readouterr()
    assert "steps reused\n" in shown.out
    assert "Asked for quality 'high' (1.5x), reached 1.50x" in shown.out
    assert shown.out.count("denoising ") == 1
    assert "loading" in shown.err
    assert "step 12 of 12\n" in shown.err
    assert "Made:\n" in shown.out
    assert "  galaxydit demo --model " in shown.out.splitlines()[-1]
    assert "0/12" not in shown.err, "the pipeline's own bar is shown beside this one"


def test_a_video_whose_steps_were_not_recognised_is_written_all_the_same(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr("galaxydit.runtime.loop_watch.LoopWatch._begin", lambda *_: None)
    out = tmp_path / "a.mp4"
    assert exit_code("generate", "--model", tiny_wan_folder, "--prompt", PROMPT, "--out", out, *SMALL) == 0
    assert load_video(tmp_path / "a.mp4").shape == (5, 32, 32, 3)
    shown = capsys.readouterr()
    assert "denoising " in shown.out
    assert "no observed scheduler has begun its loop" in shown.err


def test_a_warning_is_one_line(tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    options = ["--model", tiny_wan_folder, "--prompt", PROMPT, "--out", tmp_path / "same.mp4", "--threshold", "0"]
    assert exit_code("generate", *options, *SMALL) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "threshold=0" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: threshold=0 reuses nothing")


def test_a_warning_that_many_videos_repeat_is_shown_once(capsys: pytest.CaptureFixture, monkeypatch):
    def warn_often(arguments: list[str]) -> None:
        for _ in range(3):
            with warnings.catch_warnings():  # as libraries do, after which Python forgets what it has shown
                warnings.simplefilter("always")
            warnings.warn("galaxydit: ten steps are few", stacklevel=1)

    monkeypatch.setattr("galaxydit.cli.app", warn_often)
    main([])
    assert capsys.readouterr().err == "warning: ten steps are few\n"


def test_an_error_of_a_library_is_one_line(tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    given = ["--model", tiny_wan_folder, "--prompt", "x", "--out", tmp_path / "a.mp4", "--frames", "1", "--steps", "2"]
    assert exit_code("generate", *given, "--height", "16384", "--width", "16", "--no-accelerate") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(
        r"error: RuntimeError: shape .*; check that the options suit the model, or see .*--debug`", error
    )


def test_inspect_shows_blocks_branches_and_hooks(tiny_wan_folder: Path, capsys: pytest.CaptureFixture):
    assert exit_code("inspect", "--model", tiny_wan_folder) == 0
    shown = capsys.readouterr().out
    for text in (
        "WanTransformer3DModel",
        "separate calls",
        "hooked modules  transformer  ",
        "block_residual",
        "recommended settings",
        "none: no profile belongs to this model",
        "known:\n  - the speedup by compute",
        "unknown:\n  - the PSNR at any speedup",
    ):
        assert text in shown


@pytest.mark.parametrize("model", CHECKPOINTS)
def test_inspect_answers_for_a_published_model_without_weights(
    model: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.pipelines.model_names.try_to_load_from_cache", lambda *_, **__: None)
    settings, calls = CHECKPOINTS[model].settings, architecture_of(model).calls
    assert exit_code("inspect", "--model", model) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"calls a step {calls} " in shown
    assert f"num_frames {settings.num_frames}, steps {settings.steps}" in shown
    is_short = settings.steps <= GENERAL_FEW_STEPS
    assert ("too few to reuse any without a profile" in shown) == is_short


def test_inspect_prints_json(tiny_wan_folder: Path, capsys: pytest.CaptureFixture):
    assert exit_code("inspect", "--model", tiny_wan_folder, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["transformers"][0]["blocks"] == 3
    assert data["profile"]["unknown"] == ["the PSNR at any speedup", "the ranking of the proxies on this model"]


@pytest.mark.parametrize("is_verified", [True, False])
def test_a_profile_says_what_is_known_and_what_is_unknown(is_verified: bool):
    profile = load_profile("wan-tiny")
    if not is_verified:
        profile = replace(profile, evidence=replace(profile.evidence, verifications=()))
    facts = describe_profile(profile, ())
    assert facts["profile"][0].startswith("wan-tiny")
    verified = re.search(r"PSNR against the plain video, .*: \d+\.\d dB at 1\.25x", " ".join(facts["known"]))
    assert bool(verified) == is_verified
    assert ("the PSNR at any speedup" in facts["unknown"]) != is_verified


@pytest.mark.parametrize("given", ["the embedded model", "a folder"])
def test_demo_shows_the_table_its_files_and_beforehand_the_cost(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, given: str
):
    monkeypatch.setitem(model_names.EMBEDDED, "wan-tiny", tiny_wan_folder)
    options = [] if given == "the embedded model" else ["--model", tiny_wan_folder]
    assert exit_code("demo", *options, "--out", tmp_path / "demo", *SMALL) == 0
    shown, said = capsys.readouterr()
    for text in ("plain", "accelerated", "6 plain steps", "PSNR", "side-by-side.mp4", "report.json"):
        assert text in shown
    assert said.index("takes about ") < said.index("prompt 1 of 1: plain")
    assert (tmp_path / "demo" / "side-by-side.mp4").is_file()


@pytest.mark.parametrize(
    ("scale", "plain", "accelerated"),
    [
        (1.2, ("4.40", "1.00x", "5.40", "1.00x"), ("2.20", "2.00x", "3.20", "1.69x")),
        (3.0, (), ()),  # disturbed, so no seconds are shown
    ],
)
def test_table_holds_means_and_speedups(scale: float, plain: tuple[str, ...], accelerated: tuple[str, ...]):
    def way(seconds: float, fraction: float, psnr: float | None) -> tuple[TrialResult, ...]:
        return tuple(
            TrialResult(
                denoise_seconds=slower * seconds,
                end_to_end_seconds=slower * seconds + 1,
                compute_fraction=fraction,
                metrics={} if psnr is None else {"psnr": psnr, "ssim": 0.5},
            )
            for slower in (1, scale)
        )

    ways = {"plain": way(4.0, 1.0, None), "accelerated": way(2.0, 0.4, 30.0), "fewer": way(2.0, 0.5, 20.0)}
    table = demo_table(DemoResult(GenerationSettings(), (), ways, (), ()))
    assert table.rows[0] == ["plain", *plain, "100%", "", ""]
    assert table.rows[1] == ["accelerated", *accelerated, "40%", "30.00", "0.500"]


def test_a_misspelt_method_gets_a_proposal(capsys: pytest.CaptureFixture, tmp_path: Path):
    assert exit_code("compare", "--methods", "fewer steps,seacahe order 1", "--out", tmp_path / "new") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"methods='seacahe order 1' is not .*; did you mean 'SeaCache order 1'\?$", error)
    assert not (tmp_path / "new").exists()


def test_words_that_the_embedded_model_never_saw_are_named(capsys: pytest.CaptureFixture, tmp_path: Path):
    warn_of_unknown_words("wan-tiny", [PROMPT.capitalize() + ", in front of a cyan square"])
    warn_of_unknown_words("another", ["A cat moves left"])
    assert not capsys.readouterr().err
    (tmp_path / "captions.txt").write_text(f"A cat moves left\n{PROMPT}\nA dog and a cat\n")
    read_or_draw_prompts(str(tmp_path / "captions.txt"), "wan-tiny", ())
    expected = "warning: wan-tiny does not know cat, dog; it knows the colours red, yellow"
    assert capsys.readouterr().err.startswith(expected)
    warn_of_unknown_words("wan-tiny", ["one two three four five six seven eight nine ten eleven twelve"])
    assert "ten and 2 more words; it knows" in capsys.readouterr().err


def test_the_words_of_the_embedded_model_are_those_of_its_world():
    words = set(re.findall(r"\w+", KNOWN_WORDS))
    assert words - {"the", "and", "colours", "shapes"} == {*COLOURS, *SHAPES}


def test_families_are_found_by_a_part_of_their_name(capsys: pytest.CaptureFixture):
    assert exit_code("families", "mochi") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] != " "] == [
        "Mochi: MochiTransformer3DModel"
    ]
    assert exit_code("families", "no-such") == 2
    assert "name='no-such' is not allowed: expected part of the name" in capsys.readouterr().err


def test_families_are_a_table_of_what_works_and_which_model_to_try(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert exit_code("families") == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    wan = next(index for index, line in enumerate(lines) if line.startswith("Wan "))
    assert "LoRA, compile, several GPUs" in lines[wan]
    assert lines[wan + 1].startswith("WanTransformer3DModel")
    assert "wan2.1-t2v-1.3b" in " ".join(lines[wan : wan + 3])
    assert {family.name for family in FAMILIES.values()} >= TRY_FIRST.keys()
    assert set(TRY_FIRST.values()) <= CHECKPOINTS.keys()


def test_families_are_printed_as_json_with_the_reasons_of_what_is_not_accepted(capsys: pytest.CaptureFixture):
    assert exit_code("families", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    wan = next(row for row in shown["accepted"] if row["family"] == "Wan")
    assert (wan["transformer"], wan["context parallel"]) == ("WanTransformer3DModel", "yes")
    assert "U-Net" in shown["not_accepted"][0]["because"]


def test_wherever_a_table_is_printed_it_can_be_json():
    root = get_command(app)
    commands = root.commands | root.commands["eval"].commands  # type: ignore[attr-defined]
    tables = [
        "calibrate",
        "check",
        "compare",
        "demo",
        "estimate",
        "families",
        "generate",
        "inspect",
        "latency",
        "report",
        "run",
        "status",
        "validate",
    ]
    assert [name for name in sorted(commands) if any("--json" in p.opts for p in commands[name].params)] == tables


def test_json_is_json_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setenv("FORCE_COLOR", "1")
    show_json({"name": "ü", "value": 1.5})
    assert json.loads(capsys.readouterr().out) == {"name": "ü", "value": 1.5}


@pytest.fixture
def many(tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list]:
    """A file of two prompts, and the arguments that make a video of each."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the command takes SIGTERM over, which is the test run's
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a ball\na cube\n")
    arguments = ["--model", tiny_wan_folder, "--prompts", prompts, "--out", tmp_path / "videos", "--lossless", *SMALL]
    return prompts, [*arguments, "--dtype", "float32"]


def test_generate_makes_a_video_of_each_line_and_later_of_new_lines(
    many: tuple[Path, list], tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    prompts, arguments = many
    folder = tmp_path / "videos" / "files"
    assert exit_code("generate", *arguments, "--no-accelerate") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-5:-3] == ["Made:", f"  {tmp_path}/videos/results.csv"]
    assert shown[-3].startswith(f"2 videos in {folder}, 0 failed.")
    assert shown[-1] == f"  galaxydit eval report {tmp_path}/videos"
    paths = [folder / "00000-a-ball-s2-baseline.mp4", folder / "00001-a-cube-s3-baseline.mp4"]
    settings = GenerationSettings(height=32, width=32, num_frames=5, steps=12, guidance_scale=3.0)
    pipe = load_pipeline(tiny_wan_folder, dtype=torch.float32)
    for place, text in enumerate(("a ball", "a cube")):
        expected = generate(pipe, text, settings, seed=2 + place)
        np.testing.assert_array_equal(load_video(paths[place]), to_uint8(expected.frames))
    written = [path.stat().st_mtime_ns for path in paths]
    prompts.write_text("a cube\na cat\n")
    assert exit_code("generate", *arguments, "--no-accelerate") == 0
    assert sorted(folder.glob("*.mp4")) == [*paths, folder / "00002-a-cat-s4-baseline.mp4"]
    assert [path.stat().st_mtime_ns for path in paths] == written
    rows = (tmp_path / "videos" / "results.csv").read_text().splitlines()
    assert [Path(tmp_path, "videos", row["video"]) for row in csv.DictReader(rows)] == sorted(folder.glob("*.mp4"))


def test_a_video_that_failed_says_why_and_the_same_command_makes_it_again(
    many: tuple[Path, list], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    arguments, generate_with = [*many[1], "--no-accelerate"], maker.generate_with

    def fail_for_one(pipe: object, prompt: str, *rest: object) -> object:
        if prompt == "a cube":
            raise RuntimeError("out of memory")
        return generate_with(pipe, prompt, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(maker, "generate_with", fail_for_one)
        assert exit_code("generate", *arguments) == 1
    shown = capsys.readouterr()
    assert "1 video in " in shown.out
    assert "RuntimeError: out of memory; the same command makes failed videos again" in shown.err
    assert exit_code("generate", *arguments, "--dry-run") == 0
    assert "1 videos to make" in capsys.readouterr().out
    assert exit_code("generate", *arguments) == 0
    assert "2 videos in " in capsys.readouterr().out


def test_many_accelerated_videos_are_units_of_a_job_without_baseline(
    many: tuple[Path, list], tmp_path: Path, capsys: pytest.CaptureFixture
):
    _, arguments = many
    assert exit_code("generate", *arguments, "--threshold", "0.3", "--fps", "8") == 0
    assert exit_code("eval", "status", tmp_path / "videos", "--json") == 0
    names = sorted(path.name.split("-")[2] for path in (tmp_path / "videos" / "units").iterdir())
    assert names == ["galaxydit", "galaxydit"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "x", "--prompts", "p.txt", "--out", "o"], "either --prompt or --prompts"),
        (["--out", "o"], "either --prompt or --prompts"),
        (["--prompts", "p.txt", "--out", "o.mp4"], "--prompts writes a folder"),
        (["--prompt", "x", "--out", "o.mp4", "--ray"], "--ray"),
        (["--prompts", "no.txt", "--out", "o"], "prompts.file='no.txt' is not allowed: expected a text file"),
    ],
)
def test_options_of_many_videos_are_checked(options: list[str], message: str, capsys: pytest.CaptureFixture):
    assert exit_code("generate", "--model", "wan-tiny", *options) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
