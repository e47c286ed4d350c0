"""Sound as FLAC files."""

import os
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.flac import FULL_SCALE, encode_flac, levels_of, load_flac
from galaxydit.pipelines.own_files import NO_MARK, own_sound
from galaxydit.pipelines.video import AAC_RATES, Sound, load_sound, save_video


def stored(sound: Sound, folder: Path) -> Path:
    path = folder / "sound.flac"
    path.write_bytes(encode_flac(sound))
    return path


def random_sound(channels: int, rate: int = 24000) -> Sound:
    samples = np.random.default_rng(0).uniform(-1, 1, (channels, 5001)).astype(np.float32)
    samples[:, :4] = (-1, 1, 0, 2.0**-23)
    return Sound(samples, rate)


@pytest.mark.parametrize("rate", AAC_RATES)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_file_keeps_24_bits_of_each_sample(tmp_path: Path, channels: int, rate: int) -> None:
    sound = random_sound(channels, rate)
    read = load_flac(stored(sound, tmp_path))
    assert (read.rate, read.samples.shape, read.samples.dtype) == (rate, sound.samples.shape, np.float32)
    np.testing.assert_array_equal(levels_of(read), levels_of(sound))
    errors = np.abs(read.samples.astype(float) - sound.samples)
    assert errors.max() == 2.0**-23  # at 1, which is stored as the highest level
    assert errors[sound.samples < 1].max() <= 2.0**-24


def test_what_was_read_is_stored_in_the_same_bytes(tmp_path: Path) -> None:
    content = encode_flac(random_sound(2))
    assert encode_flac(load_flac(stored(random_sound(2), tmp_path))) == content


def test_levels_lie_in_24_bits() -> None:
    assert levels_of(random_sound(1))[0, :4].tolist() == [-FULL_SCALE, FULL_SCALE - 1, 0, 1]


@pytest.mark.parametrize("content", [b"", b"no FLAC", None])
def test_a_file_that_is_no_flac_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "sound.flac"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(GalaxyDiTError, match=r"path=.* expected a FLAC file that can be read"):
        load_flac(path)


def test_what_is_no_sound_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match=r"sound\.samples\.shape=.* expected \(1 or 2 channels, samples\)"):
        encode_flac(Sound(np.zeros((3, 4), np.float32), 24000))
    with pytest.raises(GalaxyDiTError, match=r"sound\.rate=1234"):
        encode_flac(Sound(np.zeros((1, 4), np.float32), 1234))
    with pytest.raises(GalaxyDiTError, match=r"dtype='int16' .* floats in \[-1, 1\]; divide integers by"):
        encode_flac(Sound(np.full((1, 4), 300, np.int16), 24000))
    with pytest.raises(GalaxyDiTError, match=r"samples='-0\.5 to 1\.5' .* floats in \[-1, 1\]; rescale or clip"):
        encode_flac(Sound(np.array([[-0.5, 1.5]], np.float32), 24000))


@pytest.mark.parametrize("damage", ["flipped", "cut", "another digest"])
def test_a_damaged_file_is_refused_whatever_is_still_decoded(tmp_path: Path, damage: str) -> None:
    path = stored(random_sound(1), tmp_path)
    content = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        places = [packet.pos for packet in container.demux() if packet.pos]
    if damage == "flipped":
        content[places[-1] + 100] ^= 1
    elif damage == "cut":
        content = content[: places[-1]]
    else:
        content[30] ^= 1  # of the digest
    path.write_bytes(content)
    with av.open(str(path)) as container:
        assert any(frame.samples for frame in container.decode(audio=0))
    with pytest.raises(GalaxyDiTError, match="expected a whole FLAC file, whose samples have the MD5 of its header"):
        load_flac(path)


@pytest.mark.parametrize("load", [load_flac, load_sound])
def test_a_fifo_is_refused_instead_of_waited_for(tmp_path: Path, load: Callable[[Path], Sound]) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(GalaxyDiTError, match="a file or a folder, not a FIFO"):
        load(tmp_path / "fifo")


def test_a_file_that_is_no_video_has_no_sound_to_load(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(b"no video")
    with pytest.raises(GalaxyDiTError, match=r"path=.* expected a video that can be read"):
        load_sound(path)


def test_commands_know_their_own_files(tmp_path: Path) -> None:
    assert own_sound(stored(random_sound(1), tmp_path)) == ""
    video = tmp_path / "video.mp4"
    save_video(np.zeros((2, 16, 16, 3), np.uint8), video, 8.0)
    assert own_sound(video) == NO_MARK
