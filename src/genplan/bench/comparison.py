"""What lines of cells come to, and how far one method is ahead of another on equal seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from genplan.errors import UserError
from genplan.evaluate import Played, Score, efficiency
from genplan.types import EpisodeResult


def score(line: Mapping[str, Any], bot: Mapping[str, Any] | None) -> Score:
    """A cell's line as a score; SPL against the bot's steps on the same seeds."""
    return Score.of(Played(_episodes(line), line["seconds"], line["planner_seconds"]), _bests(line, bot))


def efficiencies(line: Mapping[str, Any], bot: Mapping[str, Any] | None) -> list[float] | None:
    """What each episode adds to SPL; None without the bot on the same seeds."""
    bests = _bests(line, bot)
    return None if bests is None else [efficiency(result, bests[result.seed]) for result in _episodes(line)]


def _episodes(line: Mapping[str, Any]) -> list[EpisodeResult]:
    episodes = zip(line["success"], line["steps"], line["stalled"], strict=True)
    return [
        EpisodeResult(line["first_seed"] + number, bool(success), steps, 0, stalled, 0)
        for number, (success, steps, stalled) in enumerate(episodes)
    ]


def _bests(line: Mapping[str, Any], bot: Mapping[str, Any] | None) -> dict[int, int] | None:
    if bot is None or bot["first_seed"] != line["first_seed"] or len(bot["steps"]) < len(line["steps"]):
        return None
    return {bot["first_seed"] + number: steps for number, steps in enumerate(bot["steps"])}


@dataclass(frozen=True)
class Difference:
    """A mean difference with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        return self.low > 0 or self.high < 0


def paired(*rows: tuple[Sequence[float], Sequence[float]]) -> Difference:
    """How far one is ahead of another on equal seeds, in the mean over rows that count alike.

    The interval is normal. Seeds are what is drawn, rows are as they are: the mazes of one seed are alike in several
    rows, so what a seed adds in all of them is drawn together.
    """
    means, added = [], [0.0] * max(len(one) for one, _ in rows)
    for one, other in rows:
        if len(one) != len(other):
            raise UserError("paired differences need the same seeds in both cells")
        differences = [a - b for a, b in zip(one, other, strict=True)]
        means.append(fmean(differences))
        for seed, difference in enumerate(differences):
            added[seed] += (difference - means[-1]) / len(differences) / len(rows)
    seeds = len(added)
    mean, half = fmean(means), 1.96 * math.sqrt(sum(each**2 for each in added) * seeds / max(seeds - 1, 1))
    return Difference(mean, mean - half, mean + half)


def chance(*cells: tuple[Mapping[str, Any], Mapping[str, Any]]) -> float:
    """How likely so large a difference of success, or a larger one, would be between equals.

    Between equals, what a seed adds in all rows could as well be the other's: the exact test of all such exchanges. In
    one row that is McNemar's.
    """
    ahead: Counter[int] = Counter()
    for one, other in cells:
        for number, (own, others) in enumerate(zip(one["success"], other["success"], strict=True)):
            ahead[one["first_seed"] + number] += own - others
    found = sum(ahead.values())
    law = np.ones(1)  # of the sum: by turns so much further up and down, from minus all to all
    for step in filter(None, map(abs, ahead.values())):
        law = 0.5 * (np.pad(law, (0, 2 * step)) + np.pad(law, (2 * step, 0)))
    sums = np.arange(len(law)) - len(law) // 2
    return float(min(1.0, law[np.abs(sums) >= abs(found)].sum()))
