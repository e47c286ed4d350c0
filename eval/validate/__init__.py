"""Validation of the plugin on a model's own weights, beside its controls, as one page."""
