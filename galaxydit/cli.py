"""The command line. Commands import what they need when they run, so that `--help` does not wait for models."""

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from galaxydit import __version__
from galaxydit.commands.calibrate_command import calibrate
from galaxydit.commands.compare_command import compare
from galaxydit.commands.console import messages, say
from galaxydit.commands.demo_command import demo
from galaxydit.commands.estimate_command import estimate
from galaxydit.commands.eval_command import app as evaluate
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.families_command import families
from galaxydit.commands.generate_command import generate
from galaxydit.commands.grouping import RayCommand, grouped
from galaxydit.commands.help_sections import SectionedGroup
from galaxydit.commands.inspect_command import inspect
from galaxydit.commands.latency_command import latency
from galaxydit.commands.validate_command import validate
from galaxydit.errors import GalaxyDiTError, short_reason
from galaxydit.foreign_text import printable
from galaxydit.pipelines.interrupts import answering_interrupts, heeding_interrupts

SECTIONS: dict[str, tuple[Callable[..., None], ...]] = {
    "Make videos": (demo, generate),
    "Know your model": (families, inspect, calibrate, validate),
    "Measure speed and quality": (compare, latency, estimate),
}
HELP = "Faster video generation with diffusers, without training. `galaxydit demo` shows it in minutes, also on a CPU."
EPILOG = (
    "Results go to stdout, messages and progress to stderr; --json prints data alone. Exit codes: 0 done, 1 something "
    "failed, 2 input was refused, 130 and 143 stopped; run the same command again to continue."
)

app = typer.Typer(
    name="galaxydit",
    cls=SectionedGroup,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for section, commands in SECTIONS.items():
    for command in commands:
        app.command(cls=RayCommand, rich_help_panel=section)(grouped(command))
app.add_typer(evaluate, name="eval", rich_help_panel="Measure speed and quality")


def _show_version(wanted: bool) -> None:
    if wanted:
        Console().print(f"galaxydit {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def set_up(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log details and show tracebacks.")] = False,
) -> None:
    from rich.logging import RichHandler

    if not debug:
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # its warnings repeat, and the error at the end says enough
    handler = RichHandler(console=messages(), show_path=False, show_time=False)
    if not debug:
        handler.addFilter(_without_traceback)
        handler.addFilter(not_of_extensions)
        logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)  # torchao's deprecations
        logging.getLogger("diffusers.quantizers.torchao").setLevel(logging.ERROR)
    handler.addFilter(_printable)
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(message)s", handlers=[handler])


def _without_traceback(record: logging.LogRecord) -> bool:
    """Logging filter: a traceback becomes one line."""
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        record.msg, record.args = f"{record.getMessage()}: {short_reason(error, 300)}", ()
        record.exc_info = record.exc_text = None
    return True


def not_of_extensions(record: logging.LogRecord) -> bool:
    """Logging filter: nothing here asks for the kernels that torchao and bitsandbytes say they could not load."""
    return not {"torchao", "bitsandbytes"} & {*Path(record.pathname).parts}


def _printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with an `ExitCode`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        stopping = "stopping after the computation or file under way"
        with warnings.catch_warnings(), answering_interrupts(lambda: say(stopping)), heeding_interrupts():
            warnings.showwarning = _show_each_once()
            app(list(arguments))
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(ExitCode.INTERRUPTED)
    except (ValueError, OSError) as error:  # how this project refuses input, files and unreachable hubs
        if "--debug" in arguments:
            raise
        say(f"error: {_one_line(_with_cure(error))}", "red")
        sys.exit(ExitCode.REFUSED)
    except Exception as error:  # of the model or of a library
        if "--debug" in arguments:
            raise
        text = short_reason(error, 500)
        say(f"error: {text}; check that the options suit the model, or see where with `galaxydit --debug`", "red")
        sys.exit(ExitCode.FAILED)


def _show_each_once() -> Callable[..., None]:
    """A `warnings.showwarning` that shows each text once, because every video of a job repeats it."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = f"warning: {_one_line(message).removeprefix('galaxydit: ')}"
        if text not in shown:
            shown.add(text)
            say(text, "yellow")

    return show


def _with_cure(error: Exception) -> str:
    """The text of an error, with advice for the user added if the text has none."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        path = printable(error.filename)[:200]
        return f"{path} cannot be used: {error.strerror}; check the path, its rights and the disk"
    text = str(error)
    if isinstance(error, GalaxyDiTError) or re.search(r"; |: [a-z]", text):
        return text
    what = "the path, the network and the disk" if isinstance(error, OSError) else "that the options suit the model"
    return f"{text}; check {what}"


def _one_line(message: object) -> str:
    return " ".join(printable(message).split())


if __name__ == "__main__":
    main()
