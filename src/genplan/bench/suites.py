"""Suites: which cells are run together, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from genplan.bench.cell import UNTRAINED, Cell
from genplan.errors import UserError
from genplan.tasks.table import ROWS

SEEDS = (1, 2)  # of further trainings, to see what chance does in them
CONTROLS = ("bot", "walk:uniform", "walk:demos", "walk:lively", f"{UNTRAINED}GenPlan-M")


def _cells(methods: Iterable[str], rows: Iterable[str], **options: Any) -> list[Cell]:
    return [Cell(method, row, **options) for row in rows for method in methods]


def _controls(rows: Sequence[str]) -> list[Cell]:
    return _cells(CONTROLS, rows)


def suites() -> dict[str, list[Cell]]:
    """Each in the order in which it is filled."""
    adaptive = [row.name for row in ROWS.values() if row.family == "AP"]
    main = ["MazeS4G1", "DoorsOrder", "KeyCorridorS3R3", "MazeClose", "BlockUnlock", "MazeS4G2", "MazeS7G1", "MazeS7G2"]
    first = ("GenPlan-M", "BC", "DT", "LEAP")
    others = ("GenPlan-U", "LEAP-noGC", "DT-noGC")
    shipped = [Cell(f"pretrained:{row}", row) for row in main]
    seeds = [Cell("GenPlan-M", "MazeS4G1", seed=seed) for seed in SEEDS]
    paper = [Cell(method, "MazeS4G1", preset="paper") for method in ("GenPlan-M", "GenPlan-U")]
    fewer = [
        Cell(method, row, demonstrations=number)
        for row in ("MazeS4G1", "KeyCorridorS3R3")
        for number in (1000, 30, 100, 300)
        for method in ("GenPlan-M", "BC")
    ]
    return {
        "adaptive": [
            *_controls(adaptive),
            *_cells(["pretrained:LocS10N1"], adaptive),
            *(
                Cell(method, row)
                for method in (*first, "GenPlan-U", "LEAP-noGC", "LEAP-H", "DT-noGC")
                for row in adaptive
            ),
            *(Cell(method, row, seed=seed) for seed in SEEDS for method in ("GenPlan-M", "BC") for row in adaptive),
        ],
        "main": [*_controls(main), *shipped, *_cells(first, main), *_cells(others, main), *seeds, *paper],
        "times": _cells((*first, *others), ["MazeS4G1", "KeyCorridorS3R3"]),
        "demonstrations": fewer,
        "tiny": [
            *_cells(("bot", "walk:lively"), ["MazeS4N3G1"], episodes=4),
            *_cells(("GenPlan-M", "BC"), ["MazeS4N3G1"], demonstrations=10, steps=6, episodes=4),
        ],
    }


def chosen(suite: str, rows: Sequence[str] = (), methods: Sequence[str] = (), planner: str | None = None) -> list[Cell]:
    """The cells of a suite, or some of them; first a planner by name on the same rows, if one is given."""
    known = suites()
    if suite not in known:
        raise UserError(f"there is no suite '{suite}'; known are {', '.join(known)}")
    cells = known[suite]
    for what, wanted, has in (("row", rows, {c.row for c in cells}), ("method", methods, {c.method for c in cells})):
        if missing := sorted(set(wanted) - has):
            raise UserError(f"suite {suite} has no {what} '{missing[0]}'; it has {', '.join(sorted(has))}")
    cells = [c for c in cells if (not rows or c.row in rows) and (not methods or c.method in methods)]
    if planner is not None:
        there = {cell.row: cell.episodes for cell in cells}
        cells = [*(Cell(planner, row, episodes=episodes) for row, episodes in there.items()), *cells]
    return cells
