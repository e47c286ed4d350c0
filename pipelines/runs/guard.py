"""Ends what is left of a Ray cluster once the process that started the cluster is gone, also after a kill -9.

That process runs `python guard.py SESSION` and holds its standard input. Ray's own agents would outlive their node by a
minute. Imports nothing of galaxydit, so that it starts at once.
"""

import sys
import time
from contextlib import suppress

import psutil

GRACE = 2.0  # seconds for the processes to end by themselves


def main() -> None:
    """Wait until standard input ends and `GRACE` seconds more, then kill Ray's processes that log to the session."""
    session = sys.argv[1]
    sys.stdin.read()
    time.sleep(GRACE)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            # The command line of a driver, which logs to the session, too, has neither.
            is_rays = any(part.startswith("ray::") or session in part for part in process.cmdline())
            if is_rays and any(session in file.path for file in process.open_files()):
                process.kill()


if __name__ == "__main__":
    main()
