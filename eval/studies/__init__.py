"""Measurements on wan-tiny behind constants of the extrapolation; not part of an installed package."""
