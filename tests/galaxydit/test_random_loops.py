"""No call of a random loop is predicted from another trajectory or branch, and loops that alternate are reused."""

import random
from collections.abc import Iterator

import pytest
import torch

import galaxydit
from tests.galaxydit.random_loops import GUIDED, PLAIN, Plan, Undisturbed, run, run_for


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_random_loops_are_never_mixed() -> None:
    tally = run_for(600.0, 3, Undisturbed(), most=400)
    assert tally.predicted > 1000
    assert tally.mixed == 0, str(tally.worst[:3])
    assert tally.reused > 0.8 * tally.expected, str(tally)


@pytest.mark.filterwarnings("error:galaxydit. the latent of a step does not continue")
@pytest.mark.parametrize("guided", GUIDED)
@pytest.mark.parametrize("scheduler", PLAIN)
def test_a_loop_that_nothing_disturbs_is_one_trajectory(scheduler: str, guided: str) -> None:
    for one_batch in (False, True):
        for steps in (12, 20):
            plan = Plan(scheduler, steps, 3.0, 1, guided, one_batch=one_batch)
            assert run([plan], random.Random(0)).predicted or (one_batch and guided == "every second step")


@pytest.mark.parametrize("scheduler", PLAIN)
def test_a_batch_whose_size_changes_in_every_step_is_computed_in_full_with_a_warning(scheduler: str) -> None:
    with pytest.warns(galaxydit.FullComputeWarning, match="the batch changed its size in several steps"):
        assert not run([Plan(scheduler, 20, 3.0, 1, "every second step", one_batch=True)], random.Random(0)).predicted
