"""Policies: objects that decide which steps are computed and which are reused, from numbers alone, not tensors."""
