"""Prompts of which a pipeline reads only the beginning."""

import json
import warnings
from collections.abc import Iterable

from diffusers import DiffusionPipeline
from transformers import PreTrainedTokenizerBase

from galaxydit.errors import DataWarning, listed
from galaxydit.pipelines.modular import parameters_of


def warn_of_long_prompts(pipe: DiffusionPipeline, prompts: Iterable[str]) -> None:
    """Warn of the first prompt with more tokens than the pipeline reads, because Wan cuts off the rest silently.

    Prompts are those of `parse_inputs`. A pipeline without a known limit and tokenizer gives no warning.
    """
    taken = parameters_of(pipe)
    limit = None
    if "max_sequence_length" in taken:
        limit = taken["max_sequence_length"].default
    tokenizer = getattr(pipe, "tokenizer", None)
    if type(limit) is not int or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    for prompt in listed("prompts", prompts):
        if prompt.lstrip().startswith("{"):
            text = json.loads(prompt)["prompt"]
        else:
            text = prompt
        text = " ".join(text.split())  # as the pipelines of Wan clean it
        count = len(tokenizer(text, verbose=False).input_ids)  # verbose warns that the model would fail
        if count > limit:
            said = f"{type(pipe).__name__} reads {limit} tokens, so the end of a prompt of {count} has no effect"
            warnings.warn(f"galaxydit: {said}; shorten prompt={text[:60] + '...'!r}", DataWarning, stacklevel=2)
            return
