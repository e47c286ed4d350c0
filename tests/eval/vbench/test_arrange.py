from pathlib import Path

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.published.vbench import DIMENSIONS, VBENCH
from galaxydit.eval.vbench.arrange import CUSTOM, STANDARD, Arrangement, legal_name, shares
from galaxydit.eval.vbench.arrange import arrange as arrange_suite
from galaxydit.eval.vbench.share_maker import lay_out
from galaxydit.pipelines.runs import Store

FLICKER, OBJECTS = DIMENSIONS["temporal_flickering"], DIMENSIONS["object_class"]
FULL_INFO = [
    {"prompt_en": "a sign", "dimension": ["temporal_flickering"]},
    {"prompt_en": "a dog", "dimension": ["object_class"], "auxiliary_info": {"object_class": {"object": "dog"}}},
    {"prompt_en": "a dog", "dimension": ["scene"]},
]


def arrange(dimension, clips, full_info, static_filter=None) -> Arrangement:
    return arrange_suite(VBENCH, dimension, clips, full_info, static_filter)


def clip(unit: str, prompt: str, sample: int, video: str) -> VideoRecord:
    return VideoRecord(unit, {}, "done", 1, 1.0, "", "", prompt=prompt, sample=sample, video=video)


def clips(*prompts: str, samples: int = 1) -> list[VideoRecord]:
    return [
        clip(f"unit {index} {sample}", prompt, sample, f"{index}-{sample}.mp4")
        for index, prompt in enumerate(prompts)
        for sample in range(samples)
    ]


def test_the_benchmarks_own_prompts_are_named_as_it_reads_them():
    found = arrange(FLICKER, clips("a sign", "a dog", samples=2), FULL_INFO)
    assert found.mode == STANDARD
    assert found.files == {"a sign-0.mp4": "unit 0 0", "a sign-1.mp4": "unit 0 1"}
    assert found.entries == [FULL_INFO[0]]
    assert not found.complete


def test_entries_keep_what_the_dimension_needs_to_know_and_leave_out_other_dimensions():
    assert arrange(OBJECTS, clips("a dog"), FULL_INFO).entries == [FULL_INFO[1]]


def test_complete_are_all_prompts_with_all_samples_and_more_samples_are_not_shown():
    found = arrange(OBJECTS, clips("a dog", samples=6), FULL_INFO)
    assert found.complete
    assert len(found.files) == 5


def test_temporal_flickering_chooses_static_videos_among_twenty_five_as_upstreams_protocol_does():
    found = arrange(FLICKER, clips("a sign", samples=26), FULL_INFO)
    assert found.static_filter
    assert found.complete
    assert len(found.files) == 25
    unfiltered = arrange(FLICKER, clips("a sign", samples=26), FULL_INFO, static_filter=False)
    assert not unfiltered.complete
    assert len(unfiltered.files) == 5


def test_other_prompts_are_filtered_only_on_request():
    assert not arrange(FLICKER, clips("a cat"), FULL_INFO).static_filter
    assert arrange(FLICKER, clips("a cat"), FULL_INFO, static_filter=True).static_filter


def test_shares_hold_each_video_once_and_whole_prompts_with_their_entries():
    names = [f"sign {index}" for index in range(5)]
    full_info = [{"prompt_en": name, "dimension": ["object_class"]} for name in names]
    whole = arrange(OBJECTS, clips(*names, samples=5), full_info)
    parts = list(shares(VBENCH, whole, 7))
    assert [len(part.files) for part in parts] == [10, 10, 5]
    assert {name: unit for part in parts for name, unit in part.files.items()} == whole.files
    assert [entry for part in parts for entry in part.entries] == full_info
    assert list(shares(VBENCH, whole, 100)) == [whole]


def test_other_prompts_are_handed_over_beside_legal_names():
    prompts = ("a/b", "a\\b", "A_b", "../..", "x" * 300, "", "日本 🐈 " * 40, 'say "hi"?', "line\nbreak")
    found = arrange(FLICKER, clips(*prompts), FULL_INFO)
    assert found.mode == CUSTOM
    assert not found.complete
    assert list(found.prompts.values()) == list(prompts)
    assert len({name.casefold() for name in found.files}) == len(prompts)
    for name in found.files:
        assert Path(name).name == name
        assert len(name.encode()) <= 255
        assert not name.startswith(".")


def test_prompts_that_are_equal_once_legal_keep_their_own_videos():
    found = arrange(FLICKER, clips("a/b", "a?b", samples=2), FULL_INFO)
    assert found.files == {
        "a_b-0.mp4": "unit 0 0",
        "a_b-1.mp4": "unit 0 1",
        "a_b-2.mp4": "unit 1 0",
        "a_b-3.mp4": "unit 1 1",
    }
    assert [found.prompts[name] for name in found.files] == ["a/b", "a/b", "a?b", "a?b"]


def test_one_other_prompt_makes_all_of_them_custom():
    assert arrange(FLICKER, clips("a sign", "a cat"), FULL_INFO).mode == CUSTOM


@pytest.mark.parametrize(
    "name", ["object_class", "multiple_objects", "scene", "appearance_style", "color", "spatial_relationship"]
)
def test_dimensions_that_refuse_other_prompts_say_so_before_anything_runs(name):
    with pytest.raises(GalaxyDiTError, match=f"{name}.*takes only the prompts of VBench 1.0, and the run has 'a cat'"):
        arrange(DIMENSIONS[name], clips("a cat"), FULL_INFO)


def test_a_dimension_without_a_prompt_in_the_run_is_refused_with_the_job_to_run():
    with pytest.raises(
        GalaxyDiTError, match="galaxydit eval vbench prompts --suite vbench --dimensions temporal_flickering"
    ):
        arrange(FLICKER, clips("a dog"), FULL_INFO)


def test_names_are_never_empty_and_keep_the_words():
    assert legal_name("a person is dancing") == "a person is dancing"
    assert legal_name("..") == legal_name("") == "_"
    assert legal_name("\ud800") == "_"


def test_videos_are_linked_and_copied_where_links_are_not_allowed(tmp_path, monkeypatch):
    (tmp_path / "0-0.mp4").write_text("video")
    folder, store = tmp_path / "videos", Store(str(tmp_path))
    lay_out(store, {"a cat-0.mp4": "0-0.mp4"}, folder)
    assert [path.name for path in folder.iterdir()] == ["a cat-0.mp4"]
    assert (folder / "a cat-0.mp4").resolve() == tmp_path / "0-0.mp4"

    def refuse(*_):
        raise OSError

    monkeypatch.setattr("os.symlink", refuse)
    folder = tmp_path / "copies"
    lay_out(store, {"a cat-0.mp4": "0-0.mp4"}, folder)
    assert not (folder / "a cat-0.mp4").is_symlink()
    assert (folder / "a cat-0.mp4").read_text() == "video"


def test_a_video_that_is_gone_is_named(tmp_path):
    with pytest.raises(GalaxyDiTError, match=r"gone\.mp4' is not there"):
        lay_out(Store(str(tmp_path)), {"a cat-0.mp4": "gone.mp4"}, tmp_path / "videos")
