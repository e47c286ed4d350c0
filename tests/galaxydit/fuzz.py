"""Random command lines, damaged runs and damaged model folders: each must end with a word and with what to do.

`python tests/galaxydit/fuzz.py --count 300 --seed 0` lists the cases that end otherwise and exits with 1 if there are
any; `test_endings.py` runs a few. A case is wrong if it raises, if its exit code is unknown, if it takes longer
than `PATIENCE`, if control characters reach the terminal, or if an error names no cure.
"""

import importlib.util
import io
import json
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

import galaxydit.commands.console as console
from galaxydit.cli import main
from galaxydit.errors import GalaxyDiTError

PATIENCE = 120  # seconds
CODES = (0, 1, 2)
CURE = re.compile(r"; |: (check|add|leave|pass|take|write|connect|name|see)\b|did you mean|Usage: ")
UNKNOWN = "check that the options suit the model"  # said of errors that nobody foresaw
NUMBERS = ("", " ", "-1", "0", "1e309", "nan", "inf", "9" * 30, "9" * 5000, "1.5", "0x10", "\uff11", "\u00b2", "1e-320")
TEXTS = (
    "\x1b]0;pwn\x07\x1b[2J",
    "\udcff",
    "\u202e",
    "[bold]x",
    "{",
    "{" * 5000,
    '{"prompt": 1}',
    "a" * 5000,
    "--",
    "x\ny",
)
LISTS = (",", "1,,2", "2,2", "all,all", "nan,2", "-1", "1" * 400)
FILES = (
    "pipe",
    "folder",
    "link",
    "binary",
    "empty",
    "deep.json",
    "/dev/full",
    "/dev/null",
    "/proc/self/x",
    "missing",
    "",
)
ADDRESSES = ("memory://x", "simplecache::memory://x", "nosuch://x", "s3://", "zip://x::missing", "file:///proc/x", "::")
RAY = ("127.0.0.1:1x", "ray://", "nowhere")

# What each command may be given, beside what it needs. The commands in SLOW stop where they would load a model.
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "generate": {
        **dict.fromkeys(("--seed", "--height", "--width", "--frames", "--guidance", "--flow-shift", "--fps"), NUMBERS),
        **dict.fromkeys(("--speedup", "--max-error", "--threshold"), NUMBERS),
        "--prompt": TEXTS,
        "--profile": (*FILES, *TEXTS),
        "--revision": TEXTS,
        "--dtype": TEXTS,
        "--out": (*FILES, "a.mp4/b.mp4", "\x1b[2J.mp4", "\udcff.mp4", "a" * 300 + ".mp4", "link.mp4"),
        "--model": (*FILES, *TEXTS),
    },
    "calibrate": {
        **dict.fromkeys(("--seed", "--budget", "--steps", "--height"), NUMBERS),
        "--prompts": (*FILES, *TEXTS),
        "--out": (*FILES, "link.json"),
        **dict.fromkeys(("--report", "--resume-dir"), FILES),
        "--workers": NUMBERS,
    },
    "compare": {
        **dict.fromkeys(("--seeds", "--speedups", "--methods"), (*LISTS, *NUMBERS, *TEXTS)),
        "--prompts": (*FILES, *NUMBERS),
        **dict.fromkeys(("--calibration", "--out"), FILES),
        "--tune-prompts": NUMBERS,
    },
    "demo": {"--seed": NUMBERS, "--prompts": NUMBERS, "--out": FILES, "--speedup": NUMBERS},
    "latency": {"--table": FILES, "--out": FILES, "--steps": NUMBERS, "--size": TEXTS, "--fraction": NUMBERS},
    "inspect": {"--model": (*FILES, *TEXTS), "--revision": TEXTS, "--offload": TEXTS},
    "families": {"": TEXTS},
    "eval status": {"": (*FILES, *ADDRESSES, *TEXTS)},
    "eval report": {"": (*FILES, *ADDRESSES), "--out": ("folder", "pipe", "/dev/full", "/proc/self/x")},
    "eval export": {"": (*FILES, *ADDRESSES), "--out": ("binary", "pipe", "/proc/self/x")},
    "eval run": {"": (*FILES, "job.toml"), "--out": (*FILES, *ADDRESSES, *TEXTS)},
}
NEEDED = {
    "generate": [
        "--model",
        "{model}",
        "--prompt",
        "x",
        "--out",
        "a.mp4",
        "--steps",
        "2",
        "--height",
        "32",
        "--width",
        "32",
    ],
    "calibrate": ["--model", "wan-tiny", "--out", "p.json"],
    "eval run": ["--out", "new"],
}
SLOW = ("calibrate", "compare", "demo", "latency", "eval run")
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "",
    "x",
    "\x1b[2J",
    [],
    [9],
    {},
    {"x": []},
    [[]],
    "9999-99-99",
)


