"""`@pytest.mark.matrix(first=..., second=...)`: cases that cover each pair; with `--exhaustive`, all cases."""

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest

MARKER = "matrix(**values): parametrize with cases that cover each pair of values, or with all cases by --exhaustive"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run each combination of the values of a test's matrix")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for marker in metafunc.definition.iter_markers("matrix"):
        cases = list(product(*marker.kwargs.values()))
        if not metafunc.config.getoption("exhaustive"):
            cases = covering_pairs(cases)
        metafunc.parametrize(tuple(marker.kwargs), cases)


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether a test that loops over cases of its own takes all of them."""
    return bool(request.config.getoption("exhaustive"))


def covering_pairs(cases: Collection[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Some of the cases, in their order, which hold each pair of values of two columns that any of the cases holds."""
    left = [(case, _pairs(case)) for case in cases]
    missing = set().union(*(pairs for _, pairs in left))
    chosen = []
    while missing:
        case, pairs = max(left, key=lambda one: len(one[1] & missing))
        chosen.append(case)
        missing -= pairs
    return [case for case in cases if case in chosen]


def _pairs(case: tuple[Any, ...]) -> set[Any]:
    """Each two columns with their values, by `repr`, because not all values can be hashed."""
    columns = [(index, repr(value)) for index, value in enumerate(case)]
    return set(combinations(columns, min(2, len(columns))))
