"""Text of unknown origin: no secret is shown, no terminal is steered, no picture or page is broken."""

import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from galaxydit.commands.console import download_bars, say, show
from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import DataWarning, GalaxyDiTError, ProfileWarning, refusal, short_reason
from galaxydit.foreign_text import drawable, in_markdown, logger_of, one_line, printable, without_secrets
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.video import side_by_side
from galaxydit.policies.policy import Reason
from galaxydit.report import CallRecord, Report

HOSTILE = "na\x1b[31mme\x07 \u202egnp.exe [red]x[/red] $x^{2$ $_$ | <b>\nNote: all is well\ttab\x9b\u2028\ud800\r\x00"
UNSAFE = set("\x1b\x07\u202e\x9b\u2028\ud800\r\x00")


def is_safe(text: str) -> bool:
    return UNSAFE.isdisjoint(text) and "\nNote: all is well" not in text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://KEY:SECRET@bucket/run", "s3://***@bucket/run"),
        ("s3://KEY:SEC/RET+@bucket", "s3://***@bucket"),
        ("s3://KEY:SEC@RET@bucket", "s3://***@bucket"),
        ("s3:/KEY:SECRET@bucket", "s3:/***@bucket"),  # as Path writes it
        ("KEY:SECRET@bucket/run", "***@bucket/run"),  # as fsspec's file systems name it
        ("simplecache::s3://KEY:SECRET@bucket", "simplecache::s3://***@bucket"),
        ("https://user:SECRET@host/x", "https://***@host/x"),
        ("https://SECRET@host/x", "https://***@host/x"),
        ("https://host/x?a=1&token=SECRET&b=2", "https://host/x?a=1&token=***&b=2"),
        ("https://h/x?X-Amz-Signature=SECRET&X-Amz-Expires=9", "https://h/x?X-Amz-Signature=***&X-Amz-Expires=9"),
        ("az://c/x?sv=1&sig=SECRET%3D", "az://c/x?sv=1&sig=***"),
        ("AccountName=a;AccountKey=SECRET==", "AccountName=a;AccountKey=***"),
        ("https://host/x?Authorization=Bearer%20SECRET", "https://host/x?Authorization=***"),
        ("https://host/x?pass=SECRET&jwt=SECRET&sas=SECRET", "https://host/x?pass=***&jwt=***&sas=***"),
        ("https://host/x?login[token]=SECRET", "https://host/x?login[token]=***"),
        (f"https://aws:{'SECRET' * 400}@host/x", "https://***@host/x"),  # as long as a JWT
        (f"https://{'SECRET' * 400}@host/x", "https://***@host/x"),
    ],
)
def test_secrets_in_addresses_are_starred_in_every_kind_of_message(address: str, shown: str) -> None:
    assert without_secrets(address) == printable(address) == shown
    assert str(refusal("out", address, "a folder", f"not {address}")).count(shown) == 2
    assert shown in str(GalaxyDiTError(f"{address} is damaged"))
    assert shown in str(DataWarning(f"galaxydit: {address}"))
    long = refusal("out", "x" * 40 + address + "y" * 200, "a folder", "pass another")
    for text in (str(long), short_reason(OSError(f"{'x' * 10} {address}"), 30)):
        assert "SEC" not in text
        assert "RET" not in text


@pytest.mark.parametrize(
    "text",
    [
        "hf://owner/name@v1.0",
        "ray://10.0.0.1:10001",
        "s3://bucket/run",
        "/home/me@work/run",
        "git@github.com:owner/name",
        "C:\\runs\\x",
        "https://host/x?author=a&authority=b&design=2&steps=50&passes=3&sash=1",
        "threshold=0.1, 2x; a: b",
    ],
)
def test_text_without_a_secret_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("part", ["a", "a:", "s3://", "x&", ";a", "key"])
def test_a_long_text_is_searched_without_end_by_no_pattern(part: str) -> None:
    text = f"{part * 50_000} "  # on which a quadratic pattern takes many minutes
    assert printable(f"{text}@=").endswith("@=")


def test_hostile_text_is_made_safe() -> None:
    assert is_safe(one_line(HOSTILE))
    assert "\\x1b[31mme\\x07 \\u202egnp.exe" in one_line(HOSTILE)
    assert "\n" not in one_line(HOSTILE)
    assert printable("two\nlines\tand a tab, größer, 猫") == "two\nlines\tand a tab, größer, 猫"
    assert in_markdown("a | b <script>") == "a \\| b &lt;script>"
    assert in_markdown("<0.01 s") == "<0.01 s"


def test_a_report_with_hostile_notes_and_names_is_printed_and_drawn(tmp_path: Path) -> None:
    record = CallRecord(
        step=0,
        sigma=1.0,
        transformer="transformer",
        branch=HOSTILE.replace("\ud800", ""),
        reused=False,
        reason=Reason.WARM_UP,
        distance=0.1,
        accumulated=0.1,
        blocks_run=1,
        blocks=1,
    )
    report = Report(GalaxyDiTConfig(), 1, (record, replace(record, transformer="$b$")), (HOSTILE,), 0, 1.0, None)
    assert is_safe(str(report))
    report.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


@pytest.mark.parametrize("name", ["a$x^{2$", "$_$", "\\$a$^", "$\\frac$", HOSTILE])
def test_a_name_is_drawn_as_it_is(name: str, tmp_path: Path) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([0, 1], label=drawable(name))
    axes.set_title(drawable(name))
    axes.legend()
    figure.savefig(tmp_path / "x.png")


def test_a_label_of_a_video_may_hold_line_breaks() -> None:
    import numpy as np

    video = np.zeros((1, 16, 64, 3), np.uint8)
    assert side_by_side([video], [HOSTILE.replace("\ud800", "")]).shape[0] == 1


def test_warnings_and_log_lines_are_safe(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(f"galaxydit: {HOSTILE}", ProfileWarning, stacklevel=1)
    assert is_safe(warnings.formatwarning(caught[0].message, ProfileWarning, "x.py", 1))
    logger = logger_of("galaxydit.test")
    try:
        raise OSError("s3://KEY:SECRET@bucket \x1b[31m")
    except OSError:
        logger.exception("%s failed", HOSTILE)
    shown = logging.Formatter().format(caplog.records[-1])
    assert UNSAFE.isdisjoint(shown)
    assert "SECRET" not in shown


def test_consoles_and_tables_show_markup_and_control_characters_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    safe_in_utf8 = HOSTILE.replace("\ud800", "")
    console = Console(width=400)
    table = Table(("[blue]name[/blue]", HOSTILE), [(safe_in_utf8, "1")])
    show(HOSTILE, table, console=console)
    say(HOSTILE)
    with download_bars() as tell:
        tell(HOSTILE, 0, 1)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err, table.markdown(), table.html()):
        assert UNSAFE.isdisjoint(text)
        assert "[red]x[/red]" in text
    assert "[blue]name[/blue]" in captured.out
    assert len(table.markdown().splitlines()) == 3
    assert "<b>" not in table.html() + table.markdown()


def test_a_refusal_quotes_a_hostile_path_on_one_line(capsys: Any) -> None:
    error = GalaxyDiTError(f"the file {HOSTILE} is damaged", "restore it")
    assert is_safe(str(error))
    assert "\n" not in str(error)
    assert str(error).endswith("is damaged; restore it")
