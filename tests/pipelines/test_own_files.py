"""Which files commands may replace: those that galaxydit wrote, as it wrote them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.figures import drawn
from galaxydit.pipelines.own_files import (
    check_replaceable,
    own_csv,
    own_html,
    own_json,
    own_markdown,
    own_parquet,
    own_picture,
    own_video,
)
from galaxydit.pipelines.video import load_sound, save_video
from galaxydit.pipelines.written_by import (
    DEMO,
    LATENCY,
    png_mark,
    write_html,
    write_markdown,
    write_own_json,
)

COLUMNS = {"unit": "string", "prompt": "string", "seed": "int64"}
FRAMES = np.zeros((2, 32, 32, 3), np.uint8)
DATA = {"kept": (1, 2), 3: [0.1, None, "a \ud83d ü"]}


def _parquet(path: Path, metadata: dict[str, str] | None) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([{"unit": "a"}], pyarrow.schema({"unit": "string"}, metadata)), path)


def _figure(path: Path) -> None:
    with drawn(path, 2, 2) as figure:
        figure.add_subplot()


def _foreign_video(path: Path, comment: str = "holiday") -> None:
    with av.open(str(path), "w") as container:
        container.metadata["comment"] = comment
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(FRAMES[0], format="rgb24")))
        container.mux(stream.encode(None))


def _refusal(path: Path, form: Callable[[Path], str]) -> str:
    before = path.read_bytes()
    with pytest.raises(GalaxyDiTError) as refused:
        check_replaceable(path, "--out", form, force=False)
    assert "--force" in str(refused.value)
    assert repr(str(path)) in str(refused.value)
    check_replaceable(path, "--out", form, force=True)
    assert path.read_bytes() == before
    return str(refused.value)


OWN: dict[str, tuple[Callable[[Path], str], Callable[[Path], Any]]] = {
    "a.json": (own_json(DEMO), lambda path: write_own_json(path, DEMO, DATA)),
    "a.mp4": (own_video, lambda path: save_video(FRAMES, path, 8)),
    "lossless.mp4": (own_video, lambda path: save_video(FRAMES, path, 8, lossless=True)),
    "figure.png": (own_picture, _figure),
    "picture.png": (own_picture, lambda path: Image.fromarray(FRAMES[0]).save(path, pnginfo=png_mark())),
    "a.html": (own_html, lambda path: write_html(path, "<!doctype html><html><head></head></html>")),
    "a.md": (own_markdown, lambda path: write_markdown(path, "# Results\n" * 1000)),
    "a.csv": (own_csv(COLUMNS), lambda path: path.write_text(",".join([*COLUMNS][:9]) + "\r\n")),
    "a.parquet": (own_parquet, lambda path: _parquet(path, {"generator": "Written by galaxydit"})),
}
FOREIGN: dict[str, tuple[Callable[[Path], str], Callable[[Path], Any]]] = {
    "other.json": (own_json(DEMO), lambda path: path.write_text('{"kind": "experiments"}')),
    "list.json": (own_json(DEMO), lambda path: path.write_text("[1, 2]")),
    "kind.json": (own_json(DEMO), lambda path: write_own_json(path, LATENCY, DATA)),
    "no-digest.json": (own_json(DEMO), lambda path: path.write_text('{"kind": "galaxydit demo", "format": 1}')),
    "other.mp4": (own_video, _foreign_video),
    "other.png": (own_picture, lambda path: Figure().savefig(path, dpi=30)),
    "other.html": (own_html, lambda path: path.write_text("<html><head></head></html>")),
    "mentioned.html": (own_html, lambda path: path.write_text("<html><p>Written by galaxydit</p></html>")),
    "other.md": (own_markdown, lambda path: path.write_text("# My notes")),
    "other.csv": (own_csv(COLUMNS), lambda path: path.write_text("name,prompt\nb,c\n")),
    "shared.csv": (own_csv(COLUMNS), lambda path: path.write_text("unit,seed\nmetre,5\n")),
    "added.csv": (own_csv(COLUMNS), lambda path: path.write_text(f"{','.join(COLUMNS)},my rating\n")),
    "other.parquet": (own_parquet, lambda path: _parquet(path, None)),
}


@pytest.mark.parametrize("name", OWN)
def test_a_file_that_galaxydit_wrote_may_be_replaced(name: str, tmp_path: Path) -> None:
    form, write = OWN[name]
    check_replaceable(tmp_path / name, "--out", form, force=False)
    write(tmp_path / name)
    check_replaceable(tmp_path / name, "--out", form, force=False)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_others_is_kept_unless_forced(name: str, tmp_path: Path) -> None:
    form, write = FOREIGN[name]
    write(tmp_path / name)
    _refusal(tmp_path / name, form)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe nothing that anyone reads", b"#EXTM3U\nfile:///etc/passwd\n"])
@pytest.mark.parametrize("name", OWN)
def test_a_file_that_cannot_be_read_is_kept_unless_forced(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    _refusal(tmp_path / name, OWN[name][0])


@pytest.mark.parametrize("name", ["a.json", "a.mp4", "figure.png", "a.md", "a.parquet"])
def test_half_of_a_file_is_kept_unless_forced(name: str, tmp_path: Path) -> None:
    form, write = OWN[name]
    write(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    kept = 40 if name == "figure.png" else len(whole) // 2  # the mark of a PNG follows its header of 33 bytes
    (tmp_path / name).write_bytes(whole[:kept])
    _refusal(tmp_path / name, form)


def test_json_that_was_edited_or_is_of_another_format_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_own_json(path, DEMO, DATA)
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"kept": [1, 3]}))
    assert "digest does not belong" in _refusal(path, own_json(DEMO))
    path.write_text(json.dumps(data | {"format": 2}))
    assert "it has format 2, this version writes 1" in _refusal(path, own_json(DEMO))
    path.write_text(json.dumps(data, indent=4))  # formatted anew, nothing is lost
    check_replaceable(path, "--out", own_json(DEMO), force=False)


def test_notes_below_a_page_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    write_markdown(path, "# Results")
    path.write_text(path.read_text() + "\nMy own remarks.\n")
    _refusal(path, own_markdown)


def test_a_folder_is_refused_with_and_without_force(tmp_path: Path) -> None:
    with pytest.raises(GalaxyDiTError, match="expected a file"):
        check_replaceable(tmp_path, "--out", own_html, force=False)


def test_the_mark_leaves_equal_frames_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        save_video(FRAMES, tmp_path / name, 8)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    assert load_sound(tmp_path / "a.mp4") is None