class StopError(GalaxyDiTError):
    """Ends a command where it would load a model."""


def make_files(folder: Path) -> None:
    """Everything that `FILES` names."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    for name in ("link", "link.json", "link.mp4"):
        (folder / name).symlink_to("nowhere/at/all")
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "empty").touch()
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "job.toml").write_text('model = "wan-tiny"\n[prompts]\ntexts = ["x"]\n')


def damaged(data: Any, draw: random.Random) -> Any:
    """Plain data with one value replaced, removed or added."""
    if isinstance(data, dict) and data and draw.random() < 0.85:
        key = draw.choice(sorted(data))
        rest = {name: value for name, value in data.items() if name != key}
        match draw.randrange(8):
            case 0:
                return rest
            case 1:
                return data | {"\x1b[2Jnew": 1}
            case _:
                return rest | {key: damaged(data[key], draw)}
    if isinstance(data, list) and data and draw.random() < 0.85:
        index = draw.randrange(len(data))
        return [*data[:index], damaged(data[index], draw), *data[index + 1 :]]
    return draw.choice(VALUES)


def damage_file(path: Path, draw: random.Random) -> None:
    """Damage the JSON in a file, or the file as a whole."""
    content = path.read_bytes()
    match draw.randrange(8):
        case 0:
            path.write_bytes(content[: draw.randrange(len(content) + 1)])
        case 1:
            path.write_bytes(draw.choice([b"", b"\xff\xfe", b"[" * 100_000, b"NaN", b"null", b'"x"', b"[]"]))
        case 2:
            path.unlink()
            if draw.random() < 0.5:
                path.mkdir()
        case _:
            path.write_text(json.dumps(damaged(json.loads(content), draw)))


def command_line(draw: random.Random, model: Path) -> list[str]:
    """A command with one or two of its options drawn at random."""
    name = draw.choice(sorted(OPTIONS))
    options = OPTIONS[name]
    given = [word.format(model=model) for word in NEEDED.get(name, [])]
    chosen = draw.sample(sorted(options), min(len(options), draw.choice((1, 1, 2))))
    if "" in options and "" not in chosen:
        chosen.append("")
    for option in chosen:
        value = draw.choice(options[option])
        given += [option, value] if option else ["--", value] if value.startswith("-") else [value]
    if draw.random() < 0.05:
        given += ["--ray", draw.choice(RAY)]
    return [*name.split(), *given]


def damaged_run(draw: random.Random, run: Path) -> list[str]:
    """A command that reads a run, after one of the run's files was damaged."""
    shutil.copytree(run, "run")
    paths = [path for path in sorted(Path("run").rglob("*.json")) if path.is_file()]
    damage_file(draw.choice(paths), draw)
    return ["eval", *draw.choice((["status"], ["status", "--json"], ["report"], ["export"])), "run"]


