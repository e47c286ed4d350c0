"""The names of policies that a user may ask for."""

from typing import Final, Literal, get_args

PolicyName = Literal["auto", "schedule", "proxy", "paper"]
AUTO: Final = "auto"
SCHEDULE: Final = "schedule"
PROXY: Final = "proxy"
PAPER: Final = "paper"
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
