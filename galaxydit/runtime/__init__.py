"""Runtime: an engine that computes or reuses each transformer call, hooks that run it, and the state of generations."""
