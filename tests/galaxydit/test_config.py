from typing import Any

import pytest

from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError, Threshold
from galaxydit.policies.policy import Controller, Decision, Limits, Observation, Reason
from galaxydit.request import Request


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warmup", 1.5),
        ("warmup", -1),
        ("proxy", "magic"),
        ("reuse", "everything"),
        ("order", 2),
        ("order", True),
        ("keep_last", -1),
        ("keep_last", 1.0),
        ("max_consecutive", 0),
    ],
)
def test_a_bad_value_is_refused_with_its_field_value_and_cure(field: str, value: Any) -> None:
    with pytest.raises(GalaxyDiTError) as error:
        GalaxyDiTConfig(**{field: value})
    check(str(error.value), field, value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), "0.1", True])
def test_a_bad_threshold_is_refused(value: Any) -> None:
    with pytest.raises(GalaxyDiTError) as error:
        Threshold(value)
    check(str(error.value), "threshold", value)


def test_a_bad_list_of_steps_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match=r"steps=-3 is not allowed: expected a whole number of at least 0"):
        FixedSteps((0, -3))


@pytest.mark.parametrize("policy", [5, None, 0.1, Threshold])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(GalaxyDiTError, match=r"policy=.* expected a policy; pass for example policy=Threshold\(0.1\)"):
        GalaxyDiTConfig(policy=policy)


def test_a_policy_of_ones_own_that_lacks_a_property_is_refused_with_what_it_needs() -> None:
    class Forgetful:
        reads_proxy, learns_errors = False, False

        def decide(self, observation: Any, state: Any = None) -> Any:
            raise NotImplementedError

    with pytest.raises(GalaxyDiTError, match=r"; this policy lacks reuses$"):
        GalaxyDiTConfig(Forgetful())
    with pytest.raises(GalaxyDiTError, match=r"policy=Threshold\(0.1\), an instance$"):
        GalaxyDiTConfig(Threshold)  # type: ignore[arg-type]
    with pytest.raises(GalaxyDiTError, match=r"or the name to accelerate\(policy='proxy'\)$"):
        GalaxyDiTConfig("proxy")  # type: ignore[arg-type]
    with pytest.raises(GalaxyDiTError, match=r"expected a name; pass the object as config=GalaxyDiTConfig"):
        Request(policy=Threshold(0.1))  # type: ignore[arg-type]


@pytest.mark.parametrize("returned", [True, Decision(True, Reason.CUSTOM), None], ids=str)
def test_a_policy_that_returns_no_decision_with_a_state_is_refused(returned: Any) -> None:
    class Wrong:
        reads_proxy, reuses, learns_errors = False, True, False

        def decide(self, observation: Any, state: Any = None) -> Any:
            return returned

    with pytest.raises(
        GalaxyDiTError, match=r"^Wrong.decide\(\)=.* expected a Decision and the next state; return for"
    ):
        Controller(Wrong(), Limits()).decide(Observation(0, 50, None, False))


def check(message: str, field: str, value: Any) -> None:
    """The one form of an error: field, value, what is expected, what to do."""
    assert message.startswith(f"{field}={value!r} is not allowed: expected ")
    assert any(word in message for word in ("choose one of", "pass for example"))


def test_a_schedule_is_put_in_order() -> None:
    assert FixedSteps((9, 0, 4, 4)).steps == (0, 4, 9)
