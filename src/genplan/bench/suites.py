"""Suites: which cells are run together, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from genplan import migrations, tasks
from genplan.bench.cell import DEMONSTRATIONS, UNTRAINED, Cell
from genplan.envs import ROBOTS
from genplan.errors import UserError
from genplan.planners.reference import demonstrated_actions
from genplan.tasks.paper import RANDOM_POLICIES, ROWS

TRAIN_SEEDS = (0, 1, 2)  # of repeated trainings, for the variance between them
RANDOM_CONTROLS = tuple(f"random:{kind}" for kind in RANDOM_POLICIES)
CONTROLS = ("expert", *RANDOM_CONTROLS, f"{UNTRAINED}GenPlan-M")
MAIN_ROWS = (
    "MazeS4G1", "DoorsOrder", "KeyCorridorS3R3", "MazeClose", "BlockUnlock", "MazeS4G2", "MazeS7G1", "MazeS7G2"
)  # fmt: skip
FEWER_DEMONSTRATIONS = (30, 100, 300)
ROBOT_EPISODES = 100
EFFICIENCY_ROWS = ("MazeS4G1", "KeyCorridorS3R3")  # of the suites `times` and `demonstrations`


def _cells(methods: Iterable[str], rows: Iterable[str], **options: Any) -> list[Cell]:
    return [Cell(method, row, **options) for row in rows for method in methods]


def _robot_cells() -> list[Cell]:
    """PushT and Kitchen: methods with the labels of goals and without, where there are any."""
    with_goals = ("GenPlan-M", "GenPlan-M-G", "VQ-BeT", "DP-C", "DP-T", "Regression", "MIP")
    without = ("GenPlan-M-noGC", *(f"{name}-noGC" for name in with_goals[2:]))
    return [
        *(Cell(control, row, episodes=ROBOT_EPISODES) for row in ROBOTS for control in ("random:uniform", "replay")),
        *(Cell(method, row, seed, episodes=ROBOT_EPISODES) for names in (with_goals, without) for seed in TRAIN_SEEDS
          for row in ROBOTS for method in names),
    ]  # fmt: skip


def suites() -> dict[str, list[Cell]]:
    """Each in the order in which it is filled."""
    adaptive = [row.name for row in ROWS.values() if row.split == "AP"]
    first, others = ("GenPlan-M", "BC", "DT", "LEAP"), ("GenPlan-U", "LEAP-noGC", "DT-noGC")
    with_step_model = ("BC-step", "LEAP-step")
    by_method = (*first, "GenPlan-U", "LEAP-noGC", "LEAP-H", "DT-noGC", *with_step_model)
    repeated = [(seed, method) for seed in TRAIN_SEEDS[1:] for method in ("GenPlan-M", "BC")]
    return {
        "adaptive": [
            *_cells((*CONTROLS, "pretrained:LocS10N1"), adaptive),
            *(Cell(method, row) for method in by_method for row in adaptive),
            *(Cell(method, row, seed) for seed, method in repeated for row in adaptive),
        ],
        "main": [
            *_cells(CONTROLS, MAIN_ROWS),
            *(Cell(f"pretrained:{row}", row) for row in MAIN_ROWS),
            *_cells(first, MAIN_ROWS),
            *_cells((*others, *with_step_model), MAIN_ROWS),
            *(Cell("GenPlan-M", "MazeS4G1", seed) for seed in TRAIN_SEEDS[1:]),
            *_cells(("GenPlan-M", "GenPlan-U"), ["MazeS4G1"], preset="paper"),
        ],
        "times": _cells((*first, *others), EFFICIENCY_ROWS),
        "demonstrations": [
            Cell(method, row, demonstrations=number)
            for row in EFFICIENCY_ROWS
            for number in (DEMONSTRATIONS, *FEWER_DEMONSTRATIONS)
            for method in ("GenPlan-M", "BC")
        ],
        "robots": _robot_cells(),
        "tiny": [
            *_cells(("expert", "random:forward"), ["MazeS4N3G1"], episodes=4),
            *_cells(("GenPlan-M", "BC"), ["MazeS4N3G1"], demonstrations=10, steps=6, episodes=4),
        ],
    }


def task_cells(row: str, methods: Sequence[str]) -> list[Cell]:
    """Any task by itself (or a row of the paper): the controls that it has, and methods."""
    own = Cell("expert", row)
    has_counts = own.table_row.train_task in demonstrated_actions()
    controls = [one for one in CONTROLS if has_counts or one not in RANDOM_CONTROLS[1:]]
    if own.task.expert is None:
        controls.remove("expert")
    return _cells(dict.fromkeys([*controls, *(methods or ("GenPlan-M", "BC"))]), [row])


def select(
    suite: str, rows: Sequence[str] = (), methods: Sequence[str] = (), planner: str | None = None, **changes: Any
) -> list[Cell]:
    """The cells of a suite, or some of them; first a planner or method by name on the same rows, if one is given.

    suite    its name; or a row of the paper, or any task, with its controls and the methods named
    changes  fields of all cells, where not None; those that have no network differ in `episodes` only
    """
    known, methods = suites(), [migrations.planner_name(method) for method in methods]
    if suite in known:
        cells = known[suite]
    elif suite in ROWS or suite in tasks.TASKS or ".py:" in suite:
        cells = task_cells(suite, methods)
        methods = ()
    else:
        raise UserError(f"there is no suite '{suite}'; known are {', '.join(known)}, rows, tasks, and file.py:task")
    for what, names, has in (("row", rows, {c.row for c in cells}), ("method", methods, {c.method for c in cells})):
        if missing := sorted(set(names) - has):
            raise UserError(f"suite {suite} has no {what} '{missing[0]}'; it has {', '.join(sorted(has))}")
    cells = [c for c in cells if (not rows or c.row in rows) and (not methods or c.method in methods)]
    if planner is not None:
        by_row = {row: [cell for cell in cells if cell.row == row] for row in dict.fromkeys(cell.row for cell in cells)}
        cells = [*(_own_cell(migrations.planner_name(planner), group) for group in by_row.values()), *cells]
    return list(dict.fromkeys(_changed(cell, **changes) for cell in cells))


def _changed(cell: Cell, **changes: Any) -> Cell:
    learns = cell.is_trained or cell.is_untrained
    given = {name: one for name, one in changes.items() if one is not None and (learns or name == "episodes")}
    return replace(cell, **given)


def _own_cell(planner: str, group: Sequence[Cell]) -> Cell:
    """The cell of a planner beside those of its row; a method that is trained learns as the others there do."""
    own = Cell(planner, group[0].row, episodes=group[0].episodes)
    others = [cell for cell in group if cell.is_trained and not cell.seed and cell.preset == "default"]
    if own.is_trained and others:
        most = max(others, key=lambda cell: cell.demonstrations)
        own = replace(own, demonstrations=most.demonstrations, steps=most.steps)
    return own
