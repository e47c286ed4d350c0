"""Tables over pairs of steps."""

from galaxydit.eval.compare.methods.ra_cfgcache import LONGEST_GAP, at, mean_of, over_pairs


def test_a_pair_is_found_where_it_was_put() -> None:
    table = over_pairs(5, lambda earlier, step: 10 * earlier + step)
    assert at(table, 1, 4) == 14
    assert [len(row) for row in table] == [0, 1, 2, 3, 4]


def test_no_value_for_a_step_itself_or_a_gap_too_long() -> None:
    table = over_pairs(LONGEST_GAP + 2, lambda earlier, step: 1.0)
    assert at(table, 1, LONGEST_GAP + 1) == 1.0
    assert at(table, 0, LONGEST_GAP + 1) is None
    assert at(table, 3, 3) is None


def test_the_mean_is_taken_pair_by_pair() -> None:
    assert mean_of([[[], [1.0], [2.0, 3.0]], [[], [3.0], [2.0, 5.0]]]) == [[], [2.0], [2.0, 4.0]]
