"""Measures a part of the plugin's speed on this machine's GPU, from a checkout without installation (README.md)."""

import sys
import time
from pathlib import Path

STARTED = time.monotonic()  # before the imports, which count towards --limit
sys.path.insert(0, str(Path(__file__).parents[2]))

if __name__ == "__main__":
    from galaxydit.eval.gpu.measuring import main

    sys.exit(main(started=STARTED))
