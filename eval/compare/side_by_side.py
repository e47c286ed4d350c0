"""Side-by-side videos of the first prompt: the plain video and those of the best methods at each speedup."""

from pathlib import Path

from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.compare.equal_compute import AtSpeedup
from galaxydit.eval.compare.plan import video_name
from galaxydit.eval.methods.galaxydit_methods import SHIPPED
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.video import display_scale, load_video, save_video, side_by_side, to_float

SHOWN = 4  # methods beside the plain video


def save_videos(comparison: Comparison, folder: Path) -> list[Path]:
    """Write one mp4 for each wanted speedup that any method reaches to the comparison's folder, and return the paths.

    Of a method whose PSNR is interpolated, the video of the setting with the nearest speedup is shown. Under each
    stands the PSNR of this video, and the mean seconds of denoising over all scored videos. Without av no video is
    kept, and none is written.
    """
    if not comparison.plain_video:
        return []
    plain = load_video(folder / comparison.plain_video)
    reference = to_float(plain)
    paths = []
    for speedup in comparison.plan.speedups:
        shown = shown_at(comparison.at(speedup))
        if not shown:
            continue
        frames, labels, below = [plain], ["plain"], [""]
        for result in shown:
            settings = zip(result.settings, result.speedups, strict=True)
            setting, nearest = min(settings, key=lambda pair: abs(pair[1] - speedup))
            row = next(row for row in comparison.rows if (row.method, row.setting) == (result.method, setting))
            frames.append(load_video(folder / row.video))
            labels.append(f"{result.method}, {nearest:.2f}x")
            shown_psnr = psnr(to_float(frames[-1]), reference)
            below.append(f"{shown_psnr:.1f} dB, {marked(f'{row.denoise_seconds:.1f} s', row.disturbance)}")
            plain_seconds = f"{row.denoise_seconds * row.denoise_speedup:.1f} s"
            below[0] = marked(plain_seconds, row.disturbance)
        paths.append(folder / video_name(speedup))
        fps = comparison.conditions["settings"]["fps"]
        save_video(side_by_side(frames, labels, below=below, scale=display_scale(plain)), paths[-1], fps)
    return paths


def shown_at(results: list[AtSpeedup]) -> list[AtSpeedup]:
    """The results to show of one speedup, given and returned highest PSNR first.

    The last place goes to this project's default method if it reaches the speedup but is not among the best.
    """
    reached = [result for result in results if result.psnr is not None]
    ours = [result for result in reached[SHOWN:] if result.method == SHIPPED]
    return reached[: SHOWN - len(ours)] + ours
