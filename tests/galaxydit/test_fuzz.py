"""500 command lines and calls with bad input, drawn with a fixed seed: each is refused in a message with a cure."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError, Online, Schedule, Threshold
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

COMMAND_LINES, CALLS, JOB_FILES = 150, 140, 60
CURE = re.compile(r"(?s)Try '.*' for help|\S.*; [a-z`][^;]{9,}$")
LONG = "x" * 300

WHOLE = ["", "x", "nan", "0", "-1", "1.5", "1e400", "½", "0x"]
NUMBER = ["", "x", "nan", "inf", "-inf", "-1", "1,5", "½"]
MODEL = ["", " ", "nowhere", "/nowhere", "a/b/c/d", "wan-tny", "file", ".", "..", "~", "💥", LONG]
OUT_FILE = ["", ".", "/", "a.avi", "file/x{}", "/proc/x/x{}", LONG + "{}", "dir{}"]
OUT_FOLDER = ["file", "file/x", "/proc/x", LONG]
PROMPT_FILE = ["", "nowhere", "dir.mp4", "latin.txt", "blank.txt", "file/x", LONG]
SIZES = dict.fromkeys(("--steps", "--height", "--width", "--frames"), WHOLE) | {
    "--guidance": NUMBER,
    "--flow-shift": NUMBER,
}
ACCELERATION = {
    "--speedup": [*NUMBER, "0.5", "0"],
    "--max-error": NUMBER,
    "--threshold": NUMBER,
    "--profile": ["", "nowhere", "/", "wan-tny", LONG],
}
SEED = {"--seed": ["", "x", "-1", "1.5", str(2**64)]}
RAY = {"--workers": ["0", "2", "x"], "--gpus-per-worker": ["-1", "1", "x"]}
WRONG: dict[tuple[str, ...], dict[str, list[str]]] = {
    ("generate", "--model", "wan-tiny", "--prompt", "x", "--out", "a.mp4"): {
        "--model": MODEL,
        "--out": [text.format(".mp4") for text in OUT_FILE],
        "--fps": [*NUMBER, "0"],
        "--nope": ["1"],
        "--no-accelerate --speedup": ["2"],
        "--speedup 2 --threshold": ["0.1"],
        **SIZES,
        **ACCELERATION,
        **SEED,
    },
    ("inspect", "--model", "wan-tiny"): {"--model": MODEL, "--jsn": ["1"]},
    ("demo",): {"--out": OUT_FOLDER, "--prompts": WHOLE, "--prompt x --prompts": ["2"], **ACCELERATION, **SEED},
    ("calibrate", "--model", "wan-tiny", "--prompts", "prompts.txt", "--out", "p.json"): {
        "--model": MODEL,
        "--prompts": PROMPT_FILE,
        "--out": [text.format(".json") for text in OUT_FILE],
        "--budget": ["x", "-1", "0", "nan", "h", "0h", "inf"],
        "--report": OUT_FOLDER,
        **SIZES,
        **RAY,
        "--steps": [*WHOLE, "8"],
        "--seed": ["x", "-1"],
    },
    ("compare",): {
        "--model": MODEL,
        "--prompts": [*PROMPT_FILE, "0", "1000000000"],
        "--seeds": ["", "x", "-1", "1,1", str(2**64)],
        "--speedups": ["", "x", "nan", "inf", "0.5", "11", "2,2"],
        "--methods": ["", ",", "x", "TeeCache", "all,x"],
        "--calibration": PROMPT_FILE,
        "--tune-prompts": [*WHOLE, "100000"],
        "--out": OUT_FOLDER,
        **SIZES,
        **RAY,
    },
    ("latency",): {
        "--model": ["", "2B", "14b"],
        "--size": ["", "large", "1x1", "-1x2x3", "0x32x5"],
        "--fraction": [*NUMBER, "1.5"],
        "--device": ["", "banana", "cuda:x"],
        "--mode": ["", "fast"],
        "--table": ["nowhere", "file", "dir.mp4"],
        "--out": [text.format(".json") for text in OUT_FILE],
        **dict.fromkeys(("--repeats", "--steps"), WHOLE),
    },
    ("eval", "run", "job.toml", "--out", "new"): {"--out": ["file", "file/x", LONG], "--nope": ["1"], **RAY},
    ("eval", "run", "--out", "new"): {
        path: [] for path in ("nowhere", "dir.mp4", "file", "latin.txt", "bad.toml", LONG, "")
    },
    **{
        ("eval", name): {path: [] for path in ("nowhere", "dir.mp4", "file", "nosuch://x", "damaged", LONG)}
        for name in ("status", "report", "export")
    },
    ("eval", "vbench", "nowhere", "--environment", "nowhere"): {"--dimensions": ["", "x", "temporal_flickering"]},
}
SCRIPT = """
import contextlib, io, json, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise RuntimeError("torch is loaded")

sys.meta_path.insert(0, NoTorch())
from galaxydit.cli import main

