"""Methods side by side: the same prompts, seeds and machine, compared at equal compute."""
