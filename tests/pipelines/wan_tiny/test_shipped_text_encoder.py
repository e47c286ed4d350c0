"""The shipped text encoder tells which object a motion belongs to; trained with the transformer it did not."""

import pytest
import torch

from galaxydit.pipelines.loading import load_pipeline


@pytest.mark.parametrize(
    ("caption", "swapped"),
    [
        (
            "a red ball moves left and a blue square moves up over a plain background",
            "a red ball moves up and a blue square moves left over a plain background",
        ),
        (
            "a green square grows , a cyan ball moves down and a red triangle orbits over a dotted background",
            "a green square orbits , a cyan ball moves down and a red triangle grows over a dotted background",
        ),
    ],
)
def test_a_motion_says_which_colour_it_belongs_to(caption: str, swapped: str) -> None:
    pipe = load_pipeline("wan-tiny")
    words = caption.split()
    moved = [index for index, (a, b) in enumerate(zip(words, swapped.split(), strict=True)) if a != b]
    assert len(moved) == 2
    first, second = (pipe.tokenizer(text, return_tensors="pt") for text in (caption, swapped))
    with torch.no_grad():
        here = pipe.text_encoder(first.input_ids, first.attention_mask).last_hidden_state[0]
        there = pipe.text_encoder(second.input_ids, second.attention_mask).last_hidden_state[0]
    for index, other in (moved, moved[::-1]):
        assert words[index] == swapped.split()[other]
        assert (here[index] - there[other]).norm() > 0.2 * here[index].norm()


def test_a_motion_changes_with_the_colour_alone() -> None:
    pipe = load_pipeline("wan-tiny")
    said = []
    for first, second in (("red", "blue"), ("blue", "red")):
        caption = f"a {first} ball moves left and a {second} ball moves up over a plain background"
        tokens = pipe.tokenizer(caption, return_tensors="pt")
        with torch.no_grad():
            said.append(pipe.text_encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state[0])
    for motion in (4, 10):
        assert (said[0][motion] - said[1][motion]).norm() > 0.1 * said[0][motion].norm()
