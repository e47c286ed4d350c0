import pytest
from command_line import exit_code

CAPTIONS = ("a cat", "a dog?")


def call(*arguments) -> int:
    return exit_code("eval", "vbench", *arguments)


def test_scores_lost_points_and_the_missing_total_are_shown(make_run, fake_folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # else long numbers can fold the names of variants
    run = make_run(CAPTIONS)
    assert call(run, "--dimensions", "temporal_flickering", "--environment", fake_folder) == 0
    shown = capsys.readouterr().out
    for text in (
        "temporal_flickering",
        "baseline",
        "fast",
        "No total, which would need",
        str(run / "vbench" / "results.json"),
    ):
        assert text in shown
    assert (run / "vbench" / "results.json").is_file()


def test_what_failed_is_said_and_the_command_fails(make_run, fake_folder, fault, capsys):
    fault("dies")
    assert call(make_run(CAPTIONS), "--dimensions", "temporal_flickering", "--environment", fake_folder) == 1
    assert "error: fast/temporal_flickering: the benchmark died" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dimensions", "flicker"), "dimensions='flicker' is not allowed: expected one of 'subject_consistency', "),
        (("--dimensions", " , "), "name at least one"),
        (("--dimensions", "temporal_flickering,color"), "'color', which takes only the prompts of VBench 1.0"),
        (
            ("--dimensions", "temporal_flickering", "--environment", "nowhere"),
            "build one with `galaxydit eval vbench setup nowhere",
        ),
    ],
)
def test_bad_input_is_refused_in_a_few_words(make_run, fake_folder, capsys, arguments, words):
    assert call(make_run(CAPTIONS), "--environment", fake_folder, *arguments) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_folder_without_a_run_is_refused(tmp_path, fake_folder, capsys):
    assert call(tmp_path, "--dimensions", "temporal_flickering", "--environment", fake_folder) == 2
    assert "it is no run" in capsys.readouterr().err


def test_what_each_dimension_needs_is_shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert call("dimensions") == 0
    shown = capsys.readouterr().out
    assert "amt-s.pth (CC BY-NC 4.0)" in shown
    assert call("dimensions", "--suite", "vbench2") == 0
    assert "No module named 'llava'" in capsys.readouterr().out


def test_prompts_are_printed_for_a_jobs_file(fake_folder, capsys):
    assert call("prompts", "--environment", fake_folder, "--dimensions", "temporal_flickering") == 0
    assert capsys.readouterr().out.splitlines() == ["a stop sign", "a dog"]


def test_weights_that_no_package_index_or_link_serves_are_not_fetched(capsys):
    assert call("fetch", "--suite", "vbench2", "--dimensions", "Material") == 2
    assert "an LLM judge" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_bare_run_is_short_for_score(make_run, fake_folder, capsys):
    run = make_run(CAPTIONS)
    assert call("score", run, "--dimensions", "temporal_flickering", "--environment", fake_folder, "--json") == 0
    assert '"suite": "vbench"' in capsys.readouterr().out
