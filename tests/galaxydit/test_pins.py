"""Generations are those of the pinned state: decisions everywhere, latents bit by bit on the same kind of processor."""

import json
import os
import subprocess
import sys
from itertools import combinations, product
from typing import Any

from tests.galaxydit import pins


def made_by_a_process_of_its_own() -> dict[str, Any]:
    """All pins of this state; in this process, earlier tests may have chosen other kernels."""
    command = [sys.executable, "-m", "tests.galaxydit.pins", "--show"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def test_generations_are_those_of_the_pinned_state() -> None:
    kept = json.loads(pins.PINS.read_text(encoding="utf-8"))
    made = made_by_a_process_of_its_own()
    same_processor = made.pop("processor") == kept.pop("processor")
    differing = []
    for kind in kept:
        assert made[kind].keys() == kept[kind].keys()
        for name, pin in made[kind].items():
            if pin["calls"] != kept[kind][name]["calls"]:
                differing.append(f"decisions of {kind} {name}")
            elif same_processor and pin["latents"] != kept[kind][name]["latents"]:
                differing.append(f"latents of {kind} {name}")
    assert not differing
    for pin in made["wan-tiny"].values():
        assert {call.rpartition(" ")[2] for call in pin["calls"]} == {"full", "reused"}


def test_the_cases_hold_every_pair_of_values() -> None:
    values = [{case[index] for case in pins.CASES} for index in range(4)]
    assert [len(each) for each in values] == [3, 2, 4, 2]
    for first, second in combinations(range(4), 2):
        pairs = {(case[first], case[second]) for case in pins.CASES}
        assert pairs == set(product(values[first], values[second]))
