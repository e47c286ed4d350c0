"""What needs no model is refused before torch is loaded, and nothing is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from galaxydit.cli import main

GENERATE = ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "a.mp4"]
JOB = 'model = "wan-tiny"\n[prompts]\ntexts = ["x"]\n'
SCRIPT = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        assert name != "torch", "torch is loaded"

sys.meta_path.insert(0, NoTorch())
from galaxydit.cli import main

for arguments in eval(sys.argv[1]):
    print("$", *arguments, file=sys.stderr)
    code = 0
    try:
        main(arguments)
    except SystemExit as stopped:
        code = stopped.code or 0
    assert code == int(sys.argv[2]), (arguments, code)
"""


def run_without_torch(commands: list[list[str]], folder: Path, code: int) -> subprocess.CompletedProcess[str]:
    """Run commands in one process in which torch cannot be imported; each must exit with this code."""
    given = [sys.executable, "-c", SCRIPT, repr(commands), str(code)]
    return subprocess.run(given, capture_output=True, text=True, check=False, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds `dir.mp4`, a folder, and `file`, a file."""
    (tmp_path / "dir.mp4").mkdir()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "blank.txt").write_text("\n \n", encoding="utf-8")
    lines = '{"prompt": "x", "image": "missing.png"}\nx\ny\nz\n'
    (tmp_path / "images.txt").write_text(lines, encoding="utf-8")
    for name, index in (("damaged", "[]"), ("incomplete", '{"_class_name": "X", "vae": ["diffusers", "Y"]}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model_index.json").write_text(index, encoding="utf-8")
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "model_index.json").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "link.mp4").symlink_to("elsewhere.mp4")
    for name in ("pipe", "pipe.mp4", "pipe.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    (tmp_path / "bad.toml").write_text(JOB + '[variants.fast]\nmethod = "teacahe"\n', encoding="utf-8")
    return tmp_path


def test_bad_input_is_refused_before_torch_is_loaded_and_leaves_no_file(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    bad = [
        [*GENERATE, "--max-error", "-1"],
        [*GENERATE, "--speedup", "nan"],
        [*GENERATE, "--threshold", "0.1", "--speedup", "2"],
        [*GENERATE, "--profile", "wan-tny"],
        [*GENERATE, "--guidance", "nan"],
        [*GENERATE, "--flow-shift", "0"],
        [*GENERATE, "--fps", "0"],
        [*GENERATE, "--prompt", '{"prompt": "x", "image": "missing.png"}'],
        [*GENERATE, "--prompt", '{"prompt": 3}'],
        [*GENERATE, "--prompt", " "],
        [*GENERATE, "--prompt", "{"],
        [*GENERATE, "--model", ""],
        ["inspect", "--model", "damaged"],
        ["inspect", "--model", "incomplete"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "images.txt", "--out", "p.json", "--budget", "full"],
        ["compare", "--prompts", "images.txt"],
        ["latency", "--steps", "3"],
        ["latency", "--fraction", "0.01"],
        [*GENERATE, "--seed", str(2**64)],
        ["generate", "--model", "nowhere", "--prompt", "x", "--out", "a.mp4"],
        ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "dir.mp4"],
        ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "s3://bucket/x.mp4"],
        ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "a.mp4", "--flow-shift", "-2"],
        ["eval", "check", "run", "--min", "psnr=30", "--min", "psnr=20"],
        ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "file/x.mp4"],
        ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "/proc/x/x.mp4"],
        ["inspect", "--model", "nowhere"],
        ["demo", "--out", "file"],
        ["demo", "--out", "/proc/x"],
        ["demo", "--threshold", "0.1", "--max-error", "0.1"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "missing.txt", "--out", "p.json"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "latin.txt", "--out", "p.json"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "file", "--out", "p.txt"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "file", "--out", "p.json", "--workers", "2"],
        ["compare", "--prompts", "missing.txt"],
        ["compare", "--prompts", "1000000000"],
        ["compare", "--seeds", str(2**64)],
        ["compare", "--out", "file"],
        ["compare", "--methods", "TeeCache"],
        ["compare", "--speedups", "0.5"],
        ["compare", "--tune-prompts", "10000"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "file", "--out", "p.json", "--budget", "full"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "blank.txt", "--out", "p.json"],
        ["eval", "run", "bad.toml", "--out", "new"],
        ["eval", "vbench", "file", "--dimensions", "x", "--benchmark", "vbench3"],
        ["eval", "vbench", "file", "--dimensions", "no_such_dimension"],
        ["latency", "--device", "banana"],
        ["latency", "--model", "2B"],
        ["latency", "--method", "SeeCache"],
        ["demo", "--profile", "a" * 300],
        ["latency", "--fraction", "nan"],
        ["latency", "--size", "large"],
        ["latency", "--out", "dir.mp4"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "pipe", "--out", "p.json"],
        ["generate", "--model", "wan-tiny", "--prompt", "x", "--out", "pipe.mp4"],
        [
            "generate",
            "--model",
            "wan-tiny",
            "--prompt",
            "x",
            "--out",
            "a.mp4",
            "--no-accelerate",
            "--record",
            "pipe.json",
        ],
        ["generate", "--model", "wan-tiny", "--prompts", "file", "--out", "pipe"],
        [*GENERATE, "--image", "pipe"],
        [*GENERATE, "--lora", "pipe"],
        [*GENERATE, "--lora-2", "pipe"],
        [*GENERATE, "--profile", "pipe.json"],
        ["generate", "--model", "pipe", "--prompt", "x", "--out", "a.mp4"],
        ["calibrate", "--model", "wan-tiny", "--out", "pipe.json"],
        ["calibrate", "--model", "wan-tiny", "--out", "p.json", "--recorded", "pipe.json"],
        ["calibrate", "--model", "wan-tiny", "--out", "p.json", "--report", "pipe"],
        ["calibrate", "--model", "wan-tiny", "--out", "p.json", "--resume-dir", "pipe"],
        ["compare", "--out", "pipe"],
        ["compare", "--calibration", "pipe"],
        ["demo", "--out", "/dev/null"],
        ["eval", "run", "job.toml", "--out", "pipe"],
        ["eval", "run", "pipe", "--out", "new"],
        ["eval", "report", "file", "--out", "/dev/stdout"],
        ["latency", "--out", "pipe.json"],
        ["latency", "--table", "pipe.json"],
        ["validate", "--model", "wan-tiny", "--out", "pipe"],
        ["calibrate", "--model", "wan-tiny", "--seed", "9" * 23, "--out", "p.json"],
        ["eval", "run", "job.toml", "--out", "memory://run"],
        ["eval", "run", "job.toml", "--out", "simplecache::memory://run"],
        ["latency", "--table", "deep.json"],
        ["inspect", "--model", "deep"],
        ["generate", "--model", "nowhere", "--prompt", "x", "--out", "link.mp4"],
        [*GENERATE, "--processes", "2"],
        [*GENERATE, "--allow-mixed-versions"],
        ["generate", "--model", "wan-tiny", "--prompts", "file", "--out", "new", "--dry-run", "--json"],
        ["eval", "run", "job.toml", "--out", "new", "--dry-run", "--json"],
    ]
    finished = run_without_torch(bad, folder, code=2)
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    said = [text.partition("\n")[2] for text in finished.stderr.split("$ ")[1:]]
    assert len(said) == len(bad)
    assert all("rror" in text for text in said), "each command says what is wrong"
    assert sorted(folder.rglob("*")) == before
    for message in (
        "error: max_error=-1.0 is not allowed: expected a number at least 0; pass for example max_error=0.1",
        "did you mean 'wan-tiny'?",
        "error: --out='dir.mp4' is not allowed: expected a place that can be written (Is a directory); choose another",
        "error: --prompts='missing.txt' is not allowed: expected a text file that can be read",
        f"error: profile='{'a' * 59}...{'a' * 59}' is not allowed",
        "error: --prompts='pipe' is not allowed: expected a text file; save the prompts in a file, one a line",
        "error: --out='memory://run' is not allowed: expected a folder, or an address that outlasts this command",
        "error: --prompts='latin.txt' is not allowed: expected text in UTF-8; save it as UTF-8",
        "did you mean 'TeaCache'?",
        "did you mean 'teacache'?",
        "did you mean 'SeaCache'?",
        "error: image='missing.png' is not allowed: expected a file; pass an existing one",
        "error: model='damaged' is not allowed: expected a model_index.json that names a pipeline; write the folder",
        "error: model='incomplete' is not allowed: expected a folder with vae; write the folder again",
        "error: fraction=0.01 is not allowed: expected a number from 0.06 to 1 at 50 steps",
    ):
        assert message in finished.stderr


def test_help_and_lists_need_no_torch(folder: Path) -> None:
    names = ["calibrate", "compare", "demo", "families", "generate", "inspect", "latency", "eval"]
    lists = [["compare", "--list"], ["compare", "--list", "--json"], ["eval", "run", "--example"], ["--version"]]
    finished = run_without_torch([["-h"], *([name, "--help"] for name in names), *lists], folder, code=0)
    assert finished.returncode == 0, finished.stderr
    assert "--install-completion" in finished.stdout


def test_an_output_that_exists_is_not_touched_by_a_refusal(folder: Path, capsys: pytest.CaptureFixture) -> None:
    (folder / "old.mp4").write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["generate", "--model", "nowhere", "--prompt", "x", "--out", str(folder / "old.mp4")])
    assert (folder / "old.mp4").read_text(encoding="utf-8") == "mine"
    assert "nowhere" in capsys.readouterr().err


def test_every_command_says_what_it_does_before_torch_is_loaded(folder: Path) -> None:
    (folder / "prompts.txt").write_text("\n".join("abcdefghij"), encoding="utf-8")
    commands = [
        GENERATE,
        ["inspect", "--model", "wan-tiny"],
        ["demo"],
        ["calibrate", "--model", "wan-tiny", "--prompts", "prompts.txt", "--out", "p.json"],
        ["compare"],
        ["latency"],
        ["families"],
        ["eval", "run", "job.toml", "--out", "run"],
    ]
    script = SCRIPT.replace('assert name != "torch", "torch is loaded"', 'if name == "torch": raise KeyboardInterrupt')
    finished = subprocess.run(
        [sys.executable, "-c", script, repr(commands), "130"], capture_output=True, text=True, check=False, cwd=folder
    )
    assert finished.returncode == 0, finished.stderr
    models = [
        "loading torch and diffusers",
        "loading wan-tiny",
        "loading torch and diffusers",
        "loading torch and diffusers",
    ]
    said = [*models, "loading the methods", "loading torch", "loading diffusers", "job.toml: starting"]
    assert [line for line in finished.stderr.splitlines() if line in said] == said
