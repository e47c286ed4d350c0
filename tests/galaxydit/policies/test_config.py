from typing import Any

import pytest

from galaxydit import Config, GalaxyDiTError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threshold", -0.1),
        ("threshold", float("nan")),
        ("threshold", "0.1"),
        ("threshold", True),
        ("warmup", 1.5),
        ("warmup", -1),
        ("proxy", "magic"),
        ("reuse", "everything"),
        ("order", 2),
        ("order", True),
        ("keep_last", -1),
        ("keep_last", 1.0),
        ("max_consecutive", 0),
        ("schedule", (0, -3)),
    ],
)
def test_a_bad_value_is_refused_with_its_field_value_and_cure(field: str, value: Any) -> None:
    with pytest.raises(GalaxyDiTError) as error:
        Config(**{field: value})
    message = str(error.value)
    assert message.startswith(f"{field}=")
    assert repr(value) in message or field == "schedule"
    assert any(word in message for word in ("choose one of", "pass for example"))


def test_a_schedule_is_put_in_order() -> None:
    assert Config(schedule=(9, 0, 4, 4)).schedule == (0, 4, 9)
