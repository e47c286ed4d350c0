import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from galaxydit.pipelines.runs import Store


def load_makers() -> ModuleType:
    """makers.py, under a name of its own."""
    name = "runs_test_makers"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("makers.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def makers() -> ModuleType:
    return load_makers()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "run")
    store.create("test", {"model": "none"})
    return store
