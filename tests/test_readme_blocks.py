"""Every block of code of every README runs, with only model, size and prompt replaced, or is listed with the reason."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import galaxydit
from galaxydit.cli import main
from galaxydit.pipelines import model_names
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import CHECKPOINTS, Checkpoint
from galaxydit.pipelines.settings import GenerationSettings

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if (path.name in ("README.md", "comparison.md") or path.parent == ROOT / "docs") and ".venv" not in path.parts
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Blocks of Python and TOML that another test runs, by a text in them.
ELSEWHERE = {
    "WanPipeline.from_pretrained(": "tests/test_readme_example.py",
    'load_pipeline("wan2.1-t2v-1.3b")  # diffusers': "tests/test_readme_example.py",
    'load_pipeline("wan-tiny")': "tests/test_readme_example.py",
    "[variants.galaxydit]\nspeedup = 2.0\npolicy": "tests/eval/jobs/test_readme.py",
    "[gates]": "tests/eval/test_worked_examples.py",
    "si_sdr = ": "tests/eval/jobs/test_sound_of_jobs.py",
    "MEAN_ERROR = ": "tests/eval/test_worked_examples.py",
    "variants.mine = ": "tests/eval/test_worked_examples.py",
    "[project.entry-points": "tests/test_plugins.py",
    '@method("every other step"': "tests/eval/test_worked_examples.py",
    'FIGURES["norms"]': "tests/calibration/test_html_report.py",
    "def denoise(": "tests/galaxydit/test_readme.py",
    'FAMILIES["Mochi': "tests/galaxydit/test_readme.py",
    'PROXIES["pooled_latent"]': "tests/galaxydit/test_readme.py",
    "class Norms(Observer)": "tests/galaxydit/test_readme.py",
    "class Squares(Maker)": "tests/pipelines/runs/test_on_ray.py",
}
# Commands that no test can run, by how they begin.
NOT_RUN = {
    "python3 -m venv": "CI builds the environment with this line",
    ". .venv": "CI builds the environment itself",
    "pip install": "CI builds the environment itself",
    ".venv/bin/pip install -q": "CI builds the environment with this line",
    ".venv/bin/pytest": "runs this test",
    ".venv/bin/pip install parameterized": "downloads packages",
    ".venv/bin/python tests/diffusers_suite.py": "needs diffusers' own tests",
    "galaxydit eval vbench setup": "downloads 6 GB",
    "galaxydit eval vbench fetch": "downloads weights",
    "galaxydit eval vbench runs/": "needs the environment of setup",
    "galaxydit generate --prompts prompts.txt --out s3://": "needs a bucket and a cluster",
    "galaxydit compare --model wan-tiny --prompts 32": "every method runs in tests/eval/methods/test_every_method.py",
    "galaxydit compare --model wan2.1-t2v-1.3b": "every method runs in tests/eval/methods/test_every_method.py",
    "galaxydit calibrate --model wan2.1-t2v-1.3b --out": "runs with --report",
    "galaxydit calibrate --model wan-tiny --out profile.json": "README.md has the same command",
    "galaxydit inspect --model wan-tiny --plugin": "tests/test_plugins.py loads the same file",
    "galaxydit compare --plugin every_other_step.py": "tests/eval/test_worked_examples.py loads the same file",
    "sbatch": "needs Slurm",
    "kubectl": "needs Kubernetes",
    "ray job submit": "needs a cluster",
    "python3 -m pip": "for a machine with a GPU and without a network",
    "export PYTHONPATH": "for a machine with a GPU and without a network",
    "for package in": "for a machine with a GPU and without a network",
    "python3 -m pytest -q tests/gpu": "needs a GPU",
    "short=": "needs a GPU",
    "python3 -m galaxydit.cli latency": "needs a GPU",
    "eval python3 -m galaxydit.cli latency": "needs a GPU",
    "python3 tests/gpu/measure.py": "needs a GPU",
    "python3 -m galaxydit.eval.results_page": "rewrites the pages of the checkout",
}
SIZE = ["--height", "32", "--width", "32", "--frames", "5", "--guidance", "3", "--steps", "12", "--dtype", "float32"]
ONE_PROMPT = {"validate": ["--prompts", "1"], "compare": ["--prompts", "1"]}
SIZED = ("calibrate", "compare", "demo", "generate", "validate")
SMALLER = {
    'pipe("a red ball rolls to the left")': 'pipe("a red ball", None, 32, 32, 5, 12)',
    'pipe("a red ball rolls to the left", ': 'pipe("a red ball", None, 32, 32, 5, ',
    "recommended_settings(pipe)": "SETTINGS",
    "learn(pipe)": "learn(pipe, settings=SETTINGS)",
    "calibrate(pipe, ": "calibrate(pipe, settings=SETTINGS, ",
}
SETTINGS = GenerationSettings(height=32, width=32, num_frames=5, steps=12, guidance_scale=3.0, fps=8.0)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and code of each block of a page."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def commands(code: str) -> Iterator[str]:
    """The commands of a block, without continuation lines and comments."""
    for line in re.sub(r" *\\\n *", " ", code).splitlines():
        yield from filter(None, (part.strip() for part in re.sub(r"\s+#.*", "", line).split(" && ")))


CONSOLE = [(page, code) for page in PAGES for language, code in blocks(page) if language in ("", "bash", "console")]
# Pages share commands: the first page of a command runs it, whichever process of the tests has the page.
FIRST = {command: page for page, code in reversed(CONSOLE) for command in commands(code)}
OTHERS = [(page, code) for page in PAGES for language, code in blocks(page) if language in ("python", "toml")]
PYTHON = [(page, code) for page, code in OTHERS if not any(text in code for text in ELSEWHERE)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_what_the_tables_name_is_there() -> None:
    for text, test in ELSEWHERE.items():
        assert (ROOT / test).is_file()
        assert any(text in code for _, code in OTHERS), f"no README has {text!r}"
    for start in NOT_RUN:
        assert any(command.startswith(start) for _, code in CONSOLE for command in commands(code)), start


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", dict.fromkeys(page for page, _ in CONSOLE), ids=name_of)
def test_commands_run(
    page: Path, tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # commands take SIGTERM over, which is the test run's
    monkeypatch.setitem(model_names.EMBEDDED, "wan-tiny", tiny_wan_folder)
    monkeypatch.chdir(tmp_path)
    for name in ("prompts.txt", "other-prompts.txt"):
        Path(name).write_text("\n".join(f"{name}, a ball, number {index}" for index in range(10)))
    for code in [code for each, code in OTHERS if each == page and "[variants" in code]:
        Path("job.toml").write_text(as_small(code))
    for command in dict.fromkeys(command for each, code in CONSOLE if each == page for command in commands(code)):
        if FIRST[command] != page or any(command.startswith(start) for start in NOT_RUN):
            continue
        words, _, target = command.partition(" > ")
        arguments = shlex.split(words)
        assert arguments[0] == "galaxydit", f"{page}: nothing runs {command!r}"
        with pytest.raises(SystemExit) as stopped:
            main(as_tiny(arguments[1:], str(tiny_wan_folder)))
        shown = capsys.readouterr()
        # Random weights keep no gate.
        assert (stopped.value.code or 0) in ((0, 1) if "check" in arguments else (0,)), f"{command}: {shown.err}"
        if target:
            Path(target).write_text(as_small(shown.out))


def as_tiny(arguments: list[str], folder: str) -> list[str]:
    """The arguments with another model, a small size and one prompt. wan-tiny is the tiny model here."""
    if arguments[0] not in SIZED:
        return arguments
    short = [folder if argument.startswith("wan2.1") else argument for argument in arguments]
    return [*short, *SIZE, *ONE_PROMPT.get(arguments[0], [])]


def as_small(job: str) -> str:
    """A job file with a small size and one prompt."""
    size = {"height": 32, "width": 32, "frames": 5, "dtype": '"float32"'}
    job = re.sub(rf"^({'|'.join(size)}) = .*", "", job, flags=re.MULTILINE)
    for text, smaller in (
        ("count = 2", "count = 1"),
        ("count = 4", "count = 1"),
        ("steps = 50", "steps = 12"),
        ("steps = 25", "steps = 6"),
    ):
        job = job.replace(text, smaller)
    return "".join(f"{key} = {value}\n" for key, value in size.items()) + job


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", dict.fromkeys(page for page, _ in PYTHON), ids=name_of)
def test_python_runs(page: Path, tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setitem(CHECKPOINTS, "tiny", Checkpoint(str(tiny_wan_folder), SETTINGS))
    for code in [code for each, code in PYTHON if each == page]:
        names = {"galaxydit": galaxydit, "pipe": load_pipeline(tiny_wan_folder), "Path": Path, "SETTINGS": SETTINGS}
        for text, replacement in SMALLER.items():
            code = code.replace(text, replacement)
        exec(code.replace('"wan2.1-t2v-1.3b"', repr(str(tiny_wan_folder))), names)
