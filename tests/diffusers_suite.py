"""Runs diffusers' own tests of video pipelines plain and with the plugin, and compares test by test.

    python tests/diffusers_suite.py --out runs/diffusers

The file is a pytest plugin, too: with GALAXYDIT_MODE set, it attaches the plugin to each pipeline that a test calls.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = "https://github.com/huggingface/diffusers"
MODES = {
    "per call": "threshold 0, attached for each call",
    "attached": "threshold 0, attached at the first call and left there",
    "reuse": "every step after the first is reused",
}
TESTS = (
    *(
        f"tests/pipelines/{name}"
        for name in ("wan", "ltx", "ltx2", "cogvideo", "hunyuan_video", "skyreels_v2", "mochi")
    ),
    *(f"tests/pipelines/{name}" for name in ("cosmos", "allegro", "latte", "kandinsky5", "easyanimate", "chronoedit")),
    *(f"tests/lora/test_lora_layers_{name}.py" for name in ("wan", "wanvace", "ltx_video", "ltx2", "cogvideox")),
    *(f"tests/lora/test_lora_layers_{name}.py" for name in ("hunyuanvideo", "mochi")),
)


class Suite:
    """The plugin's side: attaches galaxydit in one mode, and keeps how each test ended."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.outcomes: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self._attached: weakref.WeakKeyDictionary[Any, tuple[list[Any], Any]] = weakref.WeakKeyDictionary()

    def wrap_pipelines(self) -> None:
        """Attach to every pipeline class that is defined from now on: diffusers loads them when they are asked for."""
        from diffusers import DiffusionPipeline

        def wrap(cls: type, **arguments: Any) -> None:
            super(DiffusionPipeline, cls).__init_subclass__(**arguments)
            if "__call__" in vars(cls):
                cls.__call__ = self._accelerated(cls.__call__)  # type: ignore[operator]

        DiffusionPipeline.__init_subclass__ = classmethod(wrap)
        if self.mode == "reuse":  # the tests run two steps, which are too few to be reused otherwise
            for name in ("policies.policy", "policies.schedule", "runtime.engine"):
                importlib.import_module(f"galaxydit.{name}").FEW_STEPS = 0  # type: ignore[attr-defined]

    def _accelerated(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(pipe: Any, *args: Any, **kwargs: Any) -> Any:
            acceleration = self._attach(pipe)
            before = 0 if acceleration is None else len(acceleration.reports)
            try:
                return call(pipe, *args, **kwargs)
            finally:
                if acceleration is not None:
                    calls = [one for report in acceleration.reports[before:] for one in report.calls]
                    self.counts["generations"] += 1
                    self.counts["transformer calls"] += len(calls)
                    self.counts["reused calls"] += sum(one.reused for one in calls)
                    if self.mode != "attached":
                        acceleration.remove()

        return run

    def _attach(self, pipe: Any) -> Any:
        from galaxydit import GalaxyDiTConfig, GalaxyDiTError, Threshold, accelerate
        from galaxydit.acceleration import transformers_of
        from galaxydit.other_caches import refuse_other_caches

        settings: dict[str, Any] = {"threshold": 0}
        if self.mode == "reuse":
            policy = Threshold(1e9)
            settings = {"config": GalaxyDiTConfig(policy, warmup=0.0, keep_last=0, max_consecutive=None)}
        known, acceleration = self._attached.pop(pipe, ([], None))
        try:
            transformers = list(transformers_of(pipe).values())
            for one in transformers:
                refuse_other_caches("transformer", one)
            if acceleration is not None and all(map(lambda one, other: one is other, known, transformers)):
                self._attached[pipe] = (transformers, acceleration)
                return acceleration
            if acceleration is not None:
                acceleration.remove()
            acceleration = accelerate(pipe, **settings, keep_reports=None)
        except GalaxyDiTError as error:
            if acceleration is not None:
                acceleration.remove()
            self.counts[f"refused: {error}"] += 1
            return None
        if self.mode == "attached":
            self._attached[pipe] = (transformers, acceleration)
        return acceleration

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        """Tell a wrong value, which reuse may give, from a crash, which it may not."""
        report = yield
        outcome = report.outcome
        if report.failed:
            outcome = "failed" if call.excinfo is not None and call.excinfo.errisinstance(AssertionError) else "crashed"
        order = ("passed", "skipped", "failed", "crashed")
        self.outcomes[item.nodeid] = max(self.outcomes.get(item.nodeid, "passed"), outcome, key=order.index)
        return report

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        found = {"outcomes": self.outcomes, "counts": self.counts}
        Path(os.environ["GALAXYDIT_RESULT"]).write_text(json.dumps(found, indent=1), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Called where pytest loads this file as a plugin."""
    suite = Suite(os.environ["GALAXYDIT_MODE"])
    config.pluginmanager.register(suite)
    if suite.mode in MODES:
        suite.wrap_pipelines()


def check_out(folder: Path) -> None:
    """Diffusers' tests, without its source, at the version that is installed."""
    import diffusers

    tag = ["--depth", "1", "--branch", f"v{diffusers.__version__}"]
    subprocess.run(["git", "clone", "-q", *tag, "--filter=blob:none", "--sparse", REPOSITORY, folder], check=True)
    subprocess.run(["git", "-C", folder, "sparse-checkout", "set", "tests"], check=True)


def run_tests(source: Path, result: Path, mode: str, chosen: list[str], options: list[str]) -> dict[str, Any]:
    """How each test ended in one mode; taken from an earlier run if there is one."""
    if not result.is_file():
        here = Path(__file__).resolve().parent
        paths = os.pathsep.join(filter(None, [str(here), str(here.parent), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"GALAXYDIT_MODE": mode, "GALAXYDIT_RESULT": str(result), "PYTHONPATH": paths}
        plugins = ["-p", "no:cacheprovider", "-p", Path(__file__).stem]
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--continue-on-collection-errors", *plugins]
        subprocess.run([*command, *chosen, *options], cwd=source, env=environment, check=False)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def table(plain: dict[str, str], found: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Lines of a table, a row for each folder or file of tests, and the tests that break the rule of their mode."""
    lines = [f"| tests | pass plain | {' | '.join(found)} |", f"|---|---:|{'---:|' * len(found)}"]
    groups: dict[str, list[str]] = {}
    for test, outcome in plain.items():
        if outcome == "passed":
            path = Path(test.split("::")[0])
            groups.setdefault(path.stem if "lora" in path.parts else path.parent.name, []).append(test)
    broken = []
    for name, tests in groups.items():
        cells = []
        for mode, result in found.items():
            ended = Counter(result["outcomes"].get(test, "missing") for test in tests)
            cells.append(", ".join(f"{count} {outcome}" for outcome, count in ended.most_common()))
            allowed = ("passed", "failed") if mode == "reuse" else ("passed",)
            broken += [f"{mode}: {test}" for test in tests if result["outcomes"].get(test) not in allowed]
        lines.append(f"| {name} | {len(tests)} | {' | '.join(cells)} |")
    return lines, broken


def main() -> int:
    """Run all modes; 1 if a test that passes plain fails at threshold 0, or crashes with reuse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; finished modes are kept")
    parser.add_argument("--source", type=Path, help="checkout of diffusers; by default one is made in --out")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="paths below the checkout")
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="options for pytest, last")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    source = arguments.source or out / "diffusers"
    if not source.is_dir():
        check_out(source)
    chosen = [path for path in arguments.tests if (source / path).exists()]
    runs = {
        mode: run_tests(source, out / f"{mode.replace(' ', '-')}.json", mode, chosen, arguments.pytest)
        for mode in ("plain", *MODES)
    }
    plain = runs.pop("plain")["outcomes"]
    lines, broken = table(plain, runs)
    counts = [f"{mode} ({MODES[mode]}): {json.dumps(result['counts'])}" for mode, result in runs.items()]
    sys.stdout.write("\n".join([*lines, "", *counts, *broken, ""]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
