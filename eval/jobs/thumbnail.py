"""Pictures that a report shows before its videos are loaded."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LONGEST_SIDE = 256  # pixels
QUALITY = 85


def encode_thumbnail(frame: NDArray[Any]) -> bytes:
    """A JPEG of one frame, `(height, width, 3)` in [0, 1], of at most 256 pixels a side."""
    picture = Image.fromarray(np.rint(frame * 255).astype(np.uint8))
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=QUALITY, subsampling=0)  # small coloured things keep their edges
    return file.getvalue()
