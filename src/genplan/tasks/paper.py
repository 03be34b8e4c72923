"""Rows of result tables as plain data: those of the paper, with settings and numbers; and any task by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Split = Literal["TP", "IC", "AP", "own"]  # the paper's three, and tasks that it does not have
METHOD_NAMES = ("GenPlan-M", "GenPlan-U", "LEAP⊖GC", "LEAP", "DT", "LEAP⊕H")  # the last in adaptive rows only
RANDOM_POLICIES = ("uniform", "demos", "forward")


@dataclass(frozen=True)
class Row:
    """A row of a table: trained on one task, tested on another (often the same)."""

    split: Split
    task: str
    train_task: str
    horizon: int = 10
    context: int = 1  # observations that are shown, the current one counted
    iterations: int = 5
    entropy: float = 0.3
    leap_iterations: int = 10
    paper: Mapping[str, float] = field(default_factory=dict)  # method -> success in per cent
    random: Mapping[str, int] = field(default_factory=dict)  # random policy -> success in per cent

    @property
    def name(self) -> str:
        """The test task's name; where a task has two rows, the adaptive one has a prefix."""
        return f"AP-{self.task}" if self.split == "AP" and self.task in ("MazeClose", "MazeS4G2") else self.task


def _row(
    split: Split, task: str, settings: tuple[int, int, int, int], paper: tuple[float, ...], random: tuple[int, ...]
) -> Row:
    horizon, context, iterations, leap_iterations = settings
    train_task, entropy = ("LocS10N1", 0.7) if split == "AP" else (task, 0.3)
    numbers = dict(zip(METHOD_NAMES, paper, strict=False)), dict(zip(RANDOM_POLICIES, random, strict=True))
    return Row(split, task, train_task, horizon, context, iterations, entropy, leap_iterations, *numbers)


SMALL, LARGE, LONG, SEQUENCE = (10, 1, 5, 10), (20, 1, 10, 50), (30, 10, 15, 50), (20, 1, 10, 40)

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        _row("TP", "MazeS4G1", SMALL, (62, 52.4, 44, 49.2, 46.8), (28, 56, 48)),
        _row("TP", "MazeS4G2", SMALL, (39.6, 38.8, 20, 37.6, 35.2), (13, 35, 26)),
        _row("TP", "MazeS7G1", LARGE, (44.8, 45.6, 12, 33.2, 40), (20, 39, 31)),
        _row("TP", "MazeS7G2", LARGE, (19.6, 21.2, 3.6, 4, 13.6), (7, 20, 13)),
        _row("IC", "MazeClose", SMALL, (48.4, 42.8, 18, 38.8, 40), (27, 41, 42)),
        _row("IC", "DoorsOrder", SMALL, (35.2, 40.8, 11.2, 36.4, 40.8), (18, 19, 17)),
        _row("IC", "BlockUnlock", LONG, (16, 13.2, 0, 0.8, 0), (3, 1, 1)),
        _row("IC", "KeyCorridorS3R3", LONG, (17.6, 11.6, 0, 0.4, 3.6), (3, 4, 7)),
        _row("AP", "LocS10N10G2", SMALL, (88, 82.4, 76, 78, 25.6, 69.2), (34, 66, 62)),
        _row("AP", "MazeS4N3G1", SMALL, (62, 56, 44.8, 48, 24, 52), (29, 57, 51)),
        _row("AP", "MazeClose", SMALL, (34.8, 31.2, 10, 10, 8.8, 16.4), (27, 9, 41)),
        _row("AP", "MazeS4G2", SMALL, (34.8, 28.8, 14, 18.4, 3.6, 21.2), (13, 31, 26)),
        _row("AP", "SeqS5R2Un", SEQUENCE, (42, 35.6, 29.2, 38, 29.2, 30.8), (32, 18, 44)),
    )
}
