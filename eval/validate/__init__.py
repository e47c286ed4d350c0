"""Validation of the plugin on a model's own weights: one page with the plugin's results beside those of controls."""
