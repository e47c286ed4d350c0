"""A picture of a sound: its mel spectrogram."""

from io import BytesIO

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image

from galaxydit.eval.metrics.log_mel import FLOOR, log_mel
from galaxydit.pipelines.flac import FULL_SCALE, levels_of
from galaxydit.pipelines.video import Sound

WIDEST = 1024  # pixels
QUIETEST = -80.0  # dB, black; 0 dB is the brightest


def encode_spectrogram(sound: Sound) -> bytes:
    """A PNG, low frequencies at the bottom: 80 bands high, a window of time wide, at most 1024 pixels."""
    levels = mixed_log_mel(sound)
    shade = np.clip(1 - levels / QUIETEST, 0, 1)
    picture = Image.fromarray(np.rint(255 * shade[::-1]).astype(np.uint8))
    if picture.width > WIDEST:
        picture = picture.resize((WIDEST, picture.height), Image.Resampling.BOX)
    picture.putpalette(np.rint(255 * colormaps["magma"](range(256))[:, :3]).astype(np.uint8).tobytes())
    file = BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def mixed_log_mel(sound: Sound) -> NDArray[np.float64]:
    """Levels `(bands, times)` in dB, at least -100, of the mean power of the channels."""
    power = 10 ** (log_mel(levels_of(sound) / FULL_SCALE, sound.rate) / 10)
    return np.asarray(10 * np.log10(np.maximum(power.mean(axis=0), FLOOR)))


def rms_of_tenths(sound: Sound) -> NDArray[np.float64]:
    """Root mean square over the channels of each tenth of a second, `(tenths,)`; the last one may be shorter."""
    samples = levels_of(sound) / FULL_SCALE
    starts = np.arange(0, samples.shape[1], max(1, round(sound.rate / 10)))
    sums = np.add.reduceat((samples**2).mean(axis=0), starts)
    lengths = np.diff([*starts, samples.shape[1]])
    return np.asarray(np.sqrt(sums / lengths))
