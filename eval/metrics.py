"""How far one video is from another one. Both are `(frames, height, width, 3)`, uint8 or floats in [0, 1]."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics.functional.image import structural_similarity_index_measure

from galaxydit.pipelines.video import to_float

WINDOW = 11  # pixels, the side of SSIM's Gaussian window


def psnr(video: NDArray[Any], reference: NDArray[Any]) -> float:
    """Peak signal-to-noise ratio in dB, higher is closer: 10 log10(1 / MSE), the MSE taken over all frames at once.

    From 0 for black against white to infinity for equal videos. The mean over the whole video comes before the
    logarithm, so that a few perfect frames cannot hide bad ones. Raises ValueError for bad or unequal shapes.
    """
    difference = np.subtract(*_pair(video, reference), dtype=np.float64)
    mse = float(np.mean(difference**2))
    return math.inf if mse == 0 else -10 * math.log10(mse)


def ssim(video: NDArray[Any], reference: NDArray[Any]) -> float:
    """Structural similarity, the mean over frames; from -1 to 1, which means equal.

    (2 m_x m_y + c1)(2 s_xy + c2) / ((m_x^2 + m_y^2 + c1)(s_x^2 + s_y^2 + c2)) with local means m and covariances s
    under a Gaussian window of 11 pixels and sigma 1.5, c1 = 0.01^2, c2 = 0.03^2, computed by torchmetrics (Wang et al.
    2004, doi 10.1109/TIP.2003.819861). Raises ValueError for bad or unequal shapes and for sides under 11 pixels.
    """
    video, reference = _pair(video, reference)
    if min(video.shape[1:3]) < WINDOW:
        raise ValueError(
            f"videos are {video.shape[1]}x{video.shape[2]}, allowed are sides from {WINDOW} pixels for SSIM"
        )
    # One frame at a time, because a batch of full-size frames needs gigabytes of intermediate maps.
    return float(np.mean([_frame_ssim(frame, other) for frame, other in zip(video, reference, strict=True)]))


def _frame_ssim(frame: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    _, similarity = structural_similarity_index_measure(
        _as_image(frame), _as_image(reference), data_range=1.0, return_full_image=True
    )
    # Only windows that lie inside the frame count, as in the paper: torchmetrics' own mean adds mirrored borders.
    border = WINDOW // 2
    return float(similarity[..., border:-border, border:-border].mean())


def _as_image(frame: NDArray[np.float32]) -> torch.Tensor:
    return torch.from_numpy(frame).permute(2, 0, 1)[None].double()


def _pair(video: NDArray[Any], reference: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if video.shape != reference.shape:
        raise ValueError(f"video has shape {video.shape} and reference {reference.shape}, allowed are equal shapes")
    return to_float(video, "video"), to_float(reference, "reference")
