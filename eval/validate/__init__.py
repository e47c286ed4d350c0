"""What a model's own weights show: the plugin beside its controls as one page."""
