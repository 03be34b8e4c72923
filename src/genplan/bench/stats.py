"""Statistics of paired results: entry i of every row belongs to the same seed, for both methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean

import numpy as np

from genplan.errors import UserError

PairedRow = tuple[Sequence[float], Sequence[float]]
"""Values per seed of one method, and of another, in one row of a table."""


@dataclass(frozen=True)
class Difference:
    """A mean difference with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_difference(*rows: PairedRow) -> Difference:
    """One method minus another on equal seeds, averaged over rows that count alike.

    The interval is normal. Seeds are the random sample, rows are fixed: environments of one seed resemble each other in
    several rows, so the contributions of a seed in all rows are summed before the variance is taken.
    """
    means, contributions = [], [0.0] * max(len(one) for one, _ in rows)
    for differences in _differences(rows):
        means.append(fmean(differences))
        for seed, difference in enumerate(differences):
            contributions[seed] += (difference - means[-1]) / len(differences) / len(rows)
    seeds = len(contributions)
    mean, half = fmean(means), 1.96 * math.sqrt(sum(one**2 for one in contributions) * seeds / max(seeds - 1, 1))
    return Difference(mean, mean - half, mean + half)


def permutation_p_value(*rows: PairedRow) -> float:
    """The probability of a summed difference at least as large between equal methods, for whole numbers (successes).

    The exact sign-flip test: between equals, what a seed contributes in all rows might as well be the other's. In a
    single row it is McNemar's exact test.
    """
    sums = [sum(per_row) for per_row in zip_longest(*_differences(rows), fillvalue=0)]
    if not all(float(one).is_integer() for one in sums):
        raise ValueError("the exact test needs whole numbers; use the interval of paired_difference for others")
    probs = np.ones(1)  # of the sum, from minus to plus the sum of all sizes
    for size in (abs(round(one)) for one in sums if one):
        probs = 0.5 * (np.pad(probs, (0, 2 * size)) + np.pad(probs, (2 * size, 0)))
    support = np.arange(len(probs)) - len(probs) // 2
    return float(min(1.0, probs[np.abs(support) >= abs(round(sum(sums)))].sum()))


def _differences(rows: Sequence[PairedRow]) -> list[list[float]]:
    for one, other in rows:
        if len(one) != len(other):
            raise UserError(f"paired differences need the same seeds, found {len(one)} and {len(other)} episodes")
    return [[a - b for a, b in zip(one, other, strict=True)] for one, other in rows]
