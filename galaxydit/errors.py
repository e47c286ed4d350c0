"""What can go wrong, by name."""


class GalaxyDiTError(ValueError):
    """Bad input. The message names the field, the value, what is allowed and the cure."""


class FullComputeWarning(UserWarning):
    """Something was not understood, so the model was computed in full; the report carries the same text in `notes`."""


class NoEffectWarning(UserWarning):
    """The plugin is attached but can reuse nothing with these settings."""


class ProfileWarning(UserWarning):
    """A profile is used under conditions other than those it was measured under; the report carries the same text."""
