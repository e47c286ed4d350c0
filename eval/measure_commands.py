"""Times the commands of the README one after the other: `python -m galaxydit.eval.measure_commands`.

Their seconds, with the processor and its cores, go into eval/results/commands.json, from which the pages take them. The
same call goes on after the last command that ended well; a command whose arguments or versions changed is measured
again, and with it those after it, because they use its files.
"""

import argparse
import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from galaxydit.eval.compared import RESULTS, read
from galaxydit.files import write_json
from galaxydit.pipelines.disturbance import load_per_core
from galaxydit.pipelines.table import Table, digits

FILE = "commands.json"  # in eval/results
BALL = "a red ball moves left over a plain background"
JOB = """\
model = "wan-tiny"
steps = 50
metrics = ["psnr"]
prompts = { suite = "wan-tiny", count = 2 }
[variants.galaxydit]
speedup = 2.0
policy = "proxy"
[variants.half]
method = "fewer-steps"
steps = 25
"""
METHODS = "galaxydit paper,galaxydit proxy,galaxydit schedule"
CHAIN = {  # by name, in the order in which they are run, each in the same folder
    "demo": "demo",
    "calibrate": "calibrate --model wan-tiny --out wan-tiny.json --report report",
    "generate": f"generate --model wan-tiny --profile wan-tiny.json --speedup 2 --policy proxy --prompt '{BALL}' "
    "--out ball.mp4",
    "compare": "compare --profile wan-tiny.json --prompts 4 --tune-prompts 1 --speedups 2 --out runs/paper "
    f"--methods '{METHODS}'",
    "eval run": "eval run job.toml --out runs/job",
    "eval check": "eval check runs/job --min compute_fraction=0",
    "eval report": "eval report runs/job",
    "validate": "validate --model wan-tiny --out runs/validate --prompts 2",
}
SIZED = ("demo", "calibrate", "generate", "compare", "validate")  # take a size; a job has it in its file


@dataclass(frozen=True)
class SmallerVideos:
    """Options that make all videos smaller, for a trial of this program; without any, the real sizes."""

    options: str = ""

    def command(self, name: str) -> str:
        """The command as it is typed, without `galaxydit`."""
        return f"{CHAIN[name]} {self.options}".strip() if name in SIZED else CHAIN[name]

    @property
    def job(self) -> str:
        words = shlex.split(self.options)
        given = dict(zip(words[::2], words[1::2], strict=True))
        keys = [f"{option.removeprefix('--')} = {value}" for option, value in given.items()]
        changed = {key.split(" = ")[0] for key in keys}
        lines = [line for line in JOB.splitlines() if line.split(" = ")[0] not in changed or line == "steps = 25"]
        text = "\n".join([*keys, *lines, ""])
        return text.replace("steps = 25", f"steps = {int(given.get('--steps', 50)) // 2}")


def measure(
    names: Sequence[str], work: Path, out: Path, sizes: SmallerVideos, conditions: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Run the commands that `out` has not for these conditions, in the folder `work`; returns the content of `out`.

    A command that does not end with exit code 0 stops the measurement with CalledProcessError and is not recorded.
    """
    known = read(out) if out.exists() else {}
    rows: dict[str, Any] = dict(known.get("commands", {})) if known.get("conditions") == conditions else {}
    work.mkdir(parents=True, exist_ok=True)
    (work / "job.toml").write_text(sizes.job, encoding="utf-8")
    is_stale = False
    for name in names:
        command = sizes.command(name)
        if not is_stale and rows.get(name, {}).get("command") == command and (work / "done" / name).exists():
            logging.info("%s: kept, %.1f s", name, rows[name]["seconds"])
            continue
        is_stale = True
        logging.info("galaxydit %s", command)
        before, start = load_per_core(), time.perf_counter()
        subprocess.run([sys.executable, "-m", "galaxydit.cli", *shlex.split(command)], cwd=work, check=True)
        seconds = time.perf_counter() - start
        rows[name] = {"command": command, "seconds": round(seconds, 1), "load_before": before, "load": load_per_core()}
        (work / "done").mkdir(exist_ok=True)
        (work / "done" / name).touch()
        write_json(out, {"conditions": dict(conditions), "commands": rows})
        logging.info("%s: %.1f s", name, seconds)
    return {"conditions": conditions, "commands": rows}


def conditions_now(sizes: SmallerVideos) -> dict[str, Any]:
    """Processor, usable cores and versions, which the seconds depend on."""
    import torch

    from galaxydit.pipelines.conditions import package_versions, product_name

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "device": product_name(device),
        "processor": product_name(torch.device("cpu")),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": dict(package_versions()),
        "sizes": sizes.options,
    }


def commands_section(results: Path, page: Path) -> str:
    """The table of the pages: each command with its seconds, and the machine."""
    data = read(results / FILE)
    where, rows = data["conditions"], data["commands"]
    cells = [[f"`galaxydit {row['command']}`", _time(row["seconds"])] for row in rows.values()]
    total = _time(sum(row["seconds"] for row in rows.values()))
    table = Table(("command", "takes"), [*cells, ["all of them", total]]).markdown()
    return f"Measured on {where['device']}, {where['cores']} cores:\n\n{table}"


def _time(seconds: float) -> str:
    return f"{digits(seconds)} s" if seconds < 100 else f"{digits(seconds / 60)} min"


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / FILE, help="the JSON file")
    parser.add_argument("--work", type=Path, default=Path("runs/commands"), help="folder in which the commands run")
    parser.add_argument("--only", default=",".join(CHAIN), help="names of commands, with commas; by default all")
    parser.add_argument(
        "--sizes", default="", help="for a trial, such as '--width 32 --height 32 --frames 5 --steps 10'"
    )
    parser.add_argument("--again", action="store_true", help="forget what is measured, and empty --work")
    given = parser.parse_args()
    names, sizes = [name.strip() for name in given.only.split(",")], SmallerVideos(given.sizes)
    if unknown := [name for name in names if name not in CHAIN]:
        parser.error(f"--only {unknown[0]!r} is no command of the chain: choose of {', '.join(CHAIN)}")
    if given.again:
        given.out.unlink(missing_ok=True)
        shutil.rmtree(given.work, ignore_errors=True)
    try:
        measure(names, given.work.resolve(), given.out.resolve(), sizes, conditions_now(sizes))
    except subprocess.CalledProcessError as error:
        sys.exit(f"exit code {error.returncode}: mend this, and start again; what was measured is kept")


if __name__ == "__main__":
    main()
