"""Downloads from a server on this machine, which counts, cuts off and changes its files."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.suite import Dimension, Weights
from galaxydit.eval.published.vbench import DIMENSIONS, DINO_CODE, RAFT
from galaxydit.eval.vbench.fetch import download, fetch

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """Files by path; `cut` answers end after half of what they promise; `named` are SHA-256 as the hub names them."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            etag = f'"{hashlib.md5(content).hexdigest()}"'
            wanted = self.headers.get("Range") if self.headers.get("If-Range") == etag else None
            state.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted else 200)
            self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(content) - start))
            if self.path in state.named:
                self.send_header("X-Linked-Etag", f'"{state.named[self.path]}"')
            self.end_headers()
            if state.cut:
                state.cut -= 1
                self.wfile.write(content[start : (start + len(content)) // 2])
                self.close_connection = True
                return
            self.wfile.write(content[start:])

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=running.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{running.server_port}"
    yield state
    running.shutdown()
    running.server_close()


def silent(*_: object) -> None:
    pass


def test_a_file_is_downloaded_with_progress_and_its_hash_is_kept(server, tmp_path):
    server.files["/a.pth"] = CONTENT
    told = []
    place = download(f"{server.url}/a.pth", tmp_path / "models" / "a.pth", SHA256[:8], lambda *now: told.append(now))
    assert place.read_bytes() == CONTENT
    assert told[-1] == ("a.pth", len(CONTENT), len(CONTENT))
    assert (place.parent / "a.pth.sha256").read_text() == f"{SHA256}  a.pth\n"
    assert sorted(path.name for path in place.parent.iterdir()) == ["a.pth", "a.pth.sha256"]


def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path):
    server.files["/a.pth"], server.cut = CONTENT, 1
    with pytest.raises(OSError, match="the connection ended after 128000 of 256000 bytes"):
        download(f"{server.url}/a.pth", tmp_path / "a.pth", SHA256, silent)
    assert not (tmp_path / "a.pth").exists()
    assert download(f"{server.url}/a.pth", tmp_path / "a.pth", SHA256, silent).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=128000-"]


def test_a_file_that_the_server_has_changed_meanwhile_is_downloaded_anew(server, tmp_path):
    server.files["/a.pth"], server.cut = CONTENT, 1
    with pytest.raises(OSError, match="the connection ended"):
        download(f"{server.url}/a.pth", tmp_path / "a.pth", "", silent)
    server.files["/a.pth"] = CONTENT[::-1]
    assert download(f"{server.url}/a.pth", tmp_path / "a.pth", "", silent).read_bytes() == CONTENT[::-1]


def test_a_complete_part_is_not_asked_for_again_in_vain(server, tmp_path):
    server.files["/a.pth"] = CONTENT
    (tmp_path / "a.pth.part").write_bytes(CONTENT)
    (tmp_path / "a.pth.part.etag").write_text(f'"{hashlib.md5(CONTENT).hexdigest()}"')
    assert download(f"{server.url}/a.pth", tmp_path / "a.pth", SHA256, silent).read_bytes() == CONTENT


@pytest.mark.parametrize("named", [False, True], ids=["published", "named by the hub"])
def test_a_file_of_another_content_is_refused_and_not_kept(server, tmp_path, named):
    server.files["/a.pth"] = CONTENT
    expected = "0" * 64
    server.named = {"/a.pth": expected} if named else {}
    with pytest.raises(GalaxyDiTError, match=f"has the SHA-256 {SHA256}: expected {expected}"):
        download(f"{server.url}/a.pth", tmp_path / "a.pth", "" if named else expected, silent)
    assert not list(tmp_path.glob("a.pth*"))[1:]
    assert not (tmp_path / "a.pth").exists()


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return buffer.getvalue()


def test_files_in_archives_come_out_where_upstream_looks(server, tmp_path):
    server.files["/models.zip"] = archive({"models/raft-things.pth": b"raft", "models/other.pth": b"other"})
    server.files["/main.zip"] = archive({"dino-main/hubconf.py": b"code", "dino-main/folder/a.py": b"more"})
    raft = Weights(RAFT.folder, "", "", name=RAFT.name, archive=f"{server.url}/models.zip", member=RAFT.member)
    dino = Weights(DINO_CODE.folder, "", "", name=DINO_CODE.name, archive=f"{server.url}/main.zip", member="*")
    dimension = Dimension("dynamic_degree", "", weights=(raft,))
    written = fetch([dimension], [dino], tmp_path, silent)
    assert written == [tmp_path / raft.path, tmp_path / dino.path]
    assert (tmp_path / "raft_model" / "models" / "raft-things.pth").read_bytes() == b"raft"
    assert (tmp_path / "dino_model" / "facebookresearch_dino_main" / "folder" / "a.py").read_bytes() == b"more"
    assert not list(tmp_path.rglob("*.zip"))
    assert fetch([dimension], [dino], tmp_path, silent) == [], "files that are there stay"


def test_without_a_network_every_missing_file_is_named_with_its_place_and_source(tmp_path):
    nowhere = Weights("models", "http://127.0.0.1:9/a.pth", "")
    other = Weights("models", "http://127.0.0.1:9/b.pth", "")
    with pytest.raises(GalaxyDiTError) as error:
        fetch([Dimension("one", "", weights=(nowhere, other))], [], tmp_path, silent)
    for name in ("a", "b"):
        assert f"{tmp_path / 'models' / name}.pth from http://127.0.0.1:9/{name}.pth" in str(error.value)


def test_a_file_that_the_server_does_not_have_is_named(server, tmp_path):
    with pytest.raises(GalaxyDiTError, match=r"a\.pth cannot be downloaded \(HTTP Error 404"):
        fetch([Dimension("one", "", weights=(Weights("models", f"{server.url}/a.pth", ""),))], [], tmp_path, silent)


def test_every_model_file_has_a_licence_and_a_source():
    files = {weights for dimension in DIMENSIONS.values() for weights in dimension.weights}
    assert len(files) == 13
    for weights in files:
        assert weights.licence
        assert weights.url.startswith("https://")
        assert Path(weights.path).name
