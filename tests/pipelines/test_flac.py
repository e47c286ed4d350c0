"""Sound as FLAC files."""

from pathlib import Path

import numpy as np
import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.flac import FULL_SCALE, encode_flac, levels_of, load_flac
from galaxydit.pipelines.own_files import NO_MARK, own_sound
from galaxydit.pipelines.video import AAC_RATES, Sound, save_video


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


def test_commands_know_their_own_files(tmp_path: Path) -> None:
    assert own_sound(stored(random_sound(1), tmp_path)) == ""
    video = tmp_path / "video.mp4"
    save_video(np.zeros((2, 16, 16, 3), np.uint8), video, 8.0)
    assert own_sound(video) == NO_MARK
