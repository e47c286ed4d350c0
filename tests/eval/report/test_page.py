import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report import page
from galaxydit.eval.report.page import SCRIPTS, write_page
from galaxydit.eval.report.payload import encode, step_letters
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.vbench.results import DimensionScore, Drop, Results, VariantScores, results_path
from galaxydit.files import write_json
from galaxydit.pipelines.video import Sound, load_sound, load_video, save_video

ASSETS = Path(page.__file__).parent / "assets"


class Page(HTMLParser):
    """The elements of a page: (tag, attributes, text)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.is_open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), ""))
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:
        self.is_open = False

    def handle_data(self, data: str) -> None:
        if self.is_open:
            tag, attributes, text = self.elements[-1]
            self.elements[-1] = (tag, attributes, text + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        return next(json.loads(text) for attributes, text in self.all("script") if attributes.get("id") == "data")


def build(root: Path, embed: bool | None = None) -> Page:
    return Page(write_page(read_run(root), root / "report.html", embed).read_text(encoding="utf-8"))


def test_prompts_are_data_and_never_markup(run_of: Callable[..., Path], nasty: tuple[str, ...]) -> None:
    root = run_of(nasty)
    built = build(root)
    assert [row["prompt"] for row in built.data["rows"]] == list(nasty)
    assert len(built.all("script")) == 2 + 4 * len(nasty)
    assert not built.all("img")
    text = (root / "report.html").read_text()
    assert "document.title = 'broken'" not in text.replace("\\u003cscript>document.title = 'broken'", "")
    assert encode({"a": "</script><!--"}) == '{"a":"\\u003c/script>\\u003c!--"}'


def test_no_script_builds_markup_from_text() -> None:
    for name in SCRIPTS:
        text = (ASSETS / f"{name}.js").read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", text), name
        assert "</script" not in text
    assert {path.stem for path in ASSETS.glob("*.js")} == set(SCRIPTS)


def test_the_page_needs_no_network_and_allows_none(run_of: Callable[..., Path]) -> None:
    root = run_of(["a"])
    built = build(root)
    text = (root / "report.html").read_text()
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    policy = next(attributes["content"] for attributes, _ in built.all("meta") if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    script = next(body for attributes, body in built.all("script") if not attributes)
    for body in (script, built.all("style")[0][1]):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" in policy


def test_embedded_videos_are_the_files_themselves(run_of: Callable[..., Path]) -> None:
    root = run_of(["a red ball!", "a red ball?"])
    built = build(root, embed=True)
    contents = {attributes["id"]: body for attributes, body in built.all("script") if "id" in attributes}
    seen = []
    for row in built.data["rows"]:
        for unit in row["units"]:
            seen.append(base64.b64decode(contents[unit["video"]["embedded"]]))
    files = [(root / record.video).read_bytes() for record in read_run(root).records if record.video]
    assert seen == files
    assert "inside this page" in built.data["where"]


def test_links_lead_from_the_page_to_the_files(run_of: Callable[..., Path]) -> None:
    root = run_of(["a"], variants={"baseline": 1.0, "a+b.2": 2.0})
    built = build(root, embed=False)
    links = [unit["video"]["link"] for unit in built.data["rows"][0]["units"]]
    assert links[1].startswith("files/00000-a-s0-a%2Bb.2.")
    assert (root / links[0]).is_file()
    assert "beside this page" in built.data["where"]


def test_a_page_with_links_has_a_picture_of_each_video(run_of: Callable[..., Path]) -> None:
    root = run_of(["a"], variants={"baseline": 1.0, "a+b.2": 2.0})
    posters = [unit["video"]["poster"] for unit in build(root, embed=False).data["rows"][0]["units"]]
    assert posters[1].startswith("files/00000-a-s0-a%2Bb.2.")
    with Image.open(root / posters[0]) as picture:
        assert picture.size == (64, 64)
    assert "poster" not in build(root, embed=True).data["rows"][0]["units"][0]["video"]


def test_a_run_without_baseline_has_a_page_and_says_so(run_of: Callable[..., Path]) -> None:
    root = run_of(["a", "b"], lambda record: replace(record, metrics={"temporal_flickering": 0.9}), {"fast": 2.0})
    data = build(root).data
    assert data["notes"] == ["Made without a baseline: there are no speedups and no metrics against a reference."]
    assert not {"denoise_speedup", "psnr"} & set(data["variants"][0]["estimates"])
    assert data["worstFirst"] == "temporal_flickering"


def test_by_default_only_small_runs_are_embedded(run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = run_of(["a"])
    size = sum(path.stat().st_size for path in root.rglob("*.mp4"))
    monkeypatch.setattr(page, "EMBED_UP_TO", size)
    assert "embedded" in build(root).data["rows"][0]["units"][0]["video"]
    monkeypatch.setattr(page, "EMBED_UP_TO", size - 1)
    assert "link" in build(root).data["rows"][0]["units"][0]["video"]


def test_a_page_with_links_must_lie_in_the_run(run_of: Callable[..., Path], tmp_path: Path) -> None:
    run = read_run(run_of(["a"]))
    with pytest.raises(GalaxyDiTError, match="or pass --embed"):
        write_page(run, tmp_path / "elsewhere.html", embed=False)
    assert write_page(run, tmp_path / "elsewhere.html", embed=True).is_file()


def test_videos_are_played_as_they_are_or_as_a_copy_that_browsers_play(run_of: Callable[..., Path]) -> None:
    root = run_of(["a"], lossless=True)
    links = [unit["video"]["link"] for unit in build(root, embed=False).data["rows"][0]["units"]]
    assert all(link.startswith("previews/") for link in links)
    with av.open(str(root / links[0])) as container:
        assert container.streams.video[0].codec_context.pix_fmt == "yuv420p"
        assert container.streams.video[0].average_rate == 8
    exact = load_video(next((root / "files").glob("*-baseline.mp4")))
    assert np.abs(load_video(root / links[0]).astype(int) - exact).mean() < 3
    before = (root / links[0]).stat().st_mtime_ns
    build(root, embed=False)
    assert (root / links[0]).stat().st_mtime_ns == before


def test_the_copy_of_a_lossless_video_keeps_its_sound(tmp_path: Path) -> None:
    tone = np.sin(np.arange(16000) / 10).astype(np.float32)[None]
    for name, sound in (("silent", None), ("tone", Sound(tone, 16000))):
        save_video(np.zeros((8, 32, 32, 3)), tmp_path / f"{name}.mp4", 8, lossless=True, sound=sound)
        copy = page._playable(SimpleNamespace(variant=name, unit="a"), tmp_path / f"{name}.mp4", tmp_path / "previews")
        kept = load_sound(copy)
        assert (kept is None) == (sound is None)
    assert kept.rate == 16000
    assert np.abs(np.fft.rfft(kept.samples[0, :16000])).argmax() == pytest.approx(16000 / 10 / (2 * np.pi), abs=1)


def test_a_record_cannot_bring_a_file_from_elsewhere_into_the_page(run_of: Callable[..., Path]) -> None:
    root = run_of(["a"])
    secret = root.parent / "secret.mp4"
    secret.write_text("secret")
    path = min((root / "units").iterdir())
    data = json.loads(path.read_text())
    data["files"]["video.mp4"]["path"] = "files/../../secret.mp4"
    path.write_text(json.dumps(data))
    data = build(root).data
    assert data["rows"][0]["units"][0] == {"variant": 0, "values": {}, "absent": "not made yet"}
    assert any(note.startswith("1 damaged") for note in data["notes"])


def test_failed_missing_and_deleted_are_said_and_shown(
    run_of: Callable[..., Path], failing: Callable[[VideoRecord], VideoRecord]
) -> None:
    def change(record: VideoRecord) -> VideoRecord | None:
        if record.variant == "half-steps":
            return failing(record) if record.prompt_index == 0 else None
        return record

    root = run_of(["a", "b"], change)
    min((root / "files").glob("*-baseline.mp4")).unlink()
    data = build(root).data
    assert [note.split(":")[0] for note in data["notes"]] == ["1 failed", "1 not made yet", "1 damaged"]
    units = data["rows"][0]["units"]
    assert units[3]["failed"].endswith("<script>alert(1)</script>")
    assert units[3]["reason"] == "RuntimeError: out of memory <script>alert(1)</script>"
    assert units[1]["values"]["denoise_seconds"] == pytest.approx(1.5, rel=0.1)
    assert ["made", "2026-01-01"] in data["facts"]
    assert units[0]["absent"].endswith("-baseline.mp4 is gone")
    assert data["rows"][1]["units"][3] == {"variant": 3, "values": {}, "absent": "not made yet"}
    assert (data["variants"][3]["failed"], data["variants"][3]["missing"]) == (1, 1)
    assert ["videos", "6 of 8"] in data["facts"]


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "flipped"])
def test_a_damaged_video_is_a_hole_in_the_page_and_the_others_stay(run_of: Callable[..., Path], damage: str) -> None:
    root = run_of(["a"])
    path = min((root / "files").glob("*-baseline.mp4"))
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({"empty": b"", "cut": content[:100], "flipped": bytes(255 - x for x in content)}[damage])
    units = build(root).data["rows"][0]["units"]
    assert "video" not in units[0]
    assert units[0]["absent"]
    assert all("video" in unit for unit in units[1:])


def test_seconds_of_several_devices_are_warned_of(run_of: Callable[..., Path]) -> None:
    root = run_of(["a", "b"], lambda record: replace(record, device=f"GPU {record.prompt_index}"))
    assert build(root).data["notes"] == ["Seconds come from several devices (GPU 0, GPU 1): speedups mix them."]


def test_a_metric_that_some_videos_lack_is_said_to_be_of_the_others(run_of: Callable[..., Path]) -> None:
    def without(record: VideoRecord) -> VideoRecord:
        return replace(record, metrics={} if record.prompt == "a" else {"psnr": 30.0})

    (note,) = build(run_of(["a", "b"], without, variants={"baseline": 1.0, "fast": 2.0})).data["notes"]
    assert note == "PSNR is of 1 of 2 videos, since it was missing for the others."


def test_videos_of_several_versions_are_warned_of(run_of: Callable[..., Path]) -> None:
    root = run_of(["a", "b"], lambda record: replace(record, versions={"torch": f"2.{record.prompt_index}", "av": "1"}))
    (note,) = build(root).data["notes"]
    assert note == "Made with several versions of packages (torch 2.0, torch 2.1): means mix them."


def test_variants_of_a_failed_baseline_are_said_to_have_no_speedup(
    run_of: Callable[..., Path], failing: Callable[[VideoRecord], VideoRecord]
) -> None:
    root = run_of(["a"], lambda record: failing(record) if record.variant == "baseline" else record)
    assert build(root).data["notes"][1] == "3 without a finished baseline: they have no speedup."


def test_what_was_not_measured_is_said_with_its_reason_and_number_of_videos(run_of: Callable[..., Path]) -> None:
    def change(record: VideoRecord) -> VideoRecord:
        if record.variant == "baseline":
            return replace(record, skipped={"psnr": "it compares with the baseline, which this video is"})
        skipped = {"psnr": "it broke"} if record.prompt == "a" else {}
        return replace(record, metrics={} if skipped else record.metrics, skipped={**record.skipped, **skipped})

    root = run_of(["a", "b"], change, variants={"baseline": 1.0, "fast": 2.0})
    too_small = "MS-SSIM for 2 videos: it has 64x64 pixels: expected sides of at least 176"
    assert build(root).data["skipped"] == [too_small, "PSNR for 1 video: it broke"]


def test_benchmark_results_are_shown_with_their_drops_and_without_a_total_they_lack(
    run_of: Callable[..., Path],
) -> None:
    root = run_of(["a"], variants={"baseline": 1.0, "fast": 2.0})
    assert build(root).data["benchmarks"] == []
    flicker = DimensionScore(0.97, 92.0, "custom_input", False, {}, None)
    slower = replace(flicker, score=0.96, points=89.0, drop=Drop(3.0, 1.0, 5.0, 1))
    missing = ("scene", "color", "motion_smoothness", "dynamic_degree", "aesthetic_quality")
    variants = {
        "baseline": VariantScores({}, None, missing, {"temporal_flickering": flicker}),
        "fast": VariantScores({}, None, missing, {"temporal_flickering": slower}),
    }
    write_json(results_path(root), asdict(Results(2, "0.1.5", True, 2, variants, {"fast/scene": "no <weights>"})))
    (table,) = build(root).data["benchmarks"]
    assert (table["title"], [row["name"] for row in table["rows"]]) == ("VBench 1.0", ["temporal flickering"])
    assert table["rows"][0]["cells"] == [
        {"points": 92.0, "isPartial": True},
        {"points": 89.0, "isPartial": True, "drop": 3.0, "low": 1.0, "high": 5.0},
    ]
    notes = " ".join(table["notes"])
    for text in ("dynamic_degree and 1 more", "2 pairs of prompt and seed left out", "fast/scene: no <weights>"):
        assert text in notes
    del variants["fast"]
    write_json(results_path(root), asdict(Results(2, "0.1.5", True, 2, variants, {})))
    assert build(root).data["benchmarks"][0]["rows"][0]["cells"] == [{"points": 92.0, "isPartial": True}, None]


def test_the_page_has_a_table_for_each_benchmark(run_of: Callable[..., Path]) -> None:
    root = run_of(["a"])
    for suite, dimension in (("vbench", "temporal_flickering"), ("vbench2", "Diversity")):
        score = DimensionScore(0.97, 92.0, "custom_input", False, {}, None)
        variants = {"baseline": VariantScores({}, None, (), {dimension: score})}
        write_json(results_path(root, suite), asdict(Results(2, "1.0", True, 0, variants, {}, suite)))
    tables = build(root).data["benchmarks"]
    assert [table["title"] for table in tables] == ["VBench 1.0", "VBench-2.0"]
    assert [row["name"] for table in tables for row in table["rows"]] == ["temporal flickering", "Diversity"]
    assert tables[1]["notes"][0].startswith("vbench2 1.0")


def test_infinities_reach_the_page(run_of: Callable[..., Path]) -> None:
    root = run_of(["Infinity"], lambda record: replace(record, metrics={"psnr": float("inf")}))
    row = build(root).data["rows"][0]
    assert row["units"][1]["values"]["psnr"] == {"infinite": 1}
    assert row["prompt"] == "Infinity"


def test_a_step_is_computed_reused_or_mixed() -> None:
    calls = [(1, False), (0, False), (0, False), (1, True), (2, True), (2, True)]
    assert step_letters({"calls": [{"step": step, "reused": reused} for step, reused in calls]}) == "cmr"


def test_a_run_without_units_and_a_folder_without_a_run_are_refused(
    run_of: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(GalaxyDiTError, match="holds no finished unit"):
        read_run(run_of(["a"], lambda record: None))
    with pytest.raises(GalaxyDiTError, match="is no run"):
        read_run(tmp_path)
