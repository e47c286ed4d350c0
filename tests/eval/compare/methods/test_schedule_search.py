"""The local search over fixed schedules."""

from dataclasses import replace

import pytest

from galaxydit.eval.compare.methods import schedule_search as searched
from galaxydit.eval.compare.methods.schedule_search import local_search, search_methods
from galaxydit.eval.compare.methods.uniform_skip import counts_around, even_schedule, full_step_counts

BEST = (0, 3, 4, 9)


def closeness(schedule, prompt):
    """Highest, 0, where the schedule is BEST; prompts differ by a constant."""
    return -float(sum(abs(a - b) for a, b in zip(schedule, BEST, strict=True))) + prompt


def test_it_finds_the_best_schedule_of_a_simple_landscape():
    found = local_search((0, 1, 2, 10), 12, 2, closeness, budget=400)
    assert found.schedule == BEST
    assert found.scores == (0.0, 1.0)


def test_it_keeps_the_first_step_the_number_of_steps_and_the_budget():
    calls = []

    def score(schedule, prompt):
        calls.append(schedule)
        return closeness(schedule, prompt)

    found = local_search((0, 1, 2, 10), 12, 3, score, budget=50)
    assert len(calls) == found.generations <= 50
    assert all(schedule[0] == 0 and len(set(schedule)) == 4 and max(schedule) < 12 for schedule in calls)


def test_what_falls_behind_is_not_tried_on_all_prompts():
    def score(schedule, prompt):
        return 0.0 if schedule == (0, 5) else -10.0

    calls = local_search((0, 5), 12, 4, score, budget=1000).generations
    assert calls < 4 + 4 * 8  # eight other places are within reach, each tried on one prompt


def test_the_same_seed_makes_the_same_moves():
    runs = [local_search((0, 1, 2, 10), 12, 1, closeness, budget=30, seed=4) for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_killed_search_goes_on_where_it_was(tiny_wan_pipeline, tiny_settings, tmp_path, monkeypatch):
    settings, prompts = replace(tiny_settings, steps=12), ["a red ball"]
    made = []
    generate = searched.generate

    def counted(*arguments):
        if len(made) == limit:
            raise KeyboardInterrupt
        made.append(arguments)
        return generate(*arguments)

    monkeypatch.setattr(searched, "generate", counted)
    method = search_methods((2.0,), 6, tmp_path)[1]
    limit = 4
    with pytest.raises(KeyboardInterrupt):
        method.calibrate(tiny_wan_pipeline, prompts, settings, 0)
    limit = 100
    killed = method.calibrate(tiny_wan_pipeline, prompts, settings, 0)
    assert len(made) == 4 + 1 + 3  # of 6 scores, 3 were kept; the plain video is made again
    whole = search_methods((2.0,), 6, tmp_path / "another")[1].calibrate(tiny_wan_pipeline, prompts, settings, 0)
    assert killed == whole
    assert len(killed["6"]) == 6


def test_counts_of_full_steps():
    assert counts_around(50, (2.0, 3.0)) == (25, 17, 16)
    assert full_step_counts(50)[0] == 42
    assert full_step_counts(50)[-1] == 14
    assert even_schedule(50, 25)[0] == 0
    assert even_schedule(50, 25)[-1] == 49
    assert len(set(even_schedule(50, 33))) == 33
