"""A prompt that is longer than the pipeline reads is warned of."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from command_line import exit_code
from diffusers import DiffusionPipeline, WanPipeline

from galaxydit.errors import DataWarning
from galaxydit.pipelines.prompt_length import warn_of_long_prompts

LIMIT = 512  # tokens, the last of which ends the text


def is_warned_of(pipe: DiffusionPipeline, *prompts: str) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_long_prompts(pipe, prompts)
    assert len(caught) <= 1
    return any(each.category is DataWarning for each in caught)


@pytest.mark.parametrize("words", [3, LIMIT - 1, LIMIT, 2 * LIMIT])
def test_a_prompt_is_warned_of_if_and_only_if_the_pipeline_does_not_read_its_end(
    words: int, tiny_wan_pipeline: WanPipeline
) -> None:
    prompts = [" ".join(["a"] * (words - 1) + [end]) for end in ("ball", "square")]
    ball, square = (
        tiny_wan_pipeline.encode_prompt(prompt, do_classifier_free_guidance=False, max_sequence_length=LIMIT)[0]
        for prompt in prompts
    )
    assert is_warned_of(tiny_wan_pipeline, prompts[0]) == torch.equal(ball, square)
    assert is_warned_of(tiny_wan_pipeline, json.dumps({"prompt": prompts[0]})) == torch.equal(ball, square)


def test_one_warning_names_the_first_long_prompt_the_limit_and_the_cure(tiny_wan_pipeline: WanPipeline) -> None:
    texts = ["a red ball", "a red ball " * 300, "a blue ball " * 300]
    with pytest.warns(DataWarning, match=r"WanPipeline reads 512 tokens.* of 901 .*; shorten prompt='a red ball"):
        warn_of_long_prompts(tiny_wan_pipeline, texts)
    assert is_warned_of(tiny_wan_pipeline, *texts)


def test_no_warning_without_a_known_limit_or_tokenizer(tiny_wan_pipeline: WanPipeline) -> None:
    class WithoutLimit(WanPipeline):
        def __call__(self, prompt: str) -> None: ...

    parts = tiny_wan_pipeline.components
    assert not is_warned_of(WithoutLimit(**parts), "a red ball " * 300)
    assert not is_warned_of(WanPipeline(**parts | {"tokenizer": None}), "a red ball " * 300)


@pytest.mark.parametrize("option", ["--prompt", "--prompts"])
def test_generate_warns_of_a_long_prompt(
    option: str, tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a red ball " * 300
    (tmp_path / "p.txt").write_text(text)
    given = {
        "--prompt": [text, "--out", tmp_path / "a.mp4"],
        "--prompts": [tmp_path / "p.txt", "--out", tmp_path / "r"],
    }
    sizes = ["--steps", "2", "--height", "32", "--width", "32", "--frames", "5", "--no-accelerate"]
    assert exit_code("generate", "--model", str(tiny_wan_folder), option, *map(str, given[option]), *sizes) == 0
    assert capsys.readouterr().err.count("WanPipeline reads 512 tokens") == 1
