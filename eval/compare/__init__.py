"""Compare acceleration methods on the same prompts, seeds and machine, at equal compute."""
