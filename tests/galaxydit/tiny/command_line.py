"""Run a command in this process."""

import pytest

from galaxydit.cli import main


def exit_code(*arguments: object) -> int:
    """The exit code of `galaxydit` with these arguments."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)
