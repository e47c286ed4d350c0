"""Runtime: hooks, generations and the engine that computes or reuses one transformer call."""
