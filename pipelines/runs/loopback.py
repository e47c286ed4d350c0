"""A Ray cluster of this machine that the network cannot enter: its processes listen on the loopback address alone.

Whoever reaches a Ray cluster can run code in it (docs.ray.io, security), and Ray listens on all addresses by default.
"""

import ipaddress
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

LOOPBACK = "127.0.0.1"
RESOLVER = "resolve_ip_for_localhost"  # of ray._private.services, maps the loopback address to the machine's own
TOKEN_SOURCES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def prepare_token() -> None:
    """Let a Ray that knows tokens ask for one, which is random unless the user has one.

    To be called before Ray is imported, because Ray reads then whether it asks for a token.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if not any(name in os.environ for name in TOKEN_SOURCES) and not _has_token_file():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _has_token_file() -> bool:
    with suppress(RuntimeError):  # of a user without a home folder
        return (Path.home() / ".ray" / "auth_token").is_file()
    return False


def asks_for_token() -> bool:
    """Whether this Ray asks whoever connects for its token."""
    raylet: Any = import_module("ray._raylet")
    mode = getattr(raylet, "get_authentication_mode", None)
    return mode is not None and mode() == raylet.AuthenticationMode.TOKEN  # earlier versions know no tokens


def can_stay_on_loopback() -> bool:
    """Whether this Ray has the private function that `staying_on_loopback` replaces."""
    from ray._private import services

    return callable(getattr(services, RESOLVER, None))


@contextmanager
def staying_on_loopback() -> Iterator[dict[str, Any]]:
    """Context in which `ray.init` with the yielded arguments listens on the loopback address alone, where it can."""
    from ray._private import services

    if not can_stay_on_loopback():
        yield {}
        return
    resolver = getattr(services, RESOLVER)
    setattr(services, RESOLVER, lambda host: host)
    try:
        yield {"_node_ip_address": LOOPBACK}
    finally:
        setattr(services, RESOLVER, resolver)


def open_listeners() -> set[str]:
    """Names and addresses of listeners outside the loopback address, of this process's descendants."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN and not is_loopback(connection.laddr.ip):
                    found.add(f"{process.name()} on {connection.laddr.ip}")
    return found


def is_loopback(address: str) -> bool:
    """Whether an IP address is a loopback address, also as IPv4 in IPv6; False for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback
    return False
