import subprocess
import sys

import galaxydit


def test_importing_the_package_alone_loads_no_heavy_module() -> None:
    code = (
        "import sys, galaxydit; print([m for m in ('diffusers', 'transformers', 'torch', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_is_there() -> None:
    assert all(getattr(galaxydit, name) is not None for name in galaxydit.__all__)
