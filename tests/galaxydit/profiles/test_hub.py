"""Profiles from the Hub, on a server of this machine: found, missing, private, broken, offline; and uploaded."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import pytest

SHIPPED = (Path(str(files("galaxydit") / "profiles" / "wan-tiny.json"))).read_bytes()
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Enough of the Hub's interface: metadata and files of repositories, and the commits that it receives."""

    received: dict[str, bytes]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).received[self.path] = content
        answers = {"repos/create": {"url": f"{self._base}/me/mine", "name": "me/mine"}}
        if "preupload" in self.path:
            names = [each["path"] for each in json.loads(content)["files"]]
            answer = {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        elif "commit" in self.path:
            answer = {"commitUrl": f"{self._base}/me/mine/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
        else:
            answer = next((value for part, value in answers.items() if part in self.path), {})
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    @property
    def _base(self) -> str:
        return f"http://{self.headers['Host']}"

    def _answer(self, body: bool) -> None:
        if "/api/" in self.path:
            self._send(200, json.dumps({"id": "me/mine", "sha": COMMIT, "siblings": []}).encode(), {})
        elif "missing/" in self.path:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
        elif "private/" in self.path:
            self._send(401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"}, body)
        elif "empty/" in self.path:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, body)
        elif "other-revision" in self.path:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"}, body)
        else:
            content = b"{" if "broken/" in self.path else b" " * 5_000_000 if "huge/" in self.path else SHIPPED
            self._send(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{len(content)}"'}, body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], body: bool = True) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Hub.received = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run(code: str, tmp_path: Path, endpoint: str, **environment: str) -> str:
    """What `code` prints in a process of its own, because huggingface_hub reads the environment when it is imported."""
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


LOAD = """
    import sys
    from galaxydit.errors import GalaxyDiTError
    from galaxydit.profiles.profile_registry import load_profile
    for address in {addresses}:
        try:
            print(address, "->", load_profile(address).name)
        except GalaxyDiTError as error:
            print(address, "->", error)
"""


def test_each_answer_of_the_hub_has_its_error_and_the_cache_serves_offline(server: str, tmp_path: Path) -> None:
    expected = {
        "hf://one/good": "wan-tiny",
        "hf://one/good@v1": "wan-tiny",
        "hf://missing/one": "a repository that exists and that you may read",
        "hf://private/one": "log in with `hf auth login`",
        "hf://empty/one": "a repository with profile.json",
        "hf://one/good@other-revision": "a revision of the repository",
        "hf://broken/one": "is not JSON",
        "hf://huge/one": "at most 4000000 bytes",
        "hf://": "hf://owner/name",
        "hf://a/b/c": "hf://owner/name",
    }
    lines = run(LOAD.format(addresses=list(expected)), tmp_path, server).splitlines()
    for line, (address, text) in zip(lines, expected.items(), strict=True):
        assert line.startswith(f"{address} -> ")
        assert text in line
    addresses = ["hf://one/good", "hf://one/other"]
    known, unknown = run(LOAD.format(addresses=addresses), tmp_path, server, HF_HUB_OFFLINE="1").splitlines()
    assert known.endswith("-> wan-tiny")
    assert "fetched before" in unknown
    (gone,) = run(LOAD.format(addresses=["hf://one/good"]), tmp_path, "http://127.0.0.1:9").splitlines()
    assert gone.endswith("-> wan-tiny"), "the server is away, the cache is not"


def test_a_profile_is_pushed_with_its_card(server: str, tmp_path: Path) -> None:
    code = """
        from galaxydit.calibration.profile_tables import card_of
        from galaxydit.profiles.hub import push_to_hub
        from galaxydit.profiles.profile_registry import load_profile
        profile = load_profile("wan-tiny")
        print(push_to_hub(profile, "me/mine", card_of(profile, "wan-tiny", "me/mine")))
    """
    assert "me/mine" in run(code, tmp_path, server, HF_TOKEN="hf_test")
    (commit,) = (content.decode() for path, content in Hub.received.items() if "/commit/" in path)
    assert all(name in commit for name in ("profile.json", "README.md"))


def test_the_card_says_how_to_use_it_and_what_it_rests_on() -> None:
    from galaxydit.calibration.profile_tables import card_of
    from galaxydit.profiles.profile_registry import load_profile

    card = card_of(load_profile("wan-tiny"), "wan-tiny", "me/mine")
    for part in ('profile="hf://me/mine"', "verified by videos of", "| 2x |", "filtered_latent", "scheduler"):
        assert part in card
