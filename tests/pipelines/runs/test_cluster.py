"""A cluster of this machine is closed to the network, and one that does not answer is given up."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.runs import OnRay, cluster, loopback

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


LISTENERS = """
import json, os, sys
import psutil
from galaxydit.pipelines.runs import OnRay
from galaxydit.pipelines.runs.loopback import asks_for_token

with OnRay(workers=1) as executor:
    ray = executor._ray
    worker_pid = ray.get(ray.remote(lambda: os.getpid()).remote())
    driver = psutil.Process()
    processes = [driver, *driver.children(recursive=True)]
    assert worker_pid in [process.pid for process in processes]
    found = [each.laddr.ip for process in processes for each in process.net_connections(kind="inet")
             if each.status == psutil.CONN_LISTEN]
    print(json.dumps([found, asks_for_token(), executor._cluster.gpus()]))
"""


def test_a_cluster_of_this_machine_listens_on_the_loopback_address_alone_and_asks_for_a_token() -> None:
    done = subprocess.run([sys.executable, "-c", LISTENERS], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found, asks, gpus = json.loads(done.stdout.splitlines()[-1])
    assert len(found) > 3
    assert {address.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}
    assert asks
    assert gpus == torch.cuda.device_count()


@pytest.mark.parametrize("token", [True, False])
def test_a_ray_that_cannot_be_kept_on_this_machine_is_refused_unless_it_asks_for_a_token(
    monkeypatch: pytest.MonkeyPatch, token: bool
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(loopback, "RESOLVER", "no_such_function")
    monkeypatch.setattr(cluster, "asks_for_token", lambda: token)
    monkeypatch.setattr("ray.init", lambda *_, **given: pytest.fail(f"started with {sorted(given)}"))
    if token:
        with pytest.raises(pytest.fail.Exception, match=r"started with (?!.*_node_ip_address)"):
            OnRay()
        return
    with pytest.raises(GalaxyDiTError, match=r"ray='local' is not allowed: .*all addresses.*; pass --ray ADDRESS"):
        OnRay()


def test_a_cluster_that_does_not_start_is_a_lost_connection_whatever_ray_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup")  # as ray._private.node does

    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(ConnectionError, match=r"cannot start a cluster .*node timed out.*; leave --ray out"):
        OnRay()


def test_a_cluster_that_listens_to_the_network_without_a_token_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda *_, **__: None)
    monkeypatch.setattr("ray.shutdown", lambda: ended.append(True))
    monkeypatch.setattr(cluster, "open_listeners", lambda: {"gcs_server on 10.0.0.1"})
    monkeypatch.setattr(cluster, "asks_for_token", lambda: False)
    with pytest.raises(GalaxyDiTError, match=r"gcs_server on 10\.0\.0\.1; pass --ray ADDRESS"):
        OnRay()
    assert ended


@pytest.mark.parametrize(
    ("address", "answer"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("::", False), ("10.0.0.1", False), ("", False)],
)
def test_loopback_addresses_are_known(address: str, answer: bool) -> None:
    assert loopback.is_loopback(address) is answer
