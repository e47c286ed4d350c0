"""The executor of several processes of one machine."""

import importlib
from pathlib import Path

import pytest

from galaxydit.pipelines.runs import InProcesses, Outcome, Store, run


def test_processes_share_units_and_a_dead_one_ends_the_run_that_a_later_one_continues(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # where the processes find the maker
    makers = importlib.import_module("makers")
    units = makers.noise_units(6, per_group=2)
    stores = [Store(tmp_path / name) for name in ("shared", "alone")]
    for store in stores:
        store.create("test", {})
    with InProcesses(2) as executor:
        with pytest.raises(ChildProcessError, match="fewer --processes"):
            run(units[:2], makers.NoiseMaker(trouble={0: "die once"}, place=tmp_path), stores[0], executor)
        assert run(units, makers.NoiseMaker(), stores[0], executor) == Outcome(6, 0)
    run(units, makers.NoiseMaker(), stores[1])
    shared, alone = ([store.read(unit.id).result for unit in units] for store in stores)
    assert shared == alone
