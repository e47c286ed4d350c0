"""The Ray cluster of a run: started or joined, watched while the run waits for it, and ended without leftovers."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError, refusal, short_reason
from galaxydit.pipelines.runs.loopback import (
    asks_for_token,
    can_stay_on_loopback,
    open_listeners,
    prepare_token,
    staying_on_loopback,
)

OBJECT_STORE = 200 * 2**20  # bytes; units and records are small, files go to the store
ANSWER_WITHIN = 60.0  # seconds, for a cluster to answer before it is joined
OUTAGE = 30.0  # seconds without the head's answer after which a joined cluster counts as lost; Ray gives up after 60
LOOK_EVERY = 1.0  # seconds
END_WITHIN = 15.0  # seconds for the processes of a cluster to end
QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
PROBE = "import logging, ray, sys; ray.init(sys.argv[1], logging_level=logging.ERROR, log_to_driver=False)"


class Cluster:
    """A connection to a Ray cluster; one that this process has already is used and stays open.

    `address` "local" starts a cluster with `cpus`; any other of `ray.init`, such as "host:port", joins one. Raises
    GalaxyDiTError without Ray, and ConnectionError if no cluster answers or starts.
    """

    def __init__(self, address: str, cpus: int) -> None:
        if find_spec("ray") is None:
            raise GalaxyDiTError(
                "--ray needs Ray, which is not installed; pip install 'galaxydit[ray]', or leave it out"
            )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if address == "local":
            prepare_token()
        import ray

        self.ray = ray
        self.is_own = not ray.is_initialized()
        self.is_local = self.is_own and address == "local"
        self._guard: subprocess.Popen[bytes] | None = None
        if self.is_local:
            self._start(cpus)
        elif self.is_own:
            self._join(address)
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        # The address of the head is not reachable through a Ray Client, which watches its connection by itself.
        self._head = None
        if not address.startswith("ray://"):
            self._head = context.gcs_address
        self._looked = self._answered = time.monotonic()

    def gpus(self) -> float:
        return self.ray.cluster_resources().get("GPU", 0)

    def check(self) -> None:
        """Raise ConnectionError if the head or this machine's node has ended; looks at most once a second.

        Ray would wait without end for a dead node, and end this process with a dead head.
        """
        if (now := time.monotonic()) - self._looked < LOOK_EVERY:
            return
        self._looked = now
        if not self._head_answers():
            if self.is_local or now - self._answered > OUTAGE:
                raise ConnectionError("the head process of the Ray cluster (gcs_server) has ended")
            return
        self._answered = now
        if not any(node["Alive"] and node["NodeID"] == self._node for node in self.ray.nodes()):
            raise ConnectionError(
                "this machine's node of the Ray cluster (raylet) has ended; look for lack of memory, and try fewer "
                "--workers"
            )

    def end(self) -> None:
        """End the cluster if this object started it, or leave it if this object joined it."""
        if self.is_own:
            self.ray.shutdown()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(END_WITHIN)
            self._guard = None

    def _start(self, cpus: int) -> None:
        """Start a cluster that the network cannot enter. Raises GalaxyDiTError where this Ray has no way to do so."""
        if not can_stay_on_loopback() and not asks_for_token():
            raise _refused("it listens on all addresses of this machine")
        options = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE, **QUIET}
        try:
            with _signals_kept(), staying_on_loopback() as address:
                self.ray.init("local", **options, **address)
        except Exception as error:  # Ray raises this class itself where its processes take too long to start
            self.ray.shutdown()
            reason = short_reason(error, 300)
            raise ConnectionError(f"Ray cannot start a cluster on this machine ({reason}); leave --ray out") from error
        if (listeners := open_listeners()) and not asks_for_token():
            self.ray.shutdown()
            raise _refused(f"these listen: {', '.join(sorted(listeners))}")
        guard = Path(__file__).with_name("guard.py")
        command = [sys.executable, "-P", str(guard), self.ray.get_runtime_context().get_session_name()]
        # The guard has a session of its own, so that a signal to this process and its group does not end the guard.
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _join(self, address: str) -> None:
        """Join a running cluster, after a helper process has: `ray.init` can wait without end and ignore signals."""
        cure = "start one with `ray start --head`, or pass --ray alone for one on this machine"
        try:
            command = [sys.executable, "-c", PROBE, address]
            asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False)
        except subprocess.TimeoutExpired as error:
            raise ConnectionError(
                f"ray={address!r}: no cluster answered there within {ANSWER_WITHIN:.0f} s; {cure}"
            ) from error
        if asked.returncode:
            reason = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
            raise ConnectionError(f"ray={address!r}: no cluster answers there ({reason}); {cure}")
        with _signals_kept():
            self.ray.init(address, **QUIET)

    def _head_answers(self) -> bool:
        if self._head is None:
            return True
        host, _, port = self._head.rpartition(":")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_EVERY):
            return True
        return False


def _refused(problem: str) -> GalaxyDiTError:
    expected = f"a version of Ray that stays on this machine or asks for a token, and of this one {problem}"
    return refusal(
        "ray", "local", expected, "pass --ray ADDRESS of a cluster that you have secured, or leave --ray out"
    )


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Context for `ray.init` that keeps the handler of SIGTERM, which Ray replaces by one that dumps its stack."""
    before = signal.getsignal(signal.SIGTERM)
    is_ours = before is not None and threading.current_thread() is threading.main_thread()
    try:
        yield
    except SystemExit:
        if is_ours:
            signal.signal(signal.SIGTERM, before)
            signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, before)
