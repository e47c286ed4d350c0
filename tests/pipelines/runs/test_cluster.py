"""Joining a cluster that does not answer."""

import socket
from collections.abc import Iterator

import pytest

from galaxydit.pipelines.runs import OnRay, cluster

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'galaxydit[ray]'")


@pytest.fixture
def mute() -> Iterator[str]:
    """An address that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_that_does_not_answer_is_given_up(mute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_WITHIN", 3.0)
    with pytest.raises(ConnectionError, match=f"ray='{mute}': no cluster answered there within 3 s; start one with"):
        OnRay(mute)
    assert not ray.is_initialized()
