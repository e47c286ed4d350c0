"""The table of other constants of the general schedule."""

from itertools import product

from galaxydit.eval.general_schedule_grid import LATES, POWERS, SPEEDUPS, key_of, table_of
from galaxydit.policies.general_schedule import LATE, POWER


def test_each_pair_of_constants_is_set_against_the_ones_in_use():
    keys = [key_of(*values) for values in product(POWERS, LATES, SPEEDUPS)]
    better = key_of(POWERS[0], LATES[0], 2.0)
    rows = {caption: dict.fromkeys(keys, 30.0) | {better: 31.0} for caption in "abcdef"}
    cells = {row[0]: row[2] for row in table_of(rows).rows}
    assert set(cells) == set(keys)
    assert cells[key_of(POWER, LATE, 2.0)] == "same"
    assert cells[better].startswith("+1.00")
