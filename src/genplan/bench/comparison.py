"""What lines of cells come to, and how far one method is ahead of another on equal seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

    The interval is normal, of the paired differences: seeds are what is drawn, rows are as they are.
    """
    means, variances = [], []
    for one, other in rows:
        if len(one) != len(other):
            raise UserError("paired differences need the same seeds in both cells")
        differences = [a - b for a, b in zip(one, other, strict=True)]
        number = len(differences)
        means.append(sum(differences) / number)
        variances.append(sum((d - means[-1]) ** 2 for d in differences) / max(number - 1, 1) / number)
    mean, half = sum(means) / len(rows), 1.96 * math.sqrt(sum(variances)) / len(rows)
    return Difference(mean, mean - half, mean + half)


def chance(*cells: tuple[Mapping[str, Any], Mapping[str, Any]]) -> float:
    """How likely so large a difference, or a larger one, would be between equals: McNemar's exact test of all rows."""
    pairs = [pair for one, other in cells for pair in zip(one["success"], other["success"], strict=True)]
    ahead, behind = pairs.count((1, 0)), pairs.count((0, 1))
    tail = sum(math.comb(ahead + behind, number) for number in range(min(ahead, behind) + 1))
    return float(min(1.0, 2 * tail / 2 ** (ahead + behind)))
