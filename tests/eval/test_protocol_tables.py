"""The tables of protocol 2, on invented data of the form that `galaxydit compare` writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from galaxydit.calibration.prompt_files import read_prompts
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compared import GENERAL, OURS, RESULTS, ROOT, NotMeasuredError, ResultsFile
from galaxydit.eval.protocol_captions import FILE
from galaxydit.eval.protocol_data import (
    FLOAT32,
    FOLDER,
    REPEATED,
    SPEEDUPS,
    ProtocolData,
    protocol_data,
    runs_of,
)
from galaxydit.eval.protocol_tables import (
    bfloat16_section,
    draws_section,
    equal_compute_section,
    equal_psnr_section,
    other_methods_section,
)
from galaxydit.eval.quality_over_speed import shown
from galaxydit.eval.readme_animation import usual_case
from galaxydit.eval.readme_sections import lead_section, peers_section, quality_rows

PAGE = ROOT / "README.md"
SCHEDULED, OPTIMISED, EVENLY = "plain at scheduled levels", "optimised noise levels", "fewer steps"
SPREAD = dict(zip("abcdefghi", (-3.0, -1, 0, 0, 1, 3, -2, 2, 0), strict=True))  # of a caption's PSNRs around the mean
Rows = dict[str, list[tuple[dict[str, Any], float, float]]]  # by method: setting, speedup, mean PSNR

PLANNED = [({"speedup": speedup}, speedup) for speedup in SPEEDUPS]
FIRST_ROWS: Rows = {
    OURS: [(setting, at, psnr) for (setting, at), psnr in zip(PLANNED, (44, 40, 32), strict=True)],
    GENERAL: [(setting, at, psnr) for (setting, at), psnr in zip(PLANNED, (42, 38, 31), strict=True)],
    SCHEDULED: [(setting, at, psnr) for (setting, at), psnr in zip(PLANNED, (43, 37, 29), strict=True)],
    OPTIMISED: [({"steps": 50 / at}, at, psnr) for at, psnr in zip(SPEEDUPS, (41, 39, 33), strict=True)],
    EVENLY: [({"steps": 50 / at}, at, psnr) for at, psnr in zip(SPEEDUPS, (27, 23, 18), strict=True)],
    REPEATED: [({"steps": 50}, 1.0, 90)],
    "SeaCache order 1": [
        ({"threshold": value}, at, psnr) for value, at, psnr in ((1, 1.6, 41), (2, 2.1, 37), (3, 4.2, 22))
    ],
    "TaylorSeer": [
        ({"cache_interval": value}, at, psnr) for value, at, psnr in ((2, 1.4, 39), (3, 2.0, 35), (4, 1.9, 30))
    ],
    "DBCache planned masks": [({"plan": value}, at, psnr) for value, at, psnr in ((2, 1.7, 40.5), (3, 2.4, 33))],
    "Spectrum": [({"window": value}, at, psnr) for value, at, psnr in ((1, 2.2, 42), (2, 3.3, 30))],
}
DRAWN = {f"{OURS} draw-1": (43, 39, 31), f"{OURS} draw-2": (42, 38, 33)}
DRAWS_ROWS: Rows = {
    name: [(*one, psnr) for one, psnr in zip(PLANNED, psnrs, strict=True)] for name, psnrs in DRAWN.items()
}
OTHER_ROWS: Rows = {
    OURS: FIRST_ROWS[OURS],
    "EasyCache": [({"threshold": 1}, 1.3, 41), ({"threshold": 2}, 2.5, 30)],
    "Pyramid Attention Broadcast": [({"spatial": 2}, 1.2, 30)],
}


def write(folder: Path, captions: str, rows: Rows, dtype: str = "float32", device: str = "a GPU") -> None:
    """A results.json of these captions."""
    made = []
    for method, settings in rows.items():
        for setting, speedup, psnr in settings:
            values = [psnr + SPREAD[caption] for caption in captions]
            row = {"method": method, "setting": setting, "compute_fraction": 1 / speedup, "psnr_of_prompt": values}
            made.append(row)
    conditions = {"dtype": dtype, "device": device, "versions": {"torch": "2.11.0"}, "settings": {"steps": 50}}
    plan = {"prompts": list(captions), "seeds": [list(SPREAD).index(captions[0])]}
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"conditions": conditions, "plan": plan, "rows": made}))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The first table in two parts, other methods on the first part, and bfloat16."""
    part = tmp_path / FOLDER
    write(part / "part-0", "abcdef", FIRST_ROWS)
    write(part / "part-6", "gh", FIRST_ROWS)
    write(part / "others", "abcdef", OTHER_ROWS)
    write(part / "draws", "abcdef", DRAWS_ROWS | {GENERAL: FIRST_ROWS[GENERAL]})
    write(part / "bfloat16", "abcdef", {OURS: FIRST_ROWS[OURS], REPEATED: [({"steps": 50}, 1.0, 33.8)]}, "bfloat16")
    return tmp_path


