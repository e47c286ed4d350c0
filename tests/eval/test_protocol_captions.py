"""The captions of protocol 2 are unseen: the file holds what no earlier file and no earlier draw holds."""

from galaxydit.calibration.prompt_files import read_prompts
from galaxydit.eval.protocol_captions import COUNT, FILE, USED_DRAWS, used_captions
from galaxydit.pipelines.wan_tiny.world import is_held_out

PAGE_SEED, PAGE_COUNT = 4, 48  # of `python -m galaxydit.eval.model_page.evaluate`


def test_no_caption_was_trained_on_or_used_before() -> None:
    captions = read_prompts(FILE)
    assert len(set(captions)) == COUNT
    assert all(map(is_held_out, captions))
    assert not set(captions) & used_captions()


def test_the_captions_of_the_page_of_wan_tiny_count_as_used() -> None:
    assert USED_DRAWS[PAGE_SEED] >= PAGE_COUNT
