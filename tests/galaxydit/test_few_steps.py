"""Generations of few steps: computed in full where plain steps of equal cost are as good, and said so."""

import json
import warnings
from typing import Any

import pytest
from profile_parts import profile_for

import galaxydit
from galaxydit import GalaxyDiTConfig, general_schedule
from galaxydit.calibration.bootstrap import interval
from galaxydit.errors import FullComputeWarning, GalaxyDiTError, ProfileWarning
from galaxydit.eval.compared import RESULTS
from galaxydit.eval.short_generations import differences, fewest_ahead
from galaxydit.policies.policy import FEW_STEPS, GENERAL_FEW_STEPS, Reason

REQUESTS: dict[str, dict[str, Any]] = {
    "the default": {},
    "a speedup": {"speedup": 2.0},
    "a quality": {"quality": "fast"},
    "a proxy": {"policy": "proxy"},
    "a limit of errors beside a speedup": {"max_error": 9.0, "speedup": 2.0},
    "by hand": {"config": GalaxyDiTConfig(general_schedule(2.0))},
}


@pytest.fixture(autouse=True)
def decided_by_wan_tiny(monkeypatch: pytest.MonkeyPatch, general_few_steps: int) -> None:
    monkeypatch.setattr("galaxydit.config.GENERAL_FEW_STEPS", general_few_steps)


def report_of(tiny: Any, steps: int, **request: Any) -> galaxydit.Report:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with galaxydit.accelerate(tiny.pipe, **request) as acceleration:
            tiny.run(num_inference_steps=steps)
    return acceleration.report


@pytest.mark.parametrize("request_name", REQUESTS)
def test_without_a_profile_a_short_generation_is_computed_in_full(tiny_wan: Any, request_name: str) -> None:
    report = report_of(tiny_wan, GENERAL_FEW_STEPS, **REQUESTS[request_name])
    assert report.compute_fraction == 1.0
    assert {call.reason for call in report.calls} == {Reason.FEW_STEPS}
    assert f"{GENERAL_FEW_STEPS} steps are too few to reuse any without a profile" in " ".join(report.notes)
    assert report_of(tiny_wan, GENERAL_FEW_STEPS + 1, **REQUESTS[request_name]).reused_steps > 0


def test_a_short_generation_is_warned_of_with_the_cure(tiny_wan: Any) -> None:
    with (
        galaxydit.accelerate(tiny_wan.pipe),
        pytest.warns(FullComputeWarning, match="`galaxydit calibrate --steps 12` measures a profile, few_steps=0"),
    ):
        tiny_wan.run()


def test_few_steps_replace_every_limit(tiny_wan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(tiny_wan, 12, few_steps=0).compute_fraction == pytest.approx(0.5)
    assert report_of(tiny_wan, 6, few_steps=0).compute_fraction == pytest.approx(0.5)
    assert report_of(tiny_wan, 6, few_steps=0, threshold=9.0).reused_steps > 0
    longest = report_of(tiny_wan, 30, few_steps=30)
    assert longest.compute_fraction == 1.0
    assert "30 steps are too few to reuse any (few_steps=30)" in " ".join(longest.notes)
    monkeypatch.setattr("galaxydit.profiles.changed_conditions.SERVED_SHARE", 0.65)
    profile = profile_for(tiny_wan.pipe)
    assert report_of(tiny_wan, 12, profile=profile).compute_fraction == 1.0
    assert report_of(tiny_wan, 12, profile=profile, few_steps=0).compute_fraction == pytest.approx(0.5)


def test_one_request_may_have_other_few_steps(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe) as acceleration:
        with acceleration.using(few_steps=0) as own, warnings.catch_warnings():
            warnings.simplefilter("error", FullComputeWarning)
            tiny_wan.run()
        assert own.report.reused_steps > 0
    with pytest.raises(GalaxyDiTError, match="few_steps=-1 is not allowed"):
        galaxydit.accelerate(tiny_wan.pipe, few_steps=-1)


def test_other_policies_keep_the_limit_of_all(tiny_wan: Any) -> None:
    assert report_of(tiny_wan, FEW_STEPS + 1, threshold=9.0).reused_steps > 0
    assert report_of(tiny_wan, FEW_STEPS, threshold=9.0).reused_steps == 0


def test_the_limit_lies_between_the_steps_where_the_command_measured_that_one_side_is_better() -> None:
    measured = json.loads((RESULTS / "short-generations" / "results.json").read_text(encoding="utf-8"))["psnr"]
    short = {steps: captions for steps, captions in measured.items() if int(steps) <= GENERAL_FEW_STEPS}
    assert len(short) > 3
    assert fewest_ahead(short) is None
    intervals = {int(steps): interval(differences(captions)) for steps, captions in measured.items()}
    assert max(steps for steps, (_, high) in intervals.items() if high < 0) == 20
    assert min(steps for steps, (low, _) in intervals.items() if low > 0) == 30
    assert fewest_ahead(measured) == 30
    assert 20 <= GENERAL_FEW_STEPS < 30


@pytest.mark.parametrize("policy", ["schedule", "proxy"])
def test_a_speedup_that_nothing_was_measured_for_is_warned_of_once(tiny_wan: Any, policy: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with galaxydit.accelerate(tiny_wan.pipe, speedup=10.0, policy=policy) as acceleration:
            tiny_wan.run(num_inference_steps=30)
            tiny_wan.run(num_inference_steps=30)
    beyond = [str(each.message) for each in caught if issubclass(each.category, ProfileWarning)]
    assert len(beyond) == 1
    assert "speedup 10 is beyond the 4 that the general schedule was measured for" in beyond[0]
    assert "the quality is unknown there, and plain generations of fewer steps are safer" in beyond[0]
    assert beyond[0].removeprefix("galaxydit: ") in acceleration.report.notes


@pytest.mark.parametrize("policy", ["schedule", "proxy", "paper"])
def test_a_speedup_beyond_a_profile_is_warned_of(tiny_wan: Any, policy: str) -> None:
    profile = profile_for(tiny_wan.pipe)
    with (
        galaxydit.accelerate(tiny_wan.pipe, speedup=3.0, policy=policy, profile=profile, warmup=0.05),
        pytest.warns(ProfileWarning, match="speedup 3 is beyond the 2 that profile tiny was planned for: the quality"),
    ):
        tiny_wan.run(num_inference_steps=20)


def test_a_known_speedup_is_not_warned_of(tiny_wan: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProfileWarning)
        with galaxydit.accelerate(tiny_wan.pipe, speedup=4.0):
            tiny_wan.run(num_inference_steps=30)
