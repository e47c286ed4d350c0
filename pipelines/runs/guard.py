"""Ends what is left of a Ray cluster once the process that started the cluster is gone, also after a kill -9.

That process runs `python guard.py SESSION` and holds its standard input. Without the guard, Ray 2.60 leaves agents for
61 seconds, which no setting shortens (ray/_private/utils.py, `publish_error_to_driver`), and at times idle workers with
their models, too. Imports nothing of galaxydit, so that it starts at once.
"""

import os
import select
import sys
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


def main() -> None:
    """Note the cluster's processes until standard input ends, wait up to `GRACE` seconds, and kill those left."""
    parent = os.getppid()
    session = sys.argv[1]
    known = cluster_of(parent, session)
    while not select.select([sys.stdin], [], [], LOOK_EVERY)[0]:
        known |= cluster_of(parent, session)
    _, left = psutil.wait_procs(known, GRACE)
    for process in left:
        with suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    main()
