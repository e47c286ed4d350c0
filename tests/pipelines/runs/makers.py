"""Units that cost nothing, for tests and for the acceptance command, and what both ask of processes."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.runs import Maker, Output, Rank, Unit, hash_of


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; a zombie, which only its parent can remove, does not."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def noise_units(count: int, per_group: int = 1) -> list[Unit]:
    """Units that differ by their seed."""
    return [Unit(f"{index:05d}", {"seed": index}, f"g{index // per_group}") for index in range(count)]


class SharedMaker(Maker):
    """Processes of a worker that add up their ranks, as those that share a video exchange its tokens."""

    def prepare(self, rank: Rank) -> None:
        from torch import distributed

        self.rank = rank
        distributed.init_process_group("gloo")

    def make(self, unit: Unit) -> Output:
        import torch
        from torch import distributed

        total = torch.tensor([self.rank.index + 1])
        distributed.all_reduce(total)
        return Output({"sum": int(total), "rank": self.rank.index})


class ReadingMaker(Maker):
    """Returns the first pixel of each input of a prompt."""

    def make(self, unit: Unit) -> Output:
        from galaxydit.pipelines.inputs import read_inputs

        inputs = read_inputs(unit.data["prompt"])
        images = [value[0] if isinstance(value, list) else value for name, value in inputs.items() if name != "prompt"]
        return Output([list(image.getpixel((0, 0))) for image in images])


class NoiseMaker(Maker):
    """Returns the hash of noise that depends on the seed alone, and the noise as a file.

    seconds: that a unit takes. trouble: what happens at which seed: "raise", "permanent", "full disk", "overflow",
    "die once", or "refuse", which is raised by `prepare`. place: folder for what must be remembered across processes.
    """

    def __init__(self, seconds: float = 0.0, trouble: dict[int, str] | None = None, place: Path | None = None) -> None:
        self.seconds = seconds
        self.trouble = trouble or {}
        self.place = place
        self.prepared = 0
        self.made: list[int] = []

    def prepare(self, rank: Rank) -> None:
        self.prepared += 1
        if -1 in self.trouble:
            raise ValueError("no such model")

    def make(self, unit: Unit) -> Output:
        seed = unit.data["seed"]
        self.made.append(seed)
        time.sleep(self.seconds)
        match self.trouble.get(seed):
            case "raise":
                raise RuntimeError(f"seed {seed} is hard")
            case "permanent":
                raise GalaxyDiTError("no use")
            case "full disk":
                try:
                    raise OSError(28, "No space left on device")
                except OSError as error:
                    raise ValueError("cannot write") from error
            case "overflow":
                return Output(float("nan"), {"noise.bin": b"noise"})
            case "interrupt":
                raise KeyboardInterrupt
            case "die once":
                marker = self.place / f"died-{seed}"
                if not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        noise = np.random.default_rng(seed).random((8, 8)).astype(np.float32)
        return Output({"sha256": hash_of(noise.tolist())}, {"noise.bin": noise.tobytes()})
