"""Run VBench inside its own environment: `python driver.py TASKS.json`. It imports nothing of this project.

The file contains tasks {"dimension", "videos", "name", "output", "full_info", "mode", "prompts"}. A task that raises
writes `<output>/<name>_error.txt`; success shows in the file that VBench writes.
"""

import json
import sys
import traceback
from pathlib import Path


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        tasks = json.load(file)
    import torch
    from vbench import VBench

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for task in tasks:
        try:
            VBench(device, task["full_info"], task["output"]).evaluate(
                videos_path=task["videos"],
                name=task["name"],
                prompt_list=task["prompts"],
                dimension_list=[task["dimension"]],
                local=True,
                mode=task["mode"],
            )
        except Exception:  # the other tasks still run
            Path(task["output"], f"{task['name']}_error.txt").write_text(traceback.format_exc(), encoding="utf-8")


if __name__ == "__main__":
    main()
