"""Hooks on text encoders and the VAE's decoder: measure seconds and joules, and warn if the plugin was not reached."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.errors import FullComputeWarning
from galaxydit.runtime.registration import PluginHook
from galaxydit.runtime.session import Session
from galaxydit.stopwatch import BEGIN, END, Stopwatch, synchronize
from galaxydit.torch_compile import around_the_model


class EdgeHook(PluginHook):
    """Measures text encoding (s, J) if `encodes_text`, else stores when decoding ended. Warns of `missed()`, since an
    error would hit other pipelines that share the encoder or the VAE.
    """

    def __init__(self, session: Session, missed: Callable[[], str], *, encodes_text: bool) -> None:
        super().__init__()
        self.session = session
        self.missed = missed
        self.encodes_text = encodes_text

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # A clock would break the graph of a decode() that is compiled as one full graph.
        if self.removed or torch.compiler.is_compiling():
            return self.fn_ref.original_forward(*args, **kwargs)
        text = self.missed()
        if text:
            warnings.warn(f"galaxydit: {text}", FullComputeWarning, stacklevel=2)
        return self._timed(*args, **kwargs)

    @around_the_model
    def _timed(self, *args: Any, **kwargs: Any) -> Any:
        session = self.session
        # Finding the device walks all modules, and a VAE decodes a long video in many calls.
        device = None
        if self.encodes_text and session.watch is None:
            device = session.source.device
        watch = Stopwatch(device, id(session))
        watch.mark(BEGIN, wait=False)
        output = self.fn_ref.original_forward(*args, **kwargs)
        tensor = _first_tensor(output)
        if tensor is not None:
            synchronize(tensor.device)
        if self.encodes_text:
            watch.mark(END, wait=False)
            session.add_text(watch.seconds(BEGIN, END) or 0.0, watch.joules(BEGIN, END) or 0.0)
        else:
            session.decoded()
        return output


def edge_hooks(pipe: Any, session: Session, missed: Callable[[], str]) -> Iterator[tuple[nn.Module, EdgeHook]]:
    """The text encoders and the decoder of a pipeline with a hook each; none for a bare transformer."""
    if isinstance(pipe, nn.Module):
        return
    for name in ("text_encoder", "text_encoder_2", "text_encoder_3"):
        encoder = getattr(pipe, name, None)
        if isinstance(encoder, nn.Module):
            yield encoder, EdgeHook(session, missed, encodes_text=True)
    decoder = getattr(getattr(pipe, "vae", None), "decoder", None)
    if isinstance(decoder, nn.Module):
        yield decoder, EdgeHook(session, missed, encodes_text=False)


def _first_tensor(output: Any) -> Tensor | None:
    """The first tensor of a tensor, a tuple or an output class."""
    if isinstance(output, Tensor):
        return output
    values = output
    if hasattr(output, "values"):
        values = output.values()
    if isinstance(values, Iterable):
        for value in values:
            if isinstance(value, Tensor):
                return value
    return None
