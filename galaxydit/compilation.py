"""What torch.compile gets to see: the model's blocks and nothing of the plugin.

Decisions are Python on numbers. Traced, they would become graphs without tensors, guarded by values that change at
every step, and be compiled again and again. So compiled regions begin below the plugin, at the model's own forward
functions.
"""

import torch

around_the_model = torch.compiler.disable(recursive=False)
"""For a function that calls the model: not traced itself, while the model below it is compiled."""

beside_the_model = torch.compiler.disable()
"""For a function that calls no model: never traced, nor anything that it calls."""
