"""Side-by-side videos of the first prompt: the plain video (without any method) and those of the best methods.

The best methods at a wanted speedup are those with the highest PSNR, mean over the scored prompts.
"""

from pathlib import Path

from galaxydit.eval.compare.bench import Bench
from galaxydit.eval.compare.comparison import Comparison
from galaxydit.eval.compare.equal_compute import AtSpeedup
from galaxydit.eval.compare.methods.galaxydit_methods import SHIPPED
from galaxydit.pipelines.video import display_scale, save_video, side_by_side

SHOWN = 4  # methods beside the plain video


def save_videos(comparison: Comparison, bench: Bench, folder: Path) -> list[Path]:
    """Write one mp4 to `folder` for each wanted speedup that any method reaches, and return the paths.

    Each mp4 shows the plain video beside those of the best methods at the speedup, at most SHOWN (4). The PSNR of a
    method at a speedup is that of one setting, or is interpolated between a slower and a faster setting; the video of
    the setting with the nearest speedup is shown. `bench` reads the videos from its store, or makes them.
    """
    case = comparison.plan.cases[0]
    plain = bench.frames(bench.plain_unit(case))
    scale = display_scale(plain)
    contenders = {contender.method.name: contender for contender in comparison.contenders}
    paths = []
    for speedup in comparison.plan.speedups:
        shown = shown_at([result for result in comparison.at_speedups if result.speedup == speedup])
        if not shown:
            continue
        frames, labels = [plain], ["plain"]
        for result in shown:
            contender, settings = contenders[result.method], zip(result.settings, result.speedups, strict=True)
            setting, nearest = min(settings, key=lambda pair: abs(pair[1] - speedup))
            unit = bench.sample_unit(contender.method, contender.calibration, setting, case, keep=True)
            frames.append(bench.frames(unit))
            labels.append(f"{result.method}, {nearest:.2f}x")
        paths.append(folder / f"side-by-side-{speedup:g}x.mp4")
        save_video(side_by_side(frames, labels, scale=scale), paths[-1], bench.settings.fps)
    return paths


def shown_at(results: list[AtSpeedup]) -> list[AtSpeedup]:
    """The results to show, highest PSNR first: at most SHOWN (4) that reach the speedup; empty if none does.

    `results` are those of all methods at one speedup, also highest PSNR first (as `compare_at` returns them). The last
    place goes to this project's default method if it reaches the speedup but is not among the best.
    """
    reached = [result for result in results if result.psnr is not None]
    ours = [result for result in reached[SHOWN:] if result.method == SHIPPED]
    return reached[: SHOWN - len(ours)] + ours
