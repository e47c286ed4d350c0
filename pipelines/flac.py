"""The sound of a video as a FLAC file, lossless at 24 bits.

FLAC holds whole numbers. A level of 24 bits is 2^-23 of full scale, so storing moves a sample by at most half a level,
which is float32's own precision near full scale (1 itself becomes the highest level, 1 - 2^-23). Metrics measure the
stored levels, so that a file gives their values again.
"""

import hashlib
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import refusal
from galaxydit.files import check_file_kind
from galaxydit.pipelines.frames import address
from galaxydit.pipelines.video import LAYOUTS, Sound, check_sound
from galaxydit.pipelines.written_by import MARK

FULL_SCALE = 2**23  # levels
MD5 = slice(18, 34)  # bytes of STREAMINFO with the digest of all samples (RFC 9639, 8.2)
UNUSED_BITS = 8  # FFmpeg keeps levels of 24 bits in the upper bits of 32


def levels_of(sound: Sound, name: str = "sound") -> NDArray[np.int32]:
    """The stored levels `(channels, samples)`, from -2^23 to 2^23 - 1. Raises GalaxyDiTError for no sound."""
    samples = check_sound(sound, name).samples.astype(np.float64)
    levels = np.rint(samples * FULL_SCALE).clip(-FULL_SCALE, FULL_SCALE - 1)
    return levels.astype(np.int32)


def encode_flac(sound: Sound) -> bytes:
    """The bytes of a FLAC file of 24 bits; equal sounds give equal bytes. Raises GalaxyDiTError for no sound."""
    import av

    levels = levels_of(sound)
    layout = LAYOUTS[len(levels)]
    file = BytesIO()
    interleaved = np.ascontiguousarray(levels.T).reshape(1, -1) << UNUSED_BITS
    with av.open(file, "w", format="flac") as container:
        container.metadata["comment"] = MARK
        track = container.add_stream("flac", rate=sound.rate, layout=layout)
        track.format = "s32"  # by default 16 bits
        frame = av.AudioFrame.from_ndarray(interleaved, format="s32", layout=layout)
        frame.sample_rate = sound.rate
        container.mux(track.encode(frame))
        container.mux(track.encode(None))
    return file.getvalue()


def load_flac(path: str | Path) -> Sound:
    """The sound in a file of `encode_flac`, whose levels float32 holds exactly. Raises GalaxyDiTError for others, and
    for a damaged one."""
    import av

    check_file_kind("path", path)
    try:
        with av.open(address(path), format="flac") as container:
            track = container.streams.audio[0]
            channels = track.codec_context.channels
            rate = track.rate
            digest = (track.codec_context.extradata or b"")[MD5]
            interleaved = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(track)])
    except (av.FFmpegError, IndexError, ValueError) as error:
        expected = f"a FLAC file that can be read ({error})"
        raise refusal("path", str(path), expected, "check the path, or make the sound again") from error
    if interleaved.dtype != np.int32:
        raise refusal("path", str(path), "a FLAC file of 24 bits", "pass one that galaxydit wrote")
    samples = interleaved >> UNUSED_BITS
    # FFmpeg leaves out frames that are damaged or missing.
    if _md5(samples) != digest:
        expected = "a whole FLAC file, whose samples have the MD5 of its header"
        raise refusal("path", str(path), expected, "copy it again, or make the sound again")
    levels = samples.reshape(-1, channels).T
    return Sound(levels.astype(np.float32) / np.float32(FULL_SCALE), rate)


def _md5(samples: NDArray[np.int32]) -> bytes:
    """MD5 of interleaved samples in 24 bits, the lowest byte first, as in the header of a FLAC file."""
    lowest_bytes = samples.astype("<i4").reshape(-1, 1).view(np.uint8)[:, :3]
    return hashlib.md5(lowest_bytes.tobytes(), usedforsecurity=False).digest()
