"""No call of a random loop is predicted from another trajectory or branch, and loops that alternate are reused."""

from collections.abc import Iterator

import pytest
import torch

from tests.galaxydit.random_loops import Undisturbed, run_for


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_random_loops_are_never_mixed() -> None:
    tally = run_for(600.0, 3, Undisturbed(), most=50)
    assert tally.predicted > 100
    assert tally.mixed == 0, str(tally.worst[:3])
    assert tally.reused > 0.8 * tally.expected, str(tally)
