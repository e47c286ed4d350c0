import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from galaxydit.errors import GalaxyDiTError
from galaxydit.files import create_file
from galaxydit.pipelines.runs import Outcome, Record, Store, Unit, not_checked, run
from galaxydit.pipelines.runs.run_conditions import differences

UNIT, OTHER = Unit("a", {"seed": 1}), Unit("b", {"seed": 2})


def record_of(unit: Unit, **fields: Any) -> Record:
    done = {"status": "done", "result": {"psnr": 40.0}}
    return Record(
        unit.id, unit.data, **(done | fields), attempts=1, seconds=1.0, worker="n:1", finished_at="2026-01-01"
    )


@pytest.fixture(params=["local", "remote"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store in a folder, and one in fsspec's file system in memory, which stands for a bucket."""
    store = Store(tmp_path / "run" if request.param == "local" else "memory://bucket/run")
    store.create("test", {})
    yield store
    fsspec.filesystem("memory").store.clear()


def test_an_id_is_a_name_and_the_hash_of_the_data():
    assert UNIT.id == "a-" + Unit("b", {"seed": 1}, "group").id[2:]
    assert UNIT.id != Unit("a", {"seed": 2}).id
    assert Unit("a", {"x": 1, "y": 2}).id == Unit("a", {"y": 2, "x": 1}).id


@given(st.text())
def test_any_text_can_be_data(text: str):
    assert set(Unit("a", {"prompt": text}).id) <= set("abcdef0123456789-")


def test_a_record_is_read_back_with_its_files(any_store: Store):
    written = any_store.commit(record_of(UNIT), {"video.mp4": b"12345"})
    assert any_store.read(UNIT.id) == written
    assert any_store.local_path(written.files["video.mp4"].path).read_bytes() == b"12345"
    assert written.files["video.mp4"].bytes == 5
    assert any_store.unit_ids() == {UNIT.id}
    assert [(unit, damage) for unit, _, damage in any_store.survey([UNIT.id], wholly=True)] == [(UNIT.id, "")]


def test_the_first_record_stays_and_the_second_leaves_no_file(any_store: Store):
    first = any_store.commit(record_of(UNIT), {"video.mp4": b"first"})
    assert any_store.commit(record_of(UNIT, result=2), {"video.mp4": b"second"}) == first
    assert list(any_store._list("files")) == [first.files["video.mp4"].path.removeprefix("files/")]


def test_a_result_takes_the_place_of_a_failure_and_of_a_damaged_record(any_store: Store):
    any_store.commit(record_of(UNIT, status="failed", traceback="Error", result=None), {})
    assert any_store.commit(record_of(UNIT), {}).is_done
    any_store._write(f"units/{UNIT.id}.json", b"{")
    assert any_store.commit(record_of(UNIT), {}).is_done
    assert any_store.commit(record_of(UNIT, status="failed", traceback="Error"), {}).is_done


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "flipped"])
def test_damaged_files_are_found_by_size_and_wholly_by_content(any_store: Store, damage: str):
    path = any_store.commit(record_of(UNIT), {"video.mp4": b"12345"}).files["video.mp4"].path
    if damage == "gone":
        any_store._remove([path])
    else:
        any_store._write(path, {"empty": b"", "cut": b"123", "flipped": b"12344"}[damage])
    ((_, record, by_size),) = any_store.survey([UNIT.id])
    ((_, _, wholly),) = any_store.survey([UNIT.id], wholly=True)
    assert record is not None
    assert bool(by_size) == (damage != "flipped")
    assert path in wholly


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "format"),
        ({"attempts": "x"}, "attempts"),
        ({"status": "half"}, "status"),
        ({"unit": "other"}, "it names the unit other"),
        ({"files": {"v": {"path": "files/../../etc/passwd", "bytes": 1, "sha256": ""}}}, "no file of this unit"),
        ({"files": {"v": {"path": f"files/{OTHER.id}.0123abcd.v", "bytes": 1, "sha256": ""}}}, "no file of this unit"),
        ({"data": {}}, "data: of another unit"),
        ({"data": {"seed": float("nan")}}, "data: of another unit"),
        ({"finished_at": "yesterday"}, "finished_at: .*isoformat"),
        ({"finished_at": "0001-01-01T00:00:00"}, "finished_at"),
    ],
)
def test_a_damaged_record_is_refused_by_field(store: Store, change: dict[str, Any], message: str):
    store.commit(record_of(UNIT), {})
    path = Path(store.root, "units", f"{UNIT.id}.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(GalaxyDiTError, match=message):
        store.read(UNIT.id)
    assert [record for _, record, _ in store.survey([UNIT.id])] == [None]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_off_record_is_refused(store: Store, share: float):
    store.commit(record_of(UNIT), {})
    path = Path(store.root, "units", f"{UNIT.id}.json")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(GalaxyDiTError, match="is damaged"):
        store.read(UNIT.id)


def test_nothing_needs_hard_links(any_store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.link", lambda *_: pytest.fail("exFAT and buckets have no hard links"))
    any_store.commit(record_of(UNIT), {"video.mp4": b"1"})


@pytest.mark.parametrize("name", ["notes.txt", "job.json", "scratch/mine/precious"])
def test_a_folder_that_is_neither_empty_nor_a_runs_is_refused_before_anything_is_written(tmp_path: Path, name: str):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(GalaxyDiTError, match=r"neither empty nor a run of this version .* take a new --out"):
        Store(tmp_path).create("test", {})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_is_no_folder_and_unknown_addresses_are_named(tmp_path: Path):
    (tmp_path / "x").write_text("")
    with pytest.raises(GalaxyDiTError, match="expected a folder"):
        Store(tmp_path / "x").create("test", {})
    with pytest.raises(GalaxyDiTError, match="expected a folder or an address that fsspec reaches"):
        Store("nosuch://x")


def test_a_kill_while_the_header_was_written_leaves_a_folder_that_can_be_taken(tmp_path: Path):
    (tmp_path / ".run.0123abcd.json").write_text("{")
    Store(tmp_path).create("test", {})


def test_a_store_is_of_one_kind_and_one_condition_and_tells_the_difference(any_store: Store):
    any_store.create("test", {})
    with pytest.raises(GalaxyDiTError, match=r"belongs to another test\. Changed: steps: not there -> 5"):
        any_store.create("test", {"steps": 5})
    with pytest.raises(GalaxyDiTError, match="holds a test in format 2: expected a calibration"):
        any_store.header("calibration")
    with pytest.raises(GalaxyDiTError, match=r"holds no run\.json"):
        Store(f"{any_store.root}/units").header("test")


def test_what_is_bound_stays(any_store: Store):
    any_store.bind("model", {"a": [1.0]})
    any_store.bind("model", {"a": [1.0]})
    with pytest.raises(GalaxyDiTError, match=r"belongs to another model\. Changed: a\[0\]: 1\.0 -> 2\.0"):
        any_store.bind("model", {"a": [2.0]})


def test_tidying_removes_what_attempts_left_and_nothing_else(any_store: Store):
    kept = any_store.commit(record_of(UNIT), {"video.mp4": b"1"}).files["video.mp4"].path
    unknown = Unit("b", {"seed": 2})
    others = [f"files/{unknown.id}.0123abcd.video.mp4", "files/my.png", f"files/{UNIT.id}.mp4", "units/notes"]
    ours = [f"files/{UNIT.id}.0123abcd.video.mp4", f"units/.{UNIT.id}.0123abcd.json"]
    for name in others + ours:
        any_store._fs.pipe_file(f"{any_store._path}/{name}", b"x")
    any_store.tidy([UNIT, unknown])
    for name in [*others, kept]:
        assert any_store._read(name) is not None
    for name in ours:
        assert any_store._read(name) is None


def test_a_run_leaves_the_files_of_units_that_another_record_names(store: Store, makers: ModuleType):
    first, second = makers.noise_units(2)
    run([first, second], makers.NoiseMaker(), store)
    video = store.read(second.id).files["noise.bin"]
    path = Path(store.root, "units", f"{first.id}.json")
    stolen = {"noise.bin": {"path": video.path, "bytes": video.bytes + 1, "sha256": video.sha256}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": stolen}))
    assert run([first, second], makers.NoiseMaker(), store) == Outcome(2, 0)
    assert [damage for _, _, damage in store.survey([first.id, second.id], wholly=True)] == ["", ""]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("A cat walks, on grass!", "-a-cat-walks-on-grass"),
        ('{"prompt": "a cat", "image": "cat.png"}', "-a-cat"),
        ("word " * 20, "-word-word-word-word-word-word-word-word"),
        ("\u732b../\x00", ""),
    ],
)
def test_a_local_file_is_named_after_the_words_of_its_prompt(store: Store, prompt: str, words: str):
    unit, alike = (Unit("00000-s0-galaxydit", {"prompt": prompt, "steps": steps}) for steps in (1, 2))
    first = store.commit(record_of(unit), {"video.mp4": b"1", "thumbnail.jpg": b"1"})
    name = f"files/00000{words}-s0-galaxydit"
    assert [file.path for file in first.files.values()] == [f"{name}.mp4", f"{name}.thumbnail.jpg"]
    second = store.commit(record_of(alike), {"video.mp4": b"2"})
    assert second.files["video.mp4"].path.startswith(f"{name}-{alike.id[-16:]}.")
    store.tidy([unit, alike])
    for record, content in ((first, b"1"), (second, b"2")):
        assert store.read(record.unit) == record
        assert store.local_path(record.files["video.mp4"].path).read_bytes() == content
    assert store.commit(record_of(unit), {"video.mp4": b"3"}) == first
    assert len(store._list("files")) == 3


@pytest.mark.parametrize("folder", ["units", "files"])
@pytest.mark.parametrize("exists", [True, False])
def test_links_that_lead_the_content_of_a_run_elsewhere_are_refused(tmp_path: Path, folder: str, exists: bool):
    (tmp_path / "elsewhere").mkdir()
    store = Store(tmp_path / "run").create("test", {})
    Path(store.root, folder).rmdir()
    Path(store.root, folder).symlink_to(tmp_path / ("elsewhere" if exists else "nowhere"))
    with pytest.raises(GalaxyDiTError, match=rf"out='.*/{folder}' is not allowed: expected a folder of its own"):
        store.create("test", {})


def test_nested_beyond_measure_a_header_is_damaged(store: Store):
    Path(store.root, "run.json").write_text("[" * 100_000)
    with pytest.raises(GalaxyDiTError, match=r"run\.json is damaged .*; restore it"):
        store.header("test")


def test_discarding_removes_the_record_and_its_files(any_store: Store):
    record = any_store.commit(record_of(UNIT), {"video.mp4": b"1"})
    any_store.discard(UNIT.id, record)
    assert any_store.read(UNIT.id) is None
    assert list(any_store._list("files")) == []


def test_long_differences_are_cut():
    lines = differences({"prompts": ["a"] * 20}, {"prompts": ["b"] * 20})
    assert len(lines) == 13
    assert lines[-1] == "and 8 more"


def test_processes_that_start_at_once_share_the_store(any_store: Store, monkeypatch: pytest.MonkeyPatch):
    late = Store(any_store.root)
    read, seen = late._read, []

    def read_before_the_other_wrote(name: str) -> bytes | None:
        seen.append(name)
        return None if len(seen) == 1 else read(name)

    monkeypatch.setattr(late, "_read", read_before_the_other_wrote)
    assert late.create("test", {}).header("test")["conditions"] == {}
    seen.clear()
    with pytest.raises(GalaxyDiTError, match="belongs to another test"):
        late.create("test", {"steps": 50})


def test_the_way_out_of_a_run_without_results_is_to_delete_it(tmp_path: Path):
    Store(tmp_path / "run").create("job", {"height": 34})
    with pytest.raises(GalaxyDiTError, match="holds no results: delete it"):
        Store(tmp_path / "run").create("job", {"height": 32})


def test_a_run_at_an_address_with_a_key_shows_no_key_and_goes_on(makers: ModuleType) -> None:
    class Failing(makers.NoiseMaker):  # type: ignore[name-defined,misc]
        def make(self, unit: Unit) -> Any:
            raise OSError(f"cannot reach {address}, bucket 'KEY:SECRET@bucket'")

    address = "memory://KEY:SECRET@bucket/run"
    units = makers.noise_units(2)
    try:
        store = Store(address).create("test", {"steps": 1})
        assert store.root == "memory://***@bucket/run"
        run(units[:1], Failing(), store)
        failed = store.read(units[0].id)
        assert failed is not None
        assert "memory://***@bucket/run" in failed.reason
        run(units, makers.NoiseMaker(), Store(address).create("test", {"steps": 1}), retry_failed=True)
        assert {unit.id for unit in units} <= Store(address).unit_ids()
        with pytest.raises(GalaxyDiTError, match=r"memory://\*\*\*@bucket/run belongs to another test") as refused:
            Store(address).create("test", {"steps": 2})
        files = fsspec.filesystem("memory").store
        texts = [str(refused.value), *(file.getvalue().decode() for name, file in files.items() if ".json" in name)]
        assert len(texts) >= 4
        assert not any("SECRET" in text for text in texts)
    finally:
        fsspec.filesystem("memory").store.clear()


def test_a_flipped_bit_of_a_record_is_always_noticed(store: Store):
    written = store.commit(record_of(UNIT, result={"psnr": 40.25, "note": "\u00e4"}), {"video.mp4": b"1"})
    path = Path(store.root, "units", f"{UNIT.id}.json")
    content = path.read_bytes()
    for place in range(len(content) - 1):
        for bit in (1, 2, 4, 16):
            path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            record = store.read_sound(UNIT.id)
            assert record is None or (record == written and record.is_checked), (place, bit)


def test_a_record_of_an_earlier_version_is_taken_and_counts_as_not_checked(store: Store):
    written = store.commit(record_of(UNIT), {})
    path = Path(store.root, "units", f"{UNIT.id}.json")
    data = json.loads(path.read_text())
    del data["digest"]
    path.write_text(json.dumps(data))
    assert store.read(UNIT.id) == written
    assert not_checked([written]) == ""
    assert not_checked([written, store.read(UNIT.id)]).startswith("1 records of earlier versions have no digest")


@pytest.mark.parametrize("name", ["run.json", "model.json"])
def test_a_flipped_digit_of_the_conditions_is_noticed(store: Store, name: str):
    store = Store(f"{store.root}/new").create("test", {"steps": 50})
    store.bind("model", {"steps": 50})
    path = Path(store.root, name)
    path.write_text(path.read_text().replace("50", "51"))
    with pytest.raises(GalaxyDiTError, match=rf"{name} is damaged \(its content does not have the digest"):
        store.header("test") if name == "run.json" else store.bound("model")


def extended(any_store: Store, prompt: str) -> None:
    any_store.revise("test", lambda before: {"prompts": [*before.get("prompts", []), prompt]})


def test_processes_that_extend_a_run_at_once_lose_nothing(any_store: Store, monkeypatch: pytest.MonkeyPatch):
    late = Store(any_store.root)
    create, overtaken = late._create, []

    def create_after_another(name: str, content: bytes) -> bool:
        if len(overtaken) < 3:
            overtaken.append(f"prompt {len(overtaken)}")
            extended(any_store, overtaken[-1])
        return create(name, content)

    monkeypatch.setattr(late, "_create", create_after_another)
    extended(late, "late")
    assert late.conditions("test") == {"prompts": ["prompt 0", "prompt 1", "prompt 2", "late"]}
    assert any_store.header("test")["conditions"] == late.conditions("test")


def test_processes_that_begin_a_run_at_once_share_it(tmp_path: Path):
    script = "import sys; from galaxydit.pipelines.runs.run_conditions import RunConditions as R\n"
    script += "change = lambda before: {'prompts': [*(before or {}).get('prompts', []), sys.argv[2]]}\n"
    script += "input(); R(sys.argv[1]).revise('test', change)"
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    processes = [subprocess.Popen([*command, str(i)], stdin=subprocess.PIPE) for i in range(4)]
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(120) for process in processes] == [0] * 4
    assert sorted(Store(tmp_path / "run").conditions("test")["prompts"]) == ["0", "1", "2", "3"]


def test_a_disk_without_hard_links_keeps_the_first_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    assert create_file(tmp_path / "x.json", b"first")
    assert not create_file(tmp_path / "x.json", b"second")
    assert (tmp_path / "x.json").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_of_processes_that_make_one_unit_at_once_one_record_stays_with_its_files(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
):
    late = Store(any_store.root)
    read, seen = late.read_sound, []

    def read_before_the_other_wrote(unit_id: str) -> Record | None:
        seen.append(unit_id)
        if len(seen) > 1:
            return read(unit_id)
        any_store.commit(record_of(UNIT), {"video.mp4": b"first"})
        any_store.tidy([UNIT])  # removes the files of the late process
        return None

    monkeypatch.setattr(late, "read_sound", read_before_the_other_wrote)
    late.commit(record_of(UNIT, result=2), {"video.mp4": b"second"})
    assert [damage for _, _, damage in any_store.survey([UNIT.id], wholly=True)] == [""]
    any_store.tidy([UNIT])
    assert [damage for _, _, damage in any_store.survey([UNIT.id], wholly=True)] == [""]
    assert len(any_store._list("files")) == 1