@pytest.fixture
def first(results: Path) -> ProtocolData:
    return protocol_data(results, FLOAT32)


def cells_of(markdown: str, name: str) -> list[str]:
    """The cells of the first row with this name."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in markdown.splitlines()]
    return next(cells[1:] for cells in rows if cells[0] == name)


def test_parts_of_the_captions_are_one_table(first: ProtocolData) -> None:
    assert first.captions == tuple("abcdefgh")
    assert first.at(2.0).mean == 40.0
    assert first.devices == {"a GPU": 8}


def test_captions_count_that_all_methods_finished(results: Path) -> None:
    write(results / FOLDER / "part-8", "gh"[:1], {OURS: [({"speedup": 9.0}, 9.0, 1.0)]})
    fewer = protocol_data(results, FLOAT32, [OURS, "EasyCache"])
    assert fewer.captions == tuple("abcdef")
    assert fewer.requested(OURS, 9.0) is None, "a setting that lacks captions is left out"


def test_only_processors_of_shown_captions_are_named(results: Path) -> None:
    write(results / FOLDER / "elsewhere", "i", {OURS: [({"speedup": 2.0}, 2.0, 40.0)]}, device="another GPU")
    found = protocol_data(results, FLOAT32)
    assert found.devices == {"a GPU": 8}


def test_a_setting_of_this_compute_stands_alone_and_others_show_both_sides(results: Path) -> None:
    made = equal_compute_section(results, PAGE)
    assert cells_of(made, "galaxydit calibrated")[:2] == ["44.0 (41.0)", "40.0 (37.0)"]
    assert cells_of(made, "SeaCache order 1")[1] == "at 1.60x: 41.0 (38.0); at 2.10x: 37.0 (34.0)"
    assert cells_of(made, "Spectrum")[1] == "**at 2.20x: 42.0 (39.0)**", (
        "a faster and better setting stands for slower ones"
    )
    assert cells_of(made, "TaylorSeer")[1] == "35.0 (32.0)", "the setting that is slower and worse does not count"
    assert "Rounding alone leaves 90.0 dB" in made


def test_differences_are_taken_to_the_same_speedup_or_to_both_sides_of_it(results: Path) -> None:
    made = equal_compute_section(results, PAGE)
    assert cells_of(made, "galaxydit calibrated - the strongest control")[:2] == ["+1.0 (+1.0 to +1.0)"] * 2
    at_2x = cells_of(made, "galaxydit calibrated - SeaCache order 1")[1]
    assert at_2x == "at 1.60x: -1.0 (-1.0 to -1.0); at 2.10x: +3.0 (+3.0 to +3.0)"
    all_faster = cells_of(made, "galaxydit calibrated - DBCache planned masks")[0]
    assert all_faster == "at 1.70x: +3.5 (+3.5 to +3.5)"


def test_at_equal_psnr_the_settings_on_both_sides_of_the_target_are_shown(results: Path) -> None:
    _, _, at_2x, _ = equal_psnr_section(results, PAGE).split("As good as")
    assert cells_of(at_2x, "SeaCache order 1") == [
        "1.60x",
        "+1.0 (+1.0 to +1.0)",
        "2.10x",
        "-3.0 (-3.0 to -3.0)",
        "0.95 to 1.25",
    ]
    assert cells_of(at_2x, "TaylorSeer") == ["none", "-", "1.40x", "-1.0 (-1.0 to -1.0)", "above 1.43"]
    assert cells_of(at_2x, "galaxydit calibrated") == ["2.00x", "same", "3.00x", "-8.0 (-8.0 to -8.0)", "1.00"]


def test_other_methods_have_the_captions_that_they_finished(results: Path) -> None:
    made = other_methods_section(results, PAGE)
    assert "n = 6 captions" in made
    both_sides = "at 1.30x: -1.0 (-1.0 to -1.0); at 2.50x: +10.0 (+10.0 to +10.0)"
    assert cells_of(made, "EasyCache")[1:] == [both_sides, "1.30x", "0.80 to 1.54"]
    assert cells_of(made, "Pyramid Attention Broadcast")[2:] == ["none", "above 1.67"]


def test_calibrations_are_compared_with_the_general_schedule_by_mean_and_by_worst_of_them(results: Path) -> None:
    made = draws_section(results, PAGE)
    assert cells_of(made, "2 calibrations - galaxydit uncalibrated") == [
        "+0.5 (+0.5 to +0.5)",
        "+0.5 (+0.5 to +0.5)",
        "+1.0 (+1.0 to +1.0)",
    ]
    assert cells_of(made, "worst and best of the calibrations") == ["+0.0 and +1.0", "+0.0 and +1.0", "+0.0 and +2.0"]


def test_bfloat16_stands_beside_its_rounding(results: Path) -> None:
    made = bfloat16_section(results, PAGE)
    assert cells_of(made, f"{REPEATED}, without speedup") == ["33.8"] * len(SPEEDUPS)
    assert "Without data: galaxydit uncalibrated, plain at scheduled levels" in made


def test_the_readme_shows_controls_and_the_lead_over_the_strongest_in_float32(
    results: Path, first: ProtocolData
) -> None:
    rows = {name: cells for name, *cells in quality_rows(first)}
    assert rows["PSNR, calibrated, dB"] == ["-", "40.0", "32.0"]
    controls = [cells for name, cells in rows.items() if "fewer plain steps" in name]
    assert controls == [["-", "37.0", "29.0"], ["-", "39.0", "33.0"], ["-", "23.0", "18.0"]]
    lead = rows["calibrated minus the best of the plain steps, dB"]
    assert lead == ["-", "+1.0 (+1.0 to +1.0)", "-1.0 (-1.0 to -1.0)"]
    assert cells_of(lead_section(results, PAGE), "minus the strongest control")[2] == "-1.0 (-1.0 to -1.0)"
    easy_cache = ["1.30x", "0.80 to 1.54", "at 1.30x: 41.0; at 2.50x: 30.0", "40.0", "6"]
    write(results / FOLDER / "known", "abcdef", {"TeaCache": [({"threshold": 1}, 2.5, 30)]})
    made = peers_section(results, PAGE)
    assert cells_of(made, "EasyCache") == easy_cache
    assert cells_of(made, "TeaCache") == ["none", "above 0.80", "at 2.50x: 30.0", "40.0", "6"]


def test_the_picture_leaves_out_methods_with_fewer_captions(results: Path) -> None:
    drawn = shown(results)
    assert drawn.captions == 8
    assert "EasyCache" not in {line.method for line in drawn.lines}


def test_the_picture_has_the_measured_settings_of_all_methods(results: Path) -> None:
    write(results / FOLDER / "others-6", "gh", OTHER_ROWS)
    drawn = shown(results)
    lines = {line.method: line for line in drawn.lines}
    assert drawn.captions == 8
    assert lines[OURS].psnrs == (44.0, 40.0, 32.0)
    assert lines["EasyCache"].speedups == pytest.approx((1.3, 2.5))
    assert lines["Spectrum"].is_named
    assert REPEATED not in lines


def test_the_clip_shows_the_caption_nearest_to_the_means(results: Path) -> None:
    case = usual_case(results)
    assert (case.caption, case.seed, case.captions) == ("c", 100_002, 8)
    assert case.means == {2.0: 40.0, 3.0: 32.0}


def test_a_caption_on_two_processors_is_refused(results: Path) -> None:
    write(results / FOLDER / "another", "a", OTHER_ROWS, device="a CPU")
    with pytest.raises(GalaxyDiTError, match="measure all methods of a caption on one processor"):
        protocol_data(results, FLOAT32)


def test_other_conditions_are_refused(results: Path) -> None:
    path = results / FOLDER / "others" / "results.json"
    data = json.loads(path.read_text())
    data["conditions"]["settings"]["steps"] = 20
    path.write_text(json.dumps(data))
    with pytest.raises(GalaxyDiTError, match="different conditions"):
        runs_of(results, FLOAT32)


@pytest.mark.parametrize("path", sorted((RESULTS / FOLDER).rglob("results.json")), ids=lambda path: path.parent.name)
def test_committed_captions_have_the_places_of_the_protocol(path: Path) -> None:
    run = ResultsFile(path)
    first = int(run.seeds)  # the noise of a caption is 100,000 plus its place
    assert run.captions == tuple(read_prompts(FILE)[first : first + len(run.captions)])


def test_without_data_no_table_is_made(tmp_path: Path) -> None:
    for section in (equal_compute_section, equal_psnr_section, other_methods_section, bfloat16_section, lead_section):
        with pytest.raises(NotMeasuredError):
            section(tmp_path, PAGE)
