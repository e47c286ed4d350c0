"""The captions of protocol 2 are unseen: the file holds what no earlier file and no earlier draw holds."""

from galaxydit.calibration.prompt_files import read_prompts
from galaxydit.eval.protocol_captions import COUNT, FILE, USED_DRAWS, USED_FILES
from galaxydit.pipelines.wan_tiny.world import draw_prompts, is_held_out

PAGE_SEED, PAGE_COUNT = 4, 48  # of `python -m galaxydit.eval.model_page.evaluate`


def test_no_caption_was_trained_on_or_is_in_a_file_that_was_used_before() -> None:
    captions = read_prompts(FILE)
    assert len(set(captions)) == COUNT
    assert all(map(is_held_out, captions))
    for path in USED_FILES:
        assert not set(captions) & set(read_prompts(path)), path.name


def test_no_caption_is_one_of_the_page_of_wan_tiny() -> None:
    assert USED_DRAWS[PAGE_SEED] >= PAGE_COUNT
    assert not set(read_prompts(FILE)) & set(draw_prompts(PAGE_COUNT, PAGE_SEED))
