"""The exit codes of all commands, and why a command that ends by itself has one."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can tell from the end of a command; the table of eval/README.md repeats `meaning`."""

    meaning: str

    DONE = 0, "everything that was asked for is done; all gates hold"
    FAILED = 1, "the command ran, but a video, a measurement or a gate failed, or the model or a library raised"
    REFUSED = 2, "bad input: an option, a file, a hub or an address; nothing was made by this command"
    INTERRUPTED = 130, "stopped by Ctrl-C (SIGINT); run the same command again to continue"
    TERMINATED = 143, "stopped by SIGTERM; run the same command again to continue"

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code
