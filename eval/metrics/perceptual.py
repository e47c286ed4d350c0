"""Learned perceptual image patch similarity (LPIPS)."""

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from galaxydit.eval.metrics.metric import Metric, Video, frame_by_frame

WEIGHTS_URL = "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"


def _distance(frame: Video, other: Video) -> float:
    import torch

    with torch.inference_mode():
        return float(_network()(*(torch.from_numpy(image).permute(2, 0, 1)[None] for image in (frame, other))))


@cache
def _network() -> Any:
    from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

    return LearnedPerceptualImagePatchSimilarity(net_type="alex", normalize=True)


def _missing() -> str | None:
    if find_spec("torchvision") is None:
        return "torchvision is not installed: pip install 'galaxydit[lpips]'"
    import torch

    try:
        import torchvision  # noqa: F401
    except Exception as error:  # a build for another torch fails in its own ways
        return f"torchvision does not work ({error}): install the build that belongs to torch {torch.__version__}"
    # torchvision would download the file in the middle of a job.
    weights = Path(torch.hub.get_dir(), "checkpoints", WEIGHTS_URL.rpartition("/")[2])
    if weights.is_file():
        return None
    return f"AlexNet's weights are not there: put {WEIGHTS_URL} at {weights}"


LPIPS = Metric(
    name="lpips",
    title="LPIPS",
    high=math.inf,
    higher_is_better=False,
    function=frame_by_frame(_distance),
    missing=_missing,
    min_side=31,  # AlexNet's second pooling needs them
)
"""Learned perceptual distance, the mean over frames; from 0, which means equal, seldom above 1.

sum over five layers of AlexNet of the mean over positions of w . (f_x - f_y)^2, with features f of unit length in
each position and weights w fitted to human judgements (version 0.1), computed by torchmetrics at the video's own
size (Zhang et al. 2018, arXiv 1801.03924).
"""
