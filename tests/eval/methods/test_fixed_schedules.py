"""The control with searched schedules."""

from dataclasses import replace

from galaxydit.eval.methods.fixed_schedules import even_schedule, full_step_counts, search


def test_a_schedule_is_found_for_each_number_of_full_steps(tiny_wan_pipeline, tiny_settings):
    found = search(tiny_wan_pipeline, ["a red ball", "a"], replace(tiny_settings, steps=12), 0)
    assert {int(count): len(schedule) for count, schedule in found.items()} == {n: n for n in full_step_counts(12)}
    assert all(schedule[0] == 0 and schedule[-1] == 11 for schedule in found.values())


def test_counts_of_full_steps():
    assert full_step_counts(50)[0] == 42
    assert full_step_counts(50)[-1] == 11
    assert even_schedule(50, 25)[0] == 0
    assert even_schedule(50, 25)[-1] == 49
    assert len(set(even_schedule(50, 33))) == 33
