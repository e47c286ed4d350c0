"""Measure end-to-end seconds and joules at the text encoders and at the VAE's decoder."""

import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.clock import synchronize
from galaxydit.energy import difference, read
from galaxydit.runtime.registration import HOOK_NAME, PluginHook
from galaxydit.runtime.session import Session
from galaxydit.torch_compile import around_the_model


class TimerHook(PluginHook):
    """Hook on a text encoder or the VAE's decoder.

    On a text encoder (`encodes_text`), it adds up the seconds and joules of text encoding in the session. On the
    decoder, it stores the time at which decoding ended.
    """

    def __init__(self, session: Session, *, encodes_text: bool) -> None:
        super().__init__()
        self.session = session
        self.encodes_text = encodes_text
        self.name = f"{HOOK_NAME} timer {id(session):x}"  # pipelines share text encoders and VAEs

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # decode() compiled as one full graph, which a clock would break
            return self.fn_ref.original_forward(*args, **kwargs)
        return self._timed(*args, **kwargs)

    @around_the_model
    def _timed(self, *args: Any, **kwargs: Any) -> Any:
        session, device = self.session, self.session.source.device
        before = read(device, id(session)) if self.encodes_text else None
        start = time.perf_counter()
        output = self.fn_ref.original_forward(*args, **kwargs)
        parts = (output,) if isinstance(output, Tensor) else getattr(output, "values", lambda: output)()
        for tensor in parts if isinstance(parts, Iterable) else ():
            if isinstance(tensor, Tensor):
                synchronize(tensor.device)
                break
        if self.encodes_text:
            session.text_seconds += time.perf_counter() - start
            session.text_joules += difference(before, read(device, id(session))) or 0.0
        else:
            session.decoded()
        return output
