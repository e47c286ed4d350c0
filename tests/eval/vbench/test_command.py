import pytest

from galaxydit.cli import main

CAPTIONS = ("a cat", "a dog?")


def call(*arguments) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["eval", "vbench", *map(str, arguments)])
    return stop.value.code


def test_scores_lost_points_and_the_missing_total_are_shown(make_run, fake_folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # else long numbers can fold the names of variants
    run = make_run(CAPTIONS)
    assert call(run, "--dimensions", "temporal_flickering", "--environment", fake_folder) == 0
    shown = capsys.readouterr().out
    for text in ("temporal_flickering", "baseline", "fast", "no total: it needs", str(run / "vbench" / "results.json")):
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
