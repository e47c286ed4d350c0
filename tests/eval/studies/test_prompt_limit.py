"""The limit of a schedule for each prompt."""

from dataclasses import replace

from galaxydit.eval.compare.methods.schedule_search import search
from galaxydit.eval.studies import prompt_limit
from galaxydit.profiles.schema import ErrorPropagation


def test_each_prompt_is_scored_with_the_shared_schedule_and_with_its_own(tiny_wan_pipeline, tiny_settings, monkeypatch):
    searched = []

    def spy(pipe, prompts, settings, seed, propagation):
        searched.append(list(prompts))
        return search(pipe, prompts, settings, seed, propagation)

    monkeypatch.setattr(prompt_limit, "search", spy)
    settings, everything = replace(tiny_settings, steps=12), ErrorPropagation()
    arguments = (tiny_wan_pipeline, ["a", "a red ball"], ["a blue ball", "a cat"], settings, 6, everything)
    found = list(prompt_limit.prompt_limits(*arguments))
    assert searched == [["a", "a red ball"], ["a blue ball"], ["a cat"]]
    assert len(found) == 2
    assert all(0 < value < 120 for pair in found for value in pair)
