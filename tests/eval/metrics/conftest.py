import numpy as np
import pytest
from numpy.typing import NDArray


def make_pair(frames: int = 4, height: int = 40, width: int = 56, noise: float = 0.1) -> tuple[NDArray, NDArray]:
    """A smooth moving pattern with noise that grows from frame to frame, and without."""
    t, y, x, c = np.meshgrid(*(np.arange(n) for n in (frames, height, width, 3)), indexing="ij")
    reference = 0.5 + 0.4 * np.sin(0.3 * x + 0.2 * y + t + c)
    error = np.random.default_rng(0).normal(0, noise, reference.shape) * (t + 1) / frames
    return np.clip(reference + error, 0, 1).astype(np.float32), reference.astype(np.float32)


@pytest.fixture
def pair() -> tuple[NDArray, NDArray]:
    """Video and reference, `(4, 40, 56, 3)`."""
    return make_pair()


@pytest.fixture
def medium_pair() -> tuple[NDArray, NDArray]:
    """Sides that are neither even nor multiples of anything."""
    return make_pair(2, 45, 67)


@pytest.fixture
def large_pair() -> tuple[NDArray, NDArray]:
    """Large enough for five scales, with an odd side."""
    return make_pair(2, 176, 183)
