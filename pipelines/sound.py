"""The sound that some pipelines make beside a video."""

import warnings
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline

from galaxydit.errors import DataWarning
from galaxydit.pipelines.video import AAC_RATES, LAYOUTS, Sound


def sound_of(pipe: DiffusionPipeline, output: Any) -> Sound | None:
    """The sound in the output for one prompt, None without; warns of sound that is not understood."""
    found = next((each for name in ("audio", "sound") if (each := getattr(output, name, None)) is not None), None)
    if found is None:
        return None
    vocoder = getattr(getattr(pipe, "vocoder", None), "config", {})
    rate = vocoder.get("output_sampling_rate")  # before the others, which may be of the spectrogram that it reads
    for name in ("audio_sample_rate", "audio_sampling_rate"):  # the latter of modular pipelines
        rate = rate or getattr(pipe, name, None)
    rate = getattr(output, "sampling_rate", None) or rate  # a modular pipeline may return it beside the sound
    try:
        has_batch = isinstance(found, list | tuple) or found.ndim == 3  # one prompt, so that 2 rows are 2 channels
        waveform = torch.as_tensor(found[0] if has_batch else found)
        samples = np.atleast_2d(waveform.detach().float().cpu().numpy())
        is_sound = samples.ndim == 2 and len(samples) in LAYOUTS and samples.size > 0 and np.isfinite(samples).all()
        if rate in AAC_RATES and is_sound and waveform.is_floating_point():
            return Sound(samples.clip(-1, 1), int(rate))
        problem = f"shape {samples.shape}, {waveform.dtype}, rate {rate}"
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError) as error:
        problem = str(error)
    text = f"galaxydit: the sound of {type(pipe).__name__} is lost, because it is not understood ({problem})"
    warnings.warn(text, DataWarning, stacklevel=3)
    return None