def damaged_model(draw: random.Random, model: Path) -> list[str]:
    """A command that loads a model, after one of the model's files was damaged."""
    shutil.copytree(model, "model")
    damage_file(draw.choice(sorted(Path("model").rglob("*.json"))), draw)
    sizes = ["--steps", "2", "--height", "32", "--width", "32", "--frames", "5"]
    if draw.random() < 0.5:
        return ["inspect", "--model", "model"]
    return ["generate", "--model", "model", "--prompt", "x", "--out", "a.mp4", *sizes]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def expire(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(arguments: list[str]) -> tuple[object, str]:
    """Exit code, or what was raised, and everything that was printed."""
    printed = io.StringIO()
    console.messages.cache_clear()
    code: object = 0
    with redirect_stdout(printed), redirect_stderr(printed), warnings.catch_warnings(), within(PATIENCE):
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code or 0
        except BaseException as error:
            code = repr(error)[:300]
    console.messages.cache_clear()
    return code, printed.getvalue()


def fault_of(code: object, printed: str, foreseen: bool = True) -> str:
    """What is wrong with the end of a command, or an empty text. `foreseen`: every error must have words of its own."""
    last = printed.strip().rpartition("error: ")[2]
    if code not in CODES:
        return f"ended with {code}"
    if "Traceback (most recent" in printed:
        return "shows a traceback"
    if foreseen and UNKNOWN in printed and code == 1:
        return "ends with an error that is not worded"
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed):
        return "prints control characters"
    if code == 2 and not CURE.search(last) and "Invalid value" not in printed and "Missing" not in printed:
        return "names no cure"
    return ""


@contextmanager
def stopping_before_models() -> Iterator[None]:
    """Commands stop where they load a model, or where they begin to time one."""
    import galaxydit.eval.latency.latency_run as latency_run
    import galaxydit.pipelines.loading as loading

    def stop(*_: object, **__: object) -> None:
        raise StopError("a model would be loaded; go on")

    kept = loading.load_pipeline, latency_run.LatencyRun.measure
    loading.load_pipeline = latency_run.LatencyRun.measure = stop  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        loading.load_pipeline, latency_run.LatencyRun.measure = kept  # type: ignore[method-assign]


def faults(count: int, seed: int, run: Path, model: Path, first: int = 0) -> list[str]:
    """One line for each of `count` cases that ends as it must not."""
    makers: list[tuple[Callable[[random.Random, Path], list[str]], Path]]
    makers = [(command_line, model), (command_line, model), (damaged_run, run), (damaged_model, model)]
    lines, home = [], Path.cwd()
    level = logging.getLogger().level
    for index in range(first, first + count):
        draw = random.Random(f"{seed}-{index}")
        make, given = makers[index % len(makers)]
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                make_files(Path(folder))
                arguments = make(draw, given)
                name = " ".join(arguments[:2])
                slow = any(name.startswith(each) for each in SLOW)
                with stopping_before_models() if slow else nullcontext():
                    fault = fault_of(*(ended := outcome(arguments)), foreseen=make is not damaged_model)
            finally:
                os.chdir(home)
        if fault:
            shown = [each if len(each) < 80 else f"{each[:60]}..." for each in arguments]
            lines.append(f"case {seed}-{index} {fault}: {shown} -> {ended[0]} {' '.join(ended[1].split())[-400:]!r}")
            sys.stdout.write(lines[-1] + "\n")
    logging.getLogger().setLevel(level)
    return lines


def load_module(path: Path) -> Any:
    """A Python file of the tests, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"fuzzed_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def fuzz(
    count: Annotated[int, typer.Option(min=1)] = 300, seed: int = 0, first: Annotated[int, typer.Option(min=0)] = 0
) -> None:
    """Try cases and list those that end as they must not."""
    tests = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        run = load_module(tests / "eval" / "report" / "conftest.py").make_run(Path(folder, "run"), ["a cat", "a dog"])
        model = Path(folder, "model")
        load_module(tests / "conftest.py").build_tiny_wan_pipeline().save_pretrained(model)
        found = faults(count, seed, run, model, first)
    sys.stdout.write(f"{len(found)} of {count} cases end as they must not\n")
    raise typer.Exit(bool(found))


if __name__ == "__main__":
    typer.run(fuzz)
