"""The tables of costs are those that the command prints."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import exit_code

from galaxydit.cli import main
from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.cost.cost_tables import cost_table, measured_table
from galaxydit.pipelines.published_models import CHECKPOINTS

EVAL = Path(__file__).parents[3] / "eval"


@pytest.mark.parametrize(
    ("table", "page"),
    [
        (cost_table, "README.md"),
        (measured_table, "results/costs/table.md"),
    ],
)
def test_the_page_has_the_table_that_the_command_prints(table: Callable[[], str], page: str) -> None:
    assert table() in (EVAL / page).read_text(encoding="utf-8")


def test_the_page_names_every_published_model_and_its_figures() -> None:
    """Sizes, frames, steps and calls of the models that have a row of their own."""
    page = (EVAL.parent / "pipelines" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 7]
    own = {name: line for line in rows for name in re.findall("`(.+?)`", line.split("|")[1])}
    assert len(own) > 8
    for name, checkpoint in CHECKPOINTS.items():
        settings, shape = checkpoint.settings, architecture_of(name)
        assert f"`{name}`" in page
        if name in own:
            _, _, video, steps, guidance, calls, *_ = (cell.strip() for cell in own[name].split("|"))
            assert f"{settings.width}x{settings.height}, {settings.num_frames} frames" in video
            assert f"{settings.fps:g} fps" in video
            assert (", sound" in video) == (shape.audio_tokens_per_second > 0)
            assert (int(steps), int(calls)) == (settings.steps, shape.calls)
            assert settings.guidance_scale is None or f"{settings.guidance_scale:g}" == guidance


def test_the_command_names_the_saved_joules(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "estimate",
                "--model",
                "wan2.1-t2v-14b",
                "--videos",
                "1000",
                "--price",
                "2.5",
                "--attention",
                "_native_cudnn",
            ]
        )
    assert not stopped.value.code
    shown = capsys.readouterr().out
    assert "predicted for one video, not measured" in shown
    assert "saves 433 kJ (50%)" in shown
    assert "1,000 videos, plain: 346 h, 346 GPU hours, 242 kWh, price 866, 2.31 GB of files" in shown
    assert "1,000 videos, with the plugin: 175 h" in shown
    assert "e+0" not in shown


@pytest.mark.parametrize(("given", "speedup"), [((), 2), (("--quality", "fast"), 3), (("--speedup", "4"), 4)])
def test_the_command_takes_a_speedup_or_a_word(
    given: tuple[str, ...], speedup: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("estimate", "--model", "wan2.1-t2v-14b", *given) == 0
    assert f"the plugin at {speedup}x by compute" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--steps", "--frames"])
def test_a_count_of_0_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("estimate", "--model", "wan2.1-t2v-14b", option, "0") == 2
    assert f"{option[2:]}=0 is not allowed" in capsys.readouterr().err


def test_a_speedup_that_leaves_fewer_than_two_steps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("estimate", "--model", "wan2.1-t2v-14b", "--speedup", "26") == 2
    assert "speedup=26.0 is not allowed: expected at most 25" in capsys.readouterr().err


def test_the_command_refuses_an_unknown_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("estimate", "--model", "wan2.1-t2v-14b", "--gpu", "v100") == 2
    assert "gpu='v100' is not allowed" in capsys.readouterr().err
