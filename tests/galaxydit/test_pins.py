"""Generations are those of the pinned state: decisions everywhere, latents bit by bit on the same kind of processor."""

import json
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest
import torch
from tiny_table import PIPELINES

from tests.galaxydit import pins

KEPT: dict[str, Any] = json.loads(pins.PINS.read_text(encoding="utf-8"))
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def compare(now: pins.Pin, kept: pins.Pin) -> None:
    assert now["calls"] == kept["calls"]
    if KEPT["processor"] == pins.processor():
        assert now["latents"] == kept["latents"]


@pytest.mark.parametrize("case", pins.CASES, ids=lambda case: " ".join(map(str, case)))
def test_wan_tiny_makes_the_pinned_latents(case: tuple[str, str, str, float]) -> None:
    now = pins.run_case(*case)
    assert any(call.endswith("reused") for call in now["calls"])
    assert any(call.endswith("full") for call in now["calls"])
    compare(now, KEPT["wan-tiny"][" ".join(map(str, case))])


@pytest.mark.parametrize("name", PIPELINES)
def test_a_tiny_pipeline_makes_the_pinned_latents(name: str) -> None:
    compare(pins.run_tiny(PIPELINES[name]), KEPT["tiny"][name])


def test_the_cases_hold_every_pair_of_values() -> None:
    values = [{case[index] for case in pins.CASES} for index in range(4)]
    assert [len(each) for each in values] == [3, 2, 4, 2]
    for first, second in combinations(range(4), 2):
        pairs = {(case[first], case[second]) for case in pins.CASES}
        assert pairs == set(product(values[first], values[second]))
