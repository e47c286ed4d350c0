"""The Ray executor on a cluster of two workers on this machine. Tests are skipped where Ray is not installed."""

import errno
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.pipelines.runs import OnRay, Outcome, Record, Store, Unit, on_ray, run
from galaxydit.pipelines.runs.run import Progress
from galaxydit.pipelines.video import save_video

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'galaxydit[ray]'")


@pytest.fixture(scope="module")
def executor(makers: ModuleType) -> Iterator[OnRay]:
    ray.cloudpickle.register_pickle_by_value(makers)  # the workers cannot import it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        # The GPUs are only counted. An executor leaves a cluster alone that was there before.
        ray.init("local", num_cpus=4, num_gpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
        with OnRay() as executor:
            yield executor
        assert ray.is_initialized()
        ray.shutdown()


class Listener(Progress):
    """Remembers who did what; can end the first worker that begins a unit."""

    def __init__(self, kill_first: bool = False) -> None:
        self.finished: dict[str, int] = {}
        self.kill_first = kill_first
        self.executor: OnRay | None = None

    def begin(self, worker: int, unit: Unit) -> None:
        if self.kill_first:
            self.kill_first = False
            ray.kill(next(w for w in self.executor._workers if w.number == worker).actors[0])

    def finish(self, worker: int, record: Record) -> None:
        self.finished[record.unit] = worker


def test_units_are_shared_and_equal_those_made_in_process(executor: OnRay, makers: ModuleType, tmp_path: Path):
    units, heard = makers.noise_units(8, per_group=2), Listener()
    stores = [Store(tmp_path / name) for name in ("ray", "here")]
    for store, chosen in zip(stores, (executor, None), strict=True):
        store.create("test", {})
        # So long that the second worker has started before the first has made all.
        assert run(units, makers.NoiseMaker(0.5), store, chosen, progress=heard) == Outcome(8, 0)
    found = [[store.read(unit.id) for unit in units] for store in stores]
    assert [record.result for record in found[0]] == [record.result for record in found[1]]
    assert len({record.worker for record in found[0]}) == 2
    by_group = {(record.data["seed"] // 2, record.worker) for record in found[0]}
    assert len(by_group) == 4, "a group stays with one worker"


def test_failures_are_recorded_with_their_traceback(executor: OnRay, makers: ModuleType, store: Store):
    units = makers.noise_units(4)
    assert run(units, makers.NoiseMaker(trouble={2: "raise"}), store, executor) == Outcome(3, 1)
    assert "RuntimeError: seed 2 is hard" in store.read(units[2].id).traceback


def test_a_unit_whose_worker_dies_goes_to_another(executor: OnRay, makers: ModuleType, store: Store, tmp_path: Path):
    units, maker = makers.noise_units(6), makers.NoiseMaker(trouble={1: "die once", 4: "die once"}, place=tmp_path)
    heard = Listener(kill_first=True)
    heard.executor = executor
    assert run(units, maker, store, executor, progress=heard) == Outcome(6, 0)
    assert set(heard.finished) == {unit.id for unit in units}


def test_relative_paths_start_at_the_folder_of_the_driver(
    executor: OnRay, makers: ModuleType, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # the cluster was started in another folder
    Image.new("RGB", (16, 16), (255, 0, 0)).save("a.png")
    save_video(np.full((2, 16, 16, 3), (255, 0, 0), np.uint8), "a.mp4", 8, lossless=True)
    files = {"image": "a.png", "last_image": "a.png", "video": "a.mp4", "mask": "a.mp4", "reference_images": ["a.png"]}
    unit = Unit("reads", {"prompt": json.dumps({"prompt": "a cat", **files})})
    assert run([unit], makers.ReadingMaker(), store, executor) == Outcome(1, 0)
    assert store.read(unit.id).result == [[255, 0, 0]] * 5


def test_the_driver_repeats_the_warnings_of_its_workers(
    executor: OnRay, makers: ModuleType, store: Store, tmp_path: Path
):
    Image.new("RGBA", (16, 16)).save(tmp_path / "a.png")
    unit = Unit("reads", {"prompt": json.dumps({"prompt": "a cat", "image": str(tmp_path / "a.png")})})
    with pytest.warns(DataWarning, match=r"image='.*a.png' has transparent parts, which become white"):
        assert run([unit], makers.ReadingMaker(), store, executor) == Outcome(1, 0)


def test_what_prepare_raises_and_a_full_disk_stop_the_run(executor: OnRay, makers: ModuleType, store: Store):
    units = makers.noise_units(4)
    with pytest.raises(ValueError, match="no such model"):
        run(units, makers.NoiseMaker(trouble={-1: "refuse"}), store, executor)
    maker = makers.NoiseMaker(trouble={0: "full disk"})
    with pytest.raises(OSError, match="no space is left for") as raised:
        run(units, maker, store, executor)
    assert raised.value.errno == errno.ENOSPC
    maker.trouble.clear()
    assert run(units, maker, store, executor) == Outcome(4, 0)


def test_workers_stay_for_the_next_run_of_the_same_maker(executor: OnRay, makers: ModuleType, store: Store):
    maker = makers.NoiseMaker()
    run(makers.noise_units(2), maker, store, executor)
    before = [worker.number for worker in executor._workers]
    run(makers.noise_units(6), maker, store, executor)
    assert [worker.number for worker in executor._workers][: len(before)] == before


def test_with_several_gpus_per_worker_processes_share_each_unit_and_the_first_writes_it(
    executor: OnRay, makers: ModuleType, store: Store
):
    executor.__exit__(None, None, None)  # its workers hold the GPUs
    units = makers.noise_units(3)
    with OnRay(gpus_per_worker=2) as shared:
        assert run(units, makers.SharedMaker(), store, shared) == Outcome(3, 0)
        assert len(shared._workers) == 1
    assert [store.read(unit.id).result for unit in units] == [{"sum": 3, "rank": 0}] * 3


def test_a_cluster_with_too_few_gpus_is_waited_for_with_a_warning(executor: OnRay, caplog: pytest.LogCaptureFixture):
    OnRay(gpus_per_worker=99)
    assert caplog.messages == ["each worker needs 99 GPUs and the cluster has 2: waiting for more"]


def test_the_example_of_the_readme_runs(executor: OnRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = Path(__file__).parents[3] / "pipelines" / "README.md"
    examples = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [example for example in examples if "OnRay" in example]
    exec(code, {"__name__": "__main__"})
    assert "Outcome(done=8, failed=0)" in capsys.readouterr().out


def test_without_ray_the_cure_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("galaxydit.pipelines.runs.cluster.find_spec", lambda _: None)
    with pytest.raises(GalaxyDiTError, match=r"pip install 'galaxydit\[ray\]'"):
        OnRay()


def test_more_gpus_than_this_machine_has_are_refused_and_its_cluster_is_ended(monkeypatch: pytest.MonkeyPatch):
    ended = []
    cluster = SimpleNamespace(ray=None, is_local=True, gpus=lambda: 2.0, end=lambda: ended.append(True))
    monkeypatch.setattr(on_ray, "Cluster", lambda address, cpus: cluster)
    with pytest.raises(GalaxyDiTError, match="gpus_per_worker=3 is not allowed: expected at most 2, the GPUs of this"):
        OnRay(gpus_per_worker=3)
    assert ended
