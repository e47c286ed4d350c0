"""The arena: every method on the same prompts, seeds and machine, compared at equal compute."""
