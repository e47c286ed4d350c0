"""Run VBench or VBench-2.0 on one folder inside its own environment: `python driver.py FOLDER`.

The folder holds videos/, prompts.json and task.json, and gets `scores_eval_results.json` by upstream. Nothing here
imports this project.
"""

import json
import sys
from pathlib import Path

import shims

WRITTEN = "scores_eval_results.json"  # by upstream, for the name "scores"


def score(folder: Path) -> None:
    """Measure a folder's videos as its task.json says; write {dimension: [score, upstream's entries of the videos]}."""
    import torch

    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dimension = task["dimension"]
    videos = folder / "videos"
    shims.install(task["suite"], dimension)
    if task["static_filter"]:
        from static_filter import keep_static

        videos = keep_static(folder, device)
    if not any(videos.iterdir()):  # upstream fails without videos, and another share may hold some
        (folder / WRITTEN).write_text(json.dumps({dimension: [None, []]}), encoding="utf-8")
        return
    if task["suite"] == "vbench2":
        from vbench2 import VBench2 as Benchmark
    else:
        from vbench import VBench as Benchmark
    benchmark = Benchmark(device, str(folder / "prompts.json"), str(folder))
    try:
        with torch.no_grad():  # which some dimensions forget: scene would hold 20 GB of activations
            benchmark.evaluate(
                videos_path=str(videos),
                name="scores",
                prompt_list=task["prompts"] or [],
                dimension_list=[dimension],
                local=True,
                mode=task["mode"],
            )
    except ZeroDivisionError:
        if dimension != "color":
            raise
        # color divides by the number of videos that show the object; in a share there may be none.
        (folder / WRITTEN).write_text(json.dumps({dimension: [None, []]}), encoding="utf-8")
    if dimension == "subject_consistency":
        _add_frame_counts(folder / WRITTEN, dimension)


def _add_frame_counts(path: Path, dimension: str) -> None:
    """Add the compared frames that upstream averages over, as "cnt_per_video", to the file `path`."""
    from vbench.utils import load_video

    results = json.loads(path.read_text(encoding="utf-8"))
    for entry in results[dimension][1]:
        entry["cnt_per_video"] = len(load_video(entry["video_path"], return_tensor=False)) - 1
    path.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    score(Path(sys.argv[1]))
