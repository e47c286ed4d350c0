"""Draws the captions of protocol 2: `python -m galaxydit.eval.protocol_captions`.

They are apart from all captions that this repository has used: training's, because `draw_prompts` draws held-out ones;
those of calibration, tuning and earlier results; and those of wan-tiny's page and of published rows repeated on it.
"""

from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.eval.compared import RESULTS
from galaxydit.pipelines.wan_tiny.world import draw_prompts

SEED, COUNT = 2027, 64
FILE = RESULTS / "protocol" / "captions-2.txt"
USED_FILES = (
    WAN_TINY_PROMPTS,
    RESULTS / "protocol" / "captions.txt",
    *(RESULTS / "calibration-draws" / f"draw-{draw}.txt" for draw in range(1, 6)),
    RESULTS / "calibration-draws" / "test.txt",
)
USED_DRAWS = {0: 200, 1: 64, 2: 64, 3: 64, 4: 64, 5: 64, 6: 16, 66: 32, 700: 32}
"""Numbers of captions by seed: 0 of the commands, 4 of wan-tiny's page, 5 and 6 of its published rows, 66 of short
generations, 700 of drawn noise."""


def used_captions() -> set[str]:
    used: set[str] = set()
    for path in USED_FILES:
        used.update(read_prompts(path))
    for seed, count in USED_DRAWS.items():
        # Draws for results are apart from the captions of calibration, so they reach further.
        used.update(draw_prompts(count, seed), draw_prompts(count, seed, apart_from=read_prompts(WAN_TINY_PROMPTS)))
    return used


def protocol_captions() -> list[str]:
    return draw_prompts(COUNT, SEED, apart_from=used_captions())


if __name__ == "__main__":
    FILE.write_text("\n".join(protocol_captions()) + "\n", encoding="utf-8")
