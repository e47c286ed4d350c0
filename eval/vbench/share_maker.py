"""Measures shares of a dimension's videos with VBench or VBench-2.0, each in a process of its own."""

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
from galaxydit.pipelines.runs import Output, Store, Unit
from galaxydit.pipelines.runs.run import Maker

DRIVER = Path(__file__).parent / "inside" / "driver.py"
WRITTEN = "scores_eval_results.json"  # by upstream
RAISED = 1  # exit code of a Python process that an exception ended
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
    """Measures a share by inside/driver.py, a process in the benchmark's environment, and reads the result back.

    Results hold the raw "score", None if no video counts, and the (value, count) of "videos" by unit id.
    """

    store: Store  # the run with the videos
    environment: Environment  # at the same path on every machine
    cache: Path  # of model files, at the same path on every machine
    trust: bool = False  # let the benchmark unpickle weights, which can run any code

    def make(self, unit: Unit) -> Output:
        suite = SUITES[unit.data["suite"]]
        with tempfile.TemporaryDirectory(prefix="galaxydit-vbench-") as place:
            folder = Path(place)
            paths = {name: video["path"] for name, video in unit.data["videos"].items()}
            lay_out(self.store, paths, folder / "videos")
            write_json(folder / "prompts.json", unit.data["entries"])
            task = {name: unit.data[name] for name in ("suite", "dimension", "mode", "prompts", "static_filter")}
            write_json(folder / "task.json", task)
            self._measure(folder, suite.cache_variable)
            return Output(_result(folder, suite.dimensions[unit.data["dimension"]], unit.data))

    def _measure(self, folder: Path, cache_variable: str) -> None:
        """Run the benchmark on a folder, which gets its file of scores.

        Raises GalaxyDiTError if the benchmark raised an exception, and ChildProcessError if its process died, which
        another attempt may mend.
        """
        torch_home = folder / "torch"
        link_checkpoints(self.cache, torch_home)
        variables = os.environ | OFFLINE
        variables |= {cache_variable: str(self.cache.absolute()), "TORCH_HOME": str(torch_home)}
        if self.trust:
            variables["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
        log = folder / "log.txt"
        # Unbuffered, so that the log holds the last words of a process that is killed.
        command = [str(self.environment.python), "-u", str(DRIVER), str(folder)]
        with log.open("wb") as output:
            code = subprocess.run(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ).returncode
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last_words = " ".join(line.strip() for line in lines[-SHOWN_LINES:])
        if code == RAISED:
            raise GalaxyDiTError(last_words)
        if code or not (folder / WRITTEN).is_file():
            raise ChildProcessError(f"the benchmark died with exit code {code}; its last words: {last_words}")


def link_checkpoints(cache: Path, torch_home: Path) -> None:
    """Link the model files in `cache` that torch.hub looks for below its home folder and nowhere else.

    DINO's own code and torchvision load them by torch.hub, whatever path upstream gives.
    """
    checkpoints = torch_home / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for weights in (cache / DINO.path, *(cache / CHECKPOINTS).glob("*.pth")):
        if weights.is_file():
            (checkpoints / weights.name).symlink_to(weights.absolute())


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
