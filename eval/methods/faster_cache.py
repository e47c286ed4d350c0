"""FasterCache (arXiv 2410.19355): reuse attention outputs, and predict the unconditional branch in the Fourier domain.

diffusers' cache works on one batch with the unconditional half first. WanPipeline calls the transformer once per branch
instead, so a hook around the cache computes both branches together.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline, FasterCacheConfig
from torch import Tensor, nn

from galaxydit.errors import refusal
from galaxydit.eval.methods.caches import AdapterHook, enabled, timestep_left
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.trial import Attached


class JoinedBranches(AdapterHook):
    """Computes both branches in one batch at the conditional call; the next call returns the other half.

    The unconditional embedding is needed before the pipeline passes it, so the hook keeps what `encode_prompt` returns.
    """

    def __init__(self, pipe: DiffusionPipeline) -> None:
        super().__init__()
        self.negative: Tensor | None = None
        self._unconditional: Tensor | None = None
        encode = pipe.encode_prompt

        def listen(*args: Any, **kwargs: Any) -> Any:
            texts = encode(*args, **kwargs)
            self.negative = texts[1]
            return texts

        pipe.encode_prompt = listen

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.negative is None:
            expected = "a number above 1, because FasterCache predicts the unconditional branch"
            raise refusal("guidance_scale", 1, expected, "raise the guidance scale or leave the method out")
        if self.state_manager.context.name == "uncond":
            return (self._unconditional,)
        text = kwargs["encoder_hidden_states"]
        kwargs = kwargs | {
            "hidden_states": torch.cat([kwargs["hidden_states"]] * 2),
            "timestep": torch.cat([kwargs["timestep"]] * 2),
            "encoder_hidden_states": torch.cat([self.negative.to(text), text]),
        }
        output = self.fn_ref.original_forward(*args, **kwargs)
        self._unconditional, conditional = output[0].chunk(2)
        return (conditional,)

    def reset_state(self, module: nn.Module) -> None:
        super().reset_state(module)
        self._unconditional = None


def _settings(steps: int) -> list[Setting]:
    listed: list[Setting] = []
    for alpha in (1.0, 1.1):
        for every, attention in ((2, 2), (3, 2), (5, 2), (5, 4), (10, 4), (20, 6)):
            for start in (681, 901):
                listed.append(
                    {"unconditional_every": every, "attention_every": attention, "start": start, "alpha": alpha}
                )
    return listed


def _published_settings(steps: int) -> list[Setting]:
    """The intervals of diffusers' documentation, and those of arXiv 2609.36433."""
    listed: list[Setting] = []
    for every, attention in ((5, 2), (8, 8)):
        listed.append({"unconditional_every": every, "attention_every": attention, "start": 681, "alpha": 1.1})
    return listed


@method("FasterCache", "FasterCache, arXiv 2410.19355; diffusers", _settings, published=_published_settings)
@contextmanager
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    left = timestep_left(pipe)
    window = (-1, setting["start"])
    config = FasterCacheConfig(
        spatial_attention_block_skip_range=setting["attention_every"],
        spatial_attention_timestep_skip_range=window,
        unconditional_batch_skip_range=setting["unconditional_every"],
        unconditional_batch_timestep_skip_range=window,
        alpha_low_frequency=setting["alpha"],
        alpha_high_frequency=setting["alpha"],
        attention_weight_callback=lambda _: 1 - left() / 1000,  # grows from 0 to 1 over the steps, as published
        current_timestep_callback=left,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.meshgrid")
        with enabled(pipe, config, lambda: JoinedBranches(pipe)) as attached:
            yield attached
