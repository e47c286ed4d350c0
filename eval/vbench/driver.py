"""Run VBench inside its own environment: `python driver.py FOLDER...`. It imports nothing of this project.

Each folder is named after a dimension and holds its videos/, prompts.json and task.json. If VBench raises, the driver
writes `scores_error.txt` there; success shows in the file that VBench writes, `scores_eval_results.json`.
"""

import json
import sys
import traceback
from pathlib import Path


def main() -> None:
    import torch
    from vbench import VBench

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for folder in map(Path, sys.argv[1:]):
        task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        try:
            VBench(device, str(folder / "prompts.json"), str(folder)).evaluate(
                videos_path=str(folder / "videos"),
                name="scores",
                prompt_list=task["prompts"] or [],
                dimension_list=[folder.name],
                local=True,
                mode=task["mode"],
            )
        except Exception:  # the other dimensions still run
            (folder / "scores_error.txt").write_text(traceback.format_exc(), encoding="utf-8")


if __name__ == "__main__":
    main()
