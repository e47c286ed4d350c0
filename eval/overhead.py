"""Overhead of the plugin without reuse: `python -m galaxydit.eval.overhead`.

Plain and attached generations alternate, so that drift of the machine affects both. The proxy is read at every step,
and the threshold is too small for any reuse.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from diffusers import DiffusionPipeline
from rich.console import Console
from tqdm import tqdm

import galaxydit
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings, recommended_settings

NEVER_REUSED = galaxydit.GalaxyDiTConfig(galaxydit.Threshold(1e-12))


@dataclass(frozen=True)
class Overhead:
    """Denoise seconds of each pair of generations, plain and attached."""

    plain: tuple[float, ...]
    attached: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over pairs of attached / plain denoise seconds; 1.02 means two percent more."""
        return statistics.median(b / a for a, b in zip(self.plain, self.attached, strict=True))


def measure_overhead(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, *, show_progress: bool = False
) -> Overhead:
    """Time one pair of generations per prompt, after a warm-up; every second pair starts with the attached one.

    Raises ValueError if `prompts` is empty, and if anything was reused.
    """
    if not prompts:
        raise ValueError("prompts is empty: expected at least one prompt; pass one")
    short = replace(settings, steps=3)
    generate(pipe, prompts[0], short, 0)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for index, prompt in enumerate(tqdm(prompts, desc="overhead", disable=not show_progress)):
        for attached in (False, True) if index % 2 == 0 else (True, False):
            if attached:
                with galaxydit.accelerate(pipe, config=NEVER_REUSED) as acceleration:
                    generation = generate(pipe, prompt, settings, index)
                if acceleration.report.compute_fraction != 1:
                    raise ValueError(
                        f"compute_fraction={acceleration.report.compute_fraction}: expected 1, without reuse"
                    )
            else:
                generation = generate(pipe, prompt, settings, index)
            seconds[attached].append(generation.denoise_seconds)
    return Overhead(tuple(seconds[False]), tuple(seconds[True]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8, help="pairs of generations")
    parser.add_argument("--seed", type=int, default=3, help="draws the unseen prompts")
    arguments = parser.parse_args()
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    pipe = load_pipeline("wan-tiny")
    pipe.set_progress_bar_config(disable=True)
    overhead = measure_overhead(
        pipe, draw_prompts(arguments.pairs, arguments.seed), recommended_settings(pipe), show_progress=True
    )
    ratios = [b / a for a, b in zip(overhead.plain, overhead.attached, strict=True)]
    Console().print(
        f"denoise seconds attached / plain: median {overhead.ratio:.4f} of {len(ratios)} pairs "
        f"(from {min(ratios):.4f} to {max(ratios):.4f}), plain {statistics.median(overhead.plain):.2f} s",
        highlight=False,
    )


if __name__ == "__main__":
    main()
