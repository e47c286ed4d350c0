"""Measures shares of a dimension's videos with VBench or VBench-2.0."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published import SUITES
from galaxydit.eval.published.suite import CHECKPOINTS, Dimension
from galaxydit.eval.published.vbench import DINO
from galaxydit.eval.vbench.environment import Environment
from galaxydit.eval.vbench.results import read_scores
from galaxydit.files import write_json
from galaxydit.pipelines.runs import Output, Rank, Store, Unit
from galaxydit.pipelines.runs.run import Maker

DRIVER = Path(__file__).parent / "inside" / "driver.py"
WRITTEN = "scores_eval_results.json"  # by upstream
SHOWN_LINES = 3
# The proxy refuses every connection: upstream calls wget and torch.hub, which know no offline mode.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    **{name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")},
    "no_proxy": "",
    "NO_PROXY": "",
}


@dataclass
class ShareMaker(Maker):
    """Measures shares by the driver (inside/driver.py), a process in the benchmark's environment that lives on.

    Results hold the raw "score", None if no video counts, and the (value, count) of "videos" by unit id.
    """

    store: Store  # the run with the videos
    environment: Environment  # at the same path on every machine
    cache: Path  # of model files, at the same path on every machine
    trust: bool = False  # let the benchmark unpickle weights, which can run any code
    _driver: "subprocess.Popen[str] | None" = None

    def prepare(self, rank: Rank) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="galaxydit-vbench-")
        self._log = Path(self._place.name, "log.txt")
        checkpoints = Path(self._place.name, "torch", "hub", "checkpoints")
        checkpoints.mkdir(parents=True)
        # DINO's own code looks for its weights nowhere but there, whatever path upstream gives it; so does torchvision.
        for place in (self.cache / DINO.path, *(self.cache / CHECKPOINTS).glob("*.pth")):
            if place.is_file():
                (checkpoints / place.name).symlink_to(place.absolute())

    def make(self, unit: Unit) -> Output:
        dimension = SUITES[unit.data["suite"]].dimensions[unit.data["dimension"]]
        with tempfile.TemporaryDirectory(prefix="galaxydit-vbench-") as place:
            folder = Path(place)
            videos = unit.data["videos"]
            lay_out(self.store, {name: video["path"] for name, video in videos.items()}, folder / "videos")
            write_json(folder / "prompts.json", unit.data["entries"])
            task = {name: unit.data[name] for name in ("suite", "dimension", "mode", "prompts", "static_filter")}
            write_json(folder / "task.json", task)
            self._measure(folder, unit.data["suite"])
            return Output(_result(folder, dimension, unit.data))

    def close(self) -> None:
        """End this process's driver; that of a worker ends with the worker."""
        if self._driver is not None:
            self._driver.kill()
            self._driver.communicate()
            self._driver = None

    def _measure(self, folder: Path, suite: str) -> None:
        if self._driver is None or self._driver.poll() is not None:
            torch_home = str(Path(self._place.name, "torch"))
            places = {SUITES[suite].cache_variable: str(self.cache.absolute()), "TORCH_HOME": torch_home}
            trusts = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"} if self.trust else {}
            with self._log.open("w") as log:
                self._driver = subprocess.Popen(
                    [self.environment.python, DRIVER],
                    env=os.environ | OFFLINE | places | trusts,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        driver = self._driver
        try:
            driver.stdin.write(f"{json.dumps(str(folder))}\n")  # type: ignore[union-attr]
            driver.stdin.flush()  # type: ignore[union-attr]
            answer = driver.stdout.readline()  # type: ignore[union-attr]
        except BrokenPipeError:
            answer = ""
        if not answer:
            code = driver.wait()
            raise ChildProcessError(
                f"the benchmark died with exit code {code}; its last words: {_last_lines(self._log)}"
            )
        if (error := folder / "scores_error.txt").is_file():
            raise GalaxyDiTError(_last_lines(error))
        if not (folder / WRITTEN).is_file():
            raise GalaxyDiTError(f"the benchmark wrote no results file; its last words: {_last_lines(self._log)}")


def lay_out(store: Store, paths: Mapping[str, str], folder: Path) -> None:
    """Fill the new `folder` with links to videos by name, or copies. Raises GalaxyDiTError if one is missing."""
    folder.mkdir()
    files, root = fsspec.core.url_to_fs(store.address, use_listings_cache=False)
    for name, path in paths.items():
        place = f"{root}/{path}"
        if store.is_local and Path(place).is_file():
            with suppress(OSError):
                os.symlink(place, folder / name)
                continue
        try:
            files.get_file(place, str(folder / name))
        except FileNotFoundError as error:
            raise GalaxyDiTError(f"video {place!r} is not there: put it back") from error


def _result(folder: Path, dimension: Dimension, data: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a share from what the driver left in `folder`.

    The driver renames static videos; kept.json maps each new file name to the original one.
    """
    names = {name: name for name in data["videos"]}
    if data["static_filter"]:
        names = json.loads((folder / "kept.json").read_text(encoding="utf-8"))
    score, values = read_scores(folder / WRITTEN, dimension, names)
    return {"score": score, "videos": {data["videos"][names[name]]["unit"]: pair for name, pair in values.items()}}


def _last_lines(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " ".join(line.strip() for line in lines[-SHOWN_LINES:])
