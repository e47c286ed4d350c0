"""The names of policies that a user may ask for."""

POLICIES = AUTO, SCHEDULE, PROXY, PAPER = "auto", "schedule", "proxy", "paper"
