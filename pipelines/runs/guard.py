"""Ends what is left of a Ray cluster once the process that started the cluster is gone, also after a kill -9.

That process runs `python guard.py SESSION` and holds its standard input. Without the guard, Ray 2.60 leaves agents for
61 seconds, which no setting shortens (ray/_private/utils.py, `publish_error_to_driver`), and at times idle workers with
their models, too. Imports nothing of galaxydit, so that it starts at once.
"""

import os
import select
import sys
import time
from contextlib import suppress

import psutil

LOOK_EVERY = 5.0  # seconds
GRACE = 2.0  # seconds for the processes to end by themselves


def cluster_of(parent: int, session: str) -> set[psutil.Process]:
    """Children of `parent` whose command lines name the Ray session, with descendants, without this process."""
    members: set[psutil.Process] = set()
    with suppress(psutil.Error):
        for child in psutil.Process(parent).children():
            with suppress(psutil.Error):
                if child.pid != os.getpid() and session in " ".join(child.cmdline()):
                    members |= {child, *child.children(recursive=True)}
    return members


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; a zombie, which only its parent can remove, does not."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def main() -> None:
    """Note the cluster's processes until standard input ends, wait up to `GRACE` seconds, and kill those left."""
    parent, session = os.getppid(), sys.argv[1]
    known: set[psutil.Process] = set()
    is_over = False
    while not is_over:
        known = {process for process in known | cluster_of(parent, session) if is_alive(process)}
        is_over = bool(select.select([sys.stdin], [], [], LOOK_EVERY)[0])
    end = time.monotonic() + GRACE
    while known and time.monotonic() < end:
        time.sleep(0.1)
        known = {process for process in known if is_alive(process)}
    for process in known:
        with suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    main()