results = []
for arguments in json.load(sys.stdin):
    said, code = io.StringIO(), "returned"
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    results.append([code, said.getvalue()])
json.dump(results, sys.stdout)
"""


def draw_command_lines(count: int) -> list[list[str]]:
    """Valid command lines, each with one wrong option or two."""
    draw = random.Random(0)
    single = [
        [*base, *option.split(), value] for base, wrong in WRONG.items() for option in wrong for value in wrong[option]
    ]
    single += [[*base, path] for base, wrong in WRONG.items() for path in wrong if not wrong[path]]
    lines = draw.sample(single, min(count * 4 // 5, len(single)))
    while len(lines) < count:
        base = draw.choice([base for base, wrong in WRONG.items() if all(wrong.values()) and len(wrong) > 1])
        two = draw.sample(sorted(WRONG[base].items()), 2)
        lines.append([*base, *(part for option, values in two for part in (*option.split(), draw.choice(values)))])
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the command lines name."""
    for name in ("dir.mp4", "dir.json", "damaged"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "blank.txt").write_text("\n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "prompts.txt").write_text("\n".join("abcdefgh"), encoding="utf-8")
    job = 'model = "wan-tiny"\n[prompts]\ntexts = ["x"]\n'
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    (tmp_path / "bad.toml").write_text(job + "[variants.galaxydit]\nspeedup = 0\n", encoding="utf-8")
    return tmp_path


def test_command_lines_with_bad_input_are_refused_with_a_cure_before_torch_is_loaded(folder: Path) -> None:
    lines, before = draw_command_lines(COMMAND_LINES), sorted(folder.rglob("*"))
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps(lines), capture_output=True, text=True, check=False, cwd=folder
    )
    assert finished.returncode == 0, finished.stderr
    wrong = [
        (line, code, said[-300:])
        for line, (code, said) in zip(lines, json.loads(finished.stdout), strict=True)
        if code != 2 or "Traceback" in said or not CURE.search(said)
    ]
    assert len(lines) == COMMAND_LINES
    assert not wrong, "\n".join(map(str, wrong))
    assert sorted(folder.rglob("*")) == before


JUNK = [
    *("", "x", "2", "\0", LONG, "💥", b"2", [], ["2"], {}, {"a": 1}, object(), print, int, 2j, Path("/"), Path(LONG)),
    *(float("nan"), float("inf"), float("-inf"), -1, -0.5, 10**400, True, Exception("x"), GenerationSettings()),
    *(torch.zeros(2), np.array([1.0, 2.0]), iter([])),
]


def bad_calls(tiny_wan: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    """Calls that take no value of JUNK, by what they are."""
    accelerated = (
        "speedup",
        "max_error",
        "threshold",
        "warmup",
        "proxy",
        "config",
        "scheduler",
        "profile",
        "keep_reports",
    )
    fields = ("policy", "proxy", "warmup", "keep_last", "reuse", "order")
    sizes = ("steps", "height", "num_frames", "guidance_scale", "fps")
    return [
        *(
            (f"accelerate {name}", lambda x, n=name: galaxydit.accelerate(tiny_wan.pipe, **{n: x}))
            for name in accelerated
        ),
        *((f"config {name}", lambda x, n=name: GalaxyDiTConfig(**{n: x})) for name in fields),
        *((f"settings {name}", lambda x, n=name: GenerationSettings(**{n: x})) for name in sizes),
        ("accelerate pipe", galaxydit.accelerate),
        ("apply_galaxydit", galaxydit.apply_galaxydit),
        ("remove", galaxydit.remove),
        ("describe", galaxydit.describe),
        ("load_profile", galaxydit.load_profile),
        ("Threshold", Threshold),
        ("Online", Online),
        ("Schedule", lambda x: Schedule(x, (1.0, 0.5))),
        ("sigmas", lambda x: Schedule(2.0, x)),
        ("FixedSteps", lambda x: FixedSteps((0, x))),
        ("seed", lambda x: generate(tiny_wan.pipe, "x", GenerationSettings(steps=1), x)),
    ]


def test_calls_with_bad_input_are_refused_with_a_cure_and_attach_nothing(tiny_wan: Any) -> None:
    calls, wrong = bad_calls(tiny_wan), []
    cases = [(name, call, junk) for name, call in calls for junk in JUNK]
    for name, call, junk in random.Random(0).sample(cases, CALLS):
        shown = f"{name}: {junk!r}"[:80]
        try:
            call(junk)
            wrong.append((shown, "taken"))
        except GalaxyDiTError as error:
            if not CURE.search(str(error)):
                wrong.append((shown, str(error)))
        except Exception as error:
            wrong.append((shown, f"{type(error).__name__}: {error}"[:200]))
    assert not wrong, "\n".join(map(str, wrong))
    galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig()).remove()


def test_damaged_job_files_are_refused_with_a_cure(tmp_path: Path) -> None:
    draw, wrong, refused = random.Random(0), [], 0
    text = (Path(galaxydit.__file__).parent / "eval" / "jobs" / "example.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    values = ("0", "-1", "nan", '""', "[]", "{}", "true", "1e400", "'x'", "[[1]]", "1979-05-27", "=", '"\\u0000"')
    for _ in range(JOB_FILES):
        changed = list(lines)
        place = draw.randrange(len(changed))
        key = changed[place].split("=")[0]
        changed[place] = draw.choice([f"{key} = {draw.choice(values)}", f"x{changed[place]}", "", "[" + changed[place]])
        path = tmp_path / "job.toml"
        path.write_text("\n".join(changed), encoding="utf-8")
        try:
            read_job(path)
        except (GalaxyDiTError, FileNotFoundError) as error:
            refused += 1
            if not CURE.search(str(error)):
                wrong.append((changed[place], str(error)))
        except Exception as error:
            wrong.append((changed[place], f"{type(error).__name__}: {error}"))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused > JOB_FILES / 2
