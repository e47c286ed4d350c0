"""Keep the static videos for temporal flickering, like VBench's script `static_filter.py`, which its package lacks.

A video is static if its optical flow (RAFT, Teed and Deng 2020, arXiv 2003.12039) stays small between neighbouring
frames and between first and last. Thresholds are the script's (github.com/Vchitect/VBench).
"""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

KEPT = 5  # static videos of a prompt
LARGEST_SHARE = 0.02  # of the pixels, those with the largest flow
# pixels: a flow of 3 at a frame whose shorter side has 256
SHORTEST_SIDE = 256.0
LIMIT = 3.0
ALLOWED = 2 / 16  # of the frames may exceed the limit


def is_static(flows: Sequence[float], shorter_side: int, frames: int) -> bool:
    """Whether a video counts as static, by `_flows` in pixels, the shorter side in pixels and the number of frames."""
    limit = LIMIT * shorter_side / SHORTEST_SIDE
    allowed = round(ALLOWED * frames)
    # The last two flows are between the first frame and the last.
    moving = sum(flow > limit for flow in flows[:-2])
    return moving <= allowed and all(flow <= 2 * allowed * limit for flow in flows[-2:])


def keep_static(folder: Path, device: Any) -> Path:
    """Link the first five static videos of each prompt in `folder`/videos into the returned `folder`/static.

    First by file name, so `-10` before `-2`; numbered anew from 0; kept.json maps the new names to the old ones.
    """
    from easydict import EasyDict
    from vbench.dynamic_degree import DynamicDegree
    from vbench.utils import CACHE_DIR, get_prompt_from_filename

    settings = EasyDict(
        model=f"{CACHE_DIR}/raft_model/models/raft-things.pth", small=False, mixed_precision=False, alternate_corr=False
    )
    raft = DynamicDegree(settings, device)
    raft.extract_frame = lambda frames, interval: frames  # the filter looks at every frame
    target = folder / "static"
    target.mkdir()
    counts: dict[str, int] = defaultdict(int)
    kept = {}
    for path in sorted((folder / "videos").iterdir()):
        prompt = get_prompt_from_filename(str(path))
        if counts[prompt] < KEPT and _judge(raft, path):
            name = f"{prompt}-{counts[prompt]}.mp4"
            counts[prompt] += 1
            kept[name] = path.name
            try:
                os.symlink(path.resolve(), target / name)
            except OSError:
                shutil.copyfile(path, target / name)
    (folder / "kept.json").write_text(json.dumps(kept), encoding="utf-8")
    return target


def _judge(raft: Any, path: Path) -> bool:
    import torch

    with torch.no_grad():
        frames = raft.get_frames(str(path))
        return is_static(list(_flows(raft, frames)), min(frames[0].shape[-2:]), len(frames))


def _flows(raft: Any, frames: Sequence[Any]) -> Iterator[float]:
    """Mean flow in pixels of the fastest 2 % of the pixels between neighbours, first to last and last to first.

    `frames` are `(1, 3, height, width)` RGB from 0 to 255 in float32; `raft` is VBench's DynamicDegree.
    """
    from vbench.third_party.RAFT.core.utils_core.utils import InputPadder

    for first, second in [*pairwise(frames), (frames[0], frames[-1]), (frames[-1], frames[0])]:
        padded = InputPadder(first.shape).pad(first, second)
        _, flow = raft.model(*padded, iters=20, test_mode=True)
        lengths = flow[0].norm(dim=0).flatten()
        yield float(lengths.topk(int(LARGEST_SHARE * lengths.numel())).values.mean())
