"""Measurements on wan-tiny, the embedded 64x64 model, that justify choices of this project; not installed with it."""
