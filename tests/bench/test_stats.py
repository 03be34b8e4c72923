"""Paired differences and the exact test, against closed forms."""

import pytest

from genplan.bench.stats import paired_difference, permutation_p_value
from genplan.errors import UserError


def test_paired_difference():
    found = paired_difference(([1, 1, 1, 0], [1, 0, 0, 1]))
    assert found.mean == pytest.approx(0.25)
    assert found.low < 0 < found.high
    assert not found.excludes_zero
    assert found.high - found.mean == pytest.approx(1.96 * (2.75 / 3 / 4) ** 0.5)
    both = paired_difference(([1, 1, 1, 0], [1, 0, 0, 1]), ([1.0, 0.5] * 8, [0.5, 0.25] * 8))
    assert both.mean == pytest.approx((0.25 + 0.375) / 2)  # rows count alike, however many seeds they have
    with pytest.raises(UserError, match="same seeds, found 2 and 1"):
        paired_difference(([1, 0], [1]))


def test_rows_of_one_seed_are_not_independent():
    once, twice = (paired_difference(*[([1, 1, 1, 0], [1, 0, 0, 1])] * times) for times in (1, 2))
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high))
    # Differences of opposite sign in two rows cancel out seed by seed.
    opposite = paired_difference(([1, 0], [0, 0]), ([0, 1], [0, 0]))
    assert (opposite.low, opposite.high) == pytest.approx((0.5, 0.5))


def test_permutation_p_value():
    better = ([1] * 6 + [0] * 4, [0] * 10)
    equal = ([1, 1, 0, 0], [1, 1, 0, 0])
    assert permutation_p_value(better) == pytest.approx(2 / 64)  # six of six: McNemar's exact test
    assert permutation_p_value(equal) == 1
    assert permutation_p_value(better, equal) == pytest.approx(permutation_p_value(better))
    assert permutation_p_value(better, better) == pytest.approx(permutation_p_value(better))  # no more evidence
    assert permutation_p_value(([1, 1], [0, 0]), ([1, 0], [0, 0])) == pytest.approx(0.5)  # |±2 ±1| ≥ 3
    with pytest.raises(ValueError, match="whole numbers"):
        permutation_p_value(([0.5], [0.25]))
