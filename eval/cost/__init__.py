"""Seconds and joules of a generation: predicted from the shapes of a model, held to published measurements."""
