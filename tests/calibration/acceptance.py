"""Measure a calibration end to end, on wan-tiny or another model: `python tests/calibration/acceptance.py`.

1. Its seconds, in units of uncached generations.
2. Whether a calibration that is killed with SIGKILL gives the same profile as one that is not.
3. The proxy that each half of the samples chooses.
4. Compute fraction, PSNR and denoise speedup of every target on held-out prompts and seeds.
"""

import argparse
import json
import logging
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import galaxydit
from galaxydit.calibration.calibration import calibrate
from galaxydit.calibration.html_report import write_report
from galaxydit.calibration.rank import choose_proxy, rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.samples import read_prompts
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.registry import load_profile
from galaxydit.validation import parse

logger = logging.getLogger(__name__)

SPEEDUPS = (1.5, 2.0, 2.5, 3.0)
PROMPTS = Path(__file__).parents[2] / "calibration" / "prompts" / "wan-tiny.txt"
HELD_OUT_SEED = 777  # of the prompts and generations of part 4


def calibrate_command(arguments: argparse.Namespace, out: Path) -> list[str]:
    """The command line of one calibration."""
    options = ["--model", arguments.model, "--prompts", str(arguments.prompts), "--out", str(out)]
    return [sys.executable, "-m", "galaxydit.cli", "calibrate", *options, "--samples", str(arguments.samples)]


def calibrate_and_time(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Calibrate in this process; returns seconds of its stages, and those before verification in plain generations."""
    pipe = load_pipeline(arguments.model)
    pipe.set_progress_bar_config(disable=True)
    prompts = read_prompts(arguments.prompts)
    settings = recommended_settings(pipe)
    generate(pipe, prompts[0], settings, 0)
    # Timed before and after, because the machine's speed drifts.
    plain = [generate(pipe, prompt, settings, 0).end_to_end_seconds for prompt in prompts[:3]]
    stamps: dict[str, float] = {}

    def stamp(stage: str, done: int, total: int) -> None:
        stamps.setdefault(stage, time.perf_counter())

    start = time.perf_counter()
    calibration = calibrate(
        pipe,
        prompts,
        resume_dir=out.with_suffix(".parts"),
        samples=arguments.samples,
        name=out.stem,
        progress=stamp,
    )
    end = time.perf_counter()
    plain += [generate(pipe, prompt, settings, 0).end_to_end_seconds for prompt in prompts[:3]]
    calibration.profile.save(out)
    write_report(calibration, out.parent / "report")
    before = stamps["verifying"] - start
    return {
        "plain_generation_seconds": median(plain),
        "seconds_before_verification": before,
        "seconds_of_planning": stamps["verifying"] - stamps["planning"],
        "seconds_of_verification": end - stamps["verifying"],
        "full_generations_before_verification": before / median(plain),
    }


def run_with_kills(command: list[str], out: Path, kills: int, longest: float) -> list[float]:
    """Kill a command after random times, `kills` times, then let it finish; returns the times in seconds."""
    rng, times = random.Random(0), []
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(rng.uniform(0.2, 1.0) * longest)
        try:
            process.wait(times[-1])
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if out.exists():
            break
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [round(seconds, 1) for seconds in times]


def choices_of_halves(parts: Path) -> dict[str, str]:
    """The proxies that all samples, and halves of them, choose."""
    files = sorted((parts / "units").glob("sample-*.json"))
    recordings = [parse(Recording, json.loads(file.read_text())["result"]["recording"], "recording") for file in files]
    sets = {
        "all": recordings,
        "even": recordings[0::2],
        "odd": recordings[1::2],
        "first half": recordings[: len(recordings) // 2],
        "second half": recordings[len(recordings) // 2 :],
    }
    return {name: choose_proxy(rank_proxies(chosen))[0] for name, chosen in sets.items()}


def measure_speedups(model: str, profile: Path, count: int) -> list[dict[str, Any]]:
    """Compute fraction, PSNR and denoise speedup of the profile on held-out prompts; PSNR of fewer uncached steps."""
    pipe = load_pipeline(model)
    pipe.set_progress_bar_config(disable=True)
    settings, rows = recommended_settings(pipe), []
    for index, prompt in enumerate(draw_prompts(count, HELD_OUT_SEED, held_out=True)):
        seed = HELD_OUT_SEED + index
        plain = generate(pipe, prompt, settings, seed)
        for speedup in SPEEDUPS:
            with galaxydit.accelerate(pipe, speedup=speedup, profile=profile) as acceleration:
                fast = generate(pipe, prompt, settings, seed)
            fewer = generate(pipe, prompt, replace(settings, steps=round((settings.steps or 50) / speedup)), seed)
            rows.append(
                {
                    "speedup": speedup,
                    "prompt": prompt,
                    "fraction": acceleration.report.compute_fraction,
                    "denoise_speedup": plain.denoise_seconds / fast.denoise_seconds,
                    "psnr_db": psnr(fast.frames, plain.frames),
                    "fewer_steps_psnr_db": psnr(fewer.frames, plain.frames),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wan-tiny")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--held-out", type=int, default=8, help="held-out prompts of part 4")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("runs/calibration-acceptance"))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments.out.mkdir(parents=True, exist_ok=True)
    whole, killed = arguments.out / "calibrated.json", arguments.out / "killed" / "calibrated.json"
    result: dict[str, Any] = {}

    result |= calibrate_and_time(arguments, whole)
    took = result["seconds_before_verification"] + result["seconds_of_verification"]
    times = run_with_kills(calibrate_command(arguments, killed), killed, arguments.kills, took * 0.6)
    result["killed_after_seconds"] = times
    result["killed_gives_the_same_profile"] = load_profile(whole).identity == load_profile(killed).identity
    result["proxies"] = choices_of_halves(whole.with_suffix(".parts"))
    rows = measure_speedups(arguments.model, whole, arguments.held_out)
    for speedup in SPEEDUPS:
        own = [row for row in rows if row["speedup"] == speedup]
        result[f"speedup {speedup:g}"] = {
            "fractions": sorted({round(row["fraction"], 4) for row in own}),
            "off_target": max(abs(row["fraction"] * speedup - 1) for row in own),
            **{name: sum(row[name] for row in own) / len(own) for name in list(own[0])[3:]},
        }
    text = json.dumps(result, indent=1)
    (arguments.out / "acceptance.json").write_text(text + "\n")
    logger.info(text)


if __name__ == "__main__":
    main()
