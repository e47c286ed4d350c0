"""The normal suite covers each pair of a matrix of values, and `--exhaustive` each combination."""

from itertools import combinations, product

import pytest
from exhaustive import covering_pairs


@pytest.mark.parametrize("sizes", [(3,), (4, 2), (2, 2, 2), (4, 2, 2), (3, 2, 2, 2), (5, 4, 3, 2)])
def test_each_pair_of_values_is_covered_by_few_cases(sizes: tuple[int, ...]) -> None:
    cases = list(product(*map(range, sizes)))
    chosen = covering_pairs(cases)
    assert set(chosen) <= set(cases)
    for first, second in combinations(range(len(sizes)), 2):
        pairs = {(case[first], case[second]) for case in chosen}
        assert pairs == set(product(range(sizes[first]), range(sizes[second])))
    largest, *rest = sorted(sizes, reverse=True)
    assert len(chosen) <= largest * max(rest, default=1) + len(sizes)


ARGUMENTS: list[tuple[str, ...]] = []


@pytest.mark.matrix(first="ab", second="cd", third="ef")
def test_a_test_with_a_matrix_gets_its_values_by_name(first: str, second: str, third: str) -> None:
    assert (first in "ab", second in "cd", third in "ef") == (True, True, True)
    assert (first, second, third) not in ARGUMENTS
    ARGUMENTS.append((first, second, third))
