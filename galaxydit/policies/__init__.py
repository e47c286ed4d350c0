"""Policies: which steps are computed and which are reused. Numbers only, no tensors."""
