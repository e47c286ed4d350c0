"""From how many steps on 2x without a profile beats plain steps of equal cost on wan-tiny.

`python -m galaxydit.eval.short_generations --out DIR` generates each caption plain in 8 to 36 steps, and at half of the
cost by the general schedule and by plain steps at the noise levels of its full steps. Both are compared with the plain
video of all steps, in float32. Run it again when wan-tiny or the general schedule changes: `GENERAL_FEW_STEPS` must
not be below the steps where the schedule is behind beyond chance, nor reach those where it is ahead.
It resumes an interrupted run.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from galaxydit.calibration.bootstrap import interval
from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.errors import check_count
from galaxydit.eval.measured_rows import resumed
from galaxydit.eval.methods.fewer_steps import at_noise_levels
from galaxydit.files import write_json
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.trial import accelerated, generate_with
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.policies.policy import Observation
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.configure import configure
from galaxydit.request import SCHEDULE, Request

SPEEDUP, SEED = 2.0, 66
STEPS = (26, 30, 24, 28, 20, 22, 16, 12, 8, 36)  # those near the constant first
OURS, SCHEDULED = "general schedule", "plain at scheduled levels"
TEST_PROMPTS = Path(__file__).parent / "results" / "protocol" / "captions.txt"

Rows = Mapping[str, Mapping[str, Mapping[str, float]]]
"""PSNR in dB by steps, by caption, by method; beside them the compute fraction of the general schedule."""


def measure_caption(pipe: Any, prompt: str, steps: int, seed: int) -> dict[str, float]:
    """The PSNRs of one caption in `steps` steps, against the plain video of so many steps."""
    settings = replace(recommended_settings(pipe), steps=steps)
    config = replace(configure(pipe, Request(speedup=SPEEDUP, policy=SCHEDULE), None, SPEEDUP), few_steps=0)
    schedule, limits = config.policy, config.limits
    assert isinstance(schedule, Schedule)

    def planned(levels: Sequence[float]) -> tuple[int, ...]:
        return schedule.place(Observation(0, steps, None, False, sigmas=tuple(levels), limits=limits))

    plain = generate_with(pipe, prompt, settings, seed)
    ours = generate_with(pipe, prompt, settings, seed, partial(accelerated, config=config))
    assert ours.report is not None
    full = ours.report.steps_run - ours.report.reused_steps
    at_levels = partial(at_noise_levels, of=steps, kept=planned)
    videos = {OURS: ours, SCHEDULED: generate_with(pipe, prompt, replace(settings, steps=full), seed, at_levels)}
    psnrs = {name: round(psnr(video.frames, plain.frames), 4) for name, video in videos.items()}
    return psnrs | {"compute_fraction": round(ours.report.compute_fraction, 4)}


def fewest_ahead(rows: Rows) -> int | None:
    """The fewest steps from which on the general schedule is ahead of plain steps at its levels, in the mean of each
    measured number of steps; None if it is behind at the largest."""
    fewest = None
    for steps in sorted(map(int, rows), reverse=True):
        if not (ahead := differences(rows[str(steps)])) or fmean(ahead) <= 0:
            break
        fewest = steps
    return fewest


def differences(captions: Mapping[str, Mapping[str, float]]) -> list[float]:
    """PSNR of the general schedule less that of plain steps at its levels, in dB, one for each caption."""
    return [row[OURS] - row[SCHEDULED] for row in captions.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--out", type=Path, required=True, help="folder of results.json, written after each caption")
    given = parser.parse_args()
    check_count("--prompts", given.prompts, 1)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe, path = load_pipeline("wan-tiny", dtype=torch.float32), given.out / "results.json"
    pipe.set_progress_bar_config(disable=True)
    apart = {*read_prompts(WAN_TINY_PROMPTS), *read_prompts(TEST_PROMPTS)}
    captions = draw_prompts(given.prompts, SEED, apart_from=apart)
    content: dict[str, Any] = {"psnr": {}, "speedup": SPEEDUP, "dtype": "float32"} | resumed(path, pipe)
    rows = content["psnr"]
    for steps in given.steps:
        done = rows.setdefault(str(steps), {})
        for seed, prompt in enumerate(captions):
            if prompt not in done:
                done[prompt] = measure_caption(pipe, prompt, steps, seed)
                write_json(path, content | {"fewest_ahead": fewest_ahead(rows)})
        ahead = differences(done)
        logging.info("%d steps, %d captions: %+.2f dB %s", steps, len(done), fmean(ahead), interval(ahead))


if __name__ == "__main__":
    main()
