"""Stages of a calibration, what they cost, and which of them fit into a budget."""

from pathlib import Path
from typing import get_type_hints

import pytest

import galaxydit
from galaxydit.calibration.budget import DEFAULT, FULL, H100_CALLS, Budget, Costs, forecast, read_budget
from galaxydit.calibration.step_times import StepTimes
from galaxydit.commands.calibrate_command import calibrate
from galaxydit.errors import GalaxyDiTError
from galaxydit.profiles.evidence import Seconds

SPEEDUPS = (2.0, 3.0, 4.0)


def step(seconds: float, joules: float | None = None, bytes: int | None = None) -> StepTimes:
    return StepTimes(Seconds(seconds, 0.0, 0.0, 0.0, (), ()), joules, bytes)


CALLS_14B, CALLS_1_3B = ([2 * call for call in calls] for calls in H100_CALLS.values())  # two calls a step
WAN_14B = Costs(50, SPEEDUPS, step(CALLS_14B[0], 17000.0), step(CALLS_14B[1], 200.0, 29_500_000_000))
WAN_1_3B = Costs(50, SPEEDUPS, *map(step, CALLS_1_3B))


def test_the_default_costs_less_than_two_videos_of_the_14b_and_four_of_the_1_3b() -> None:
    for costs, most in ((WAN_14B, 0.8), (WAN_1_3B, 3.0)):
        recordings = costs.videos(DEFAULT, DEFAULT.samples[1]) - 1
        assert recordings <= most
    assert WAN_14B.videos(FULL, FULL.samples[1]) > 20


def test_the_forecast_names_videos_time_energy_memory_and_what_verification_adds() -> None:
    text = WAN_14B.describe(DEFAULT)
    for part in ("1.3 to 1.6 plain videos: ", "min", "kJ", "29.5 GB of GPU memory", "--budget full verifies it for"):
        assert part in text
    assert "kJ" not in WAN_1_3B.describe(DEFAULT)
    assert "--budget" not in WAN_14B.describe(FULL)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (0.05, Budget((1, 1), check=False)),  # less than one sample of the 14B
        (0.3, Budget((4, 4), check=False)),
        (1.1, Budget((1, 1), check=True)),
        (2.0, DEFAULT),
        (6.0, Budget((4, 8), True, 0, 2)),
        (1000.0, Budget((4, 8), True, 8, 8)),
        ("2h", Budget((4, 8), True, 0, 1)),  # 5.7 videos
    ],
)
def test_what_fits_is_done_first_samples_then_the_check_then_verification_then_the_choice(
    limit: float | str, expected: Budget
) -> None:
    found = WAN_14B.within(limit)
    assert found == expected
    spent = WAN_14B.videos(found, found.samples[1])
    assert found.samples == (1, 1) or spent <= (5.75 if isinstance(limit, str) else limit)


def test_a_budget_is_videos_hours_or_a_word() -> None:
    assert [read_budget(text) for text in ("", "full", "4", "0.5", "2h")] == [DEFAULT, FULL, 4.0, 0.5, "2h"]
    for text in ("much", "-1", "0", "0h", "h", "nan", "9" * 400, "9" * 400 + "h"):
        with pytest.raises(GalaxyDiTError, match="--budget="):
            read_budget(text)


@pytest.mark.parametrize("page", ["README.md", "calibration/README.md", "calibrate --help"])
def test_every_page_gives_the_same_cost(page: str, capsys: pytest.CaptureFixture) -> None:
    if page.endswith(".md"):
        text = (Path(galaxydit.__file__).parents[1] / page).read_text(encoding="utf-8")
    else:
        option = get_type_hints(calibrate, include_extras=True)["budget"].__metadata__[0]
        text = option.help
    assert forecast() in " ".join(text.split())
    assert "bout one plain video" not in text
