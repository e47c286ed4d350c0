"""The recording stage ends when the schedules stand, and begins again at full size where small recordings fail."""

from types import SimpleNamespace
from typing import Any

import pytest

from galaxydit.calibration import sampling
from galaxydit.calibration.budget import Budget
from galaxydit.calibration.sampling import Sampling

SMALL, FULL = "small", "full"


def staged(monkeypatch: pytest.MonkeyPatch, budget: Budget, *, agrees: bool, stands_from: int = 0) -> Any:
    """A sampling whose samples are pairs of index and size; it tells the sizes of profiles and what was said."""
    monkeypatch.setattr(
        sampling, "settings_of_recording", lambda pipe, prompt, settings, full_size: FULL if full_size else SMALL
    )
    monkeypatch.setattr(sampling, "ratios_of_distances", lambda plain, first: {"first": first.size})
    planner = SimpleNamespace(
        pipe=None,
        settings=FULL,
        agrees=agrees,
        ratios={},
        profile=lambda samples: len(samples),
        check=lambda samples, plain: f"checked {len(samples)}",
        stands=lambda samples: len(samples) >= stands_from,
    )

    def samples(indices: Any, settings_for: Any) -> list[Any]:
        made = []
        for index in indices:
            size = settings_for("a prompt")
            made.append(SimpleNamespace(at=(index, size), recording=SimpleNamespace(size=size)))
        return made

    parts = SimpleNamespace(samples=samples, unmade=lambda indices, _: len(indices), progress=lambda *_: None)
    costs = SimpleNamespace(videos=lambda budget, missing: missing, seconds=lambda videos: float(videos))
    profiles: list[Any] = []
    said: list[str] = []
    stage: dict[str, Any] = {"parts": parts, "planner": planner, "costs": costs}
    made = Sampling(
        **stage, budget=budget, on_profile=profiles.append, say=said.append, full_size=False, are_smaller=True
    )
    return SimpleNamespace(sampling=made, planner=planner, profiles=profiles, said=said)


def test_recordings_that_do_not_serve_are_made_again_at_full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made = staged(monkeypatch, Budget(samples=(2, 4)), agrees=False, stands_from=3)
    film: Any = SimpleNamespace()
    samples = made.sampling.record(film)
    assert [sample.at for sample in samples] == [(0, FULL), (1, FULL), (2, FULL)]
    assert made.planner.ratios == {"first": FULL}
    assert made.profiles == [1, 2, 3]
    assert made.said[0] == "checked 2"
    assert "again at full size" in made.said[1]


def test_recordings_that_serve_stay_and_end_when_the_schedules_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    made = staged(monkeypatch, Budget(samples=(2, 8)), agrees=True, stands_from=4)
    film: Any = SimpleNamespace()
    assert [sample.at for sample in made.sampling.record(film)] == [(index, SMALL) for index in range(4)]
    assert made.said == ["checked 2"]


def test_the_largest_number_of_recordings_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = staged(monkeypatch, Budget(samples=(1, 3), check=False), agrees=True, stands_from=9)
    assert len(made.sampling.record(None)) == 3
    assert made.said == []
