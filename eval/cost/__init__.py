"""Seconds and joules of a generation, predicted from the shapes of a model and checked on published measurements."""
