"""What a measurement on a GPU depends on: commit, versions, clocks. No setting of the GPU is changed."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import galaxydit

CHECKOUT = Path(__file__).parents[2]
UNKNOWN = "unknown"
PACKAGES = ("torch", "diffusers", "transformers", "triton")
CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw", "power.limit")  # of nvidia-smi
PATIENCE = 20  # seconds that another program may take


def commit_of(given: str | None) -> str:
    """The commit `given`, else that of this checkout, with "-dirty" for changed files, else "unknown"."""
    if given:
        return given
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    return _printed(command) or UNKNOWN


def versions_of(device: torch.device) -> dict[str, str]:
    """Versions of Python, the packages that compute, CUDA and the driver; those that do not exist are left out."""
    found = {"python": platform.python_version(), "galaxydit": galaxydit.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["driver"] = (_asked(("driver_version",)) or [UNKNOWN])[0]
    return found


def clocks_of(device: torch.device) -> dict[str, str] | None:
    """What nvidia-smi says now on clocks (MHz), temperature (degrees Celsius) and power (W); None without it."""
    if device.type != "cuda":
        return None
    values = _asked(CLOCKS)
    return None if values is None else dict(zip(CLOCKS, values, strict=True))


def _asked(fields: tuple[str, ...]) -> list[str] | None:
    """The values of nvidia-smi for the GPU that torch computes on; None if it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if torch.cuda.device_count() > 1:
        # By its identity, because the order of nvidia-smi is not that of CUDA.
        command.append(f"--id=GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}")
    lines = _printed(command).splitlines()
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return values if len(values) == len(fields) else None


def _printed(command: list[str]) -> str:
    """What a command prints in the folder of the checkout; an empty string if it fails."""
    try:
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
