"""The table of tasks: twelve environments, the paper's settings for each pair of training set and row, and all seeds.

Nothing here imports minigrid or gymnasium's environments: the table can be read by anyone at no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TRAIN_SEEDS = range(10_000, 100_000)
VALIDATION_SEEDS = range(2_000, 3_000)
TEST_SEEDS = range(1_234, 1_484)


@dataclass(frozen=True)
class World:
    """One environment: its class in `genplan.tasks.grid`, its arguments, and what a planner should know of it."""

    name: str
    kind: str
    size: int  # the grid is size × size
    max_steps: int
    arguments: Mapping[str, Any]
    num_goals: int = 1
    solved: str = "go to one object"
    open_doors: bool = False  # all doors stand open, so that shortest paths can be had from the bot

    @property
    def env_id(self) -> str:
        return f"genplan/{self.name}-v0"


def _maze(room: int, objects: int, doors_open: bool) -> dict[str, Any]:
    return {"room_size": room, "num_rows": 3, "num_cols": 3, "num_dists": objects, "doors_open": doors_open}


WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        World("MazeS4G1", "Maze", 10, 399, _maze(4, 4, True), open_doors=True),
        World("MazeS4G2", "TwoGoalMaze", 10, 499, _maze(4, 4, True), 2, "go to two objects, in any order", True),
        World("MazeS7G1", "Maze", 19, 699, _maze(7, 7, True), open_doors=True),
        World("MazeS7G2", "TwoGoalMaze", 19, 999, _maze(7, 7, True), 2, "go to two objects, in any order", True),
        World("MazeClose", "Maze", 10, 499, _maze(4, 4, False), solved="go to one object, behind closed doors"),
        World("DoorsOrder", "Doors", 13, 144, {"num_doors": 4, "room_size": 5}, 2, "open one or two doors, in order"),
        World(
            "BlockUnlock", "BlockedDoor", 9, 399, {"room_size": 5, "num_rows": 2, "num_cols": 2},
            solved="go to the box behind a blocked, locked door",
        ),
        World(
            "KeyCorridorS3R3", "Corridor", 7, 499, {"room_size": 3, "num_rows": 3},
            solved="find the key, unlock the door, go to the ball",
        ),
        World(
            "LocS10N10G2", "TwoGoalRoom", 10, 299, {"room_size": 10, "num_dists": 10}, 2,
            "go to two of ten objects in one room", True,
        ),
        World("MazeS4N3G1", "Maze", 10, 499, _maze(4, 4, True), open_doors=True),
        World(
            "SeqS5R2Un", "Errands", 9, 499,
            {
                "room_size": 5, "num_rows": 2, "num_cols": 2, "num_dists": 5, "locked_room_prob": 0.0,
                "locations": False, "unblocking": True, "action_kinds": ("goto",), "instr_kinds": ("and",),
            },
            2, "go to two things, unblocking the way",
        ),
        World(
            "LocS10N1", "Room", 10, 200, {"room_size": 10, "num_dists": 1}, 1, "go to the only object", True,
        ),
    )
}  # fmt: skip

Family = Literal["TP", "IC", "AP"]


@dataclass(frozen=True)
class Row:
    """A row of the paper's tables: trained on one world, tested on another (often the same)."""

    family: Family
    world: str
    trained_on: str
    horizon: int
    context: int
    iterations: int
    entropy: float
    leap_iterations: int
    paper: Mapping[str, float] = field(default_factory=dict)  # success in per cent
    walks: Mapping[str, int] = field(default_factory=dict)  # success of blind walks in per cent

    @property
    def name(self) -> str:
        """The world's name; where a world has two rows, the adaptive one is told apart."""
        return f"AP-{self.world}" if self.family == "AP" and self.world in ("MazeClose", "MazeS4G2") else self.world


METHODS = ("GenPlan-M", "GenPlan-U", "LEAP⊖GC", "LEAP", "DT", "LEAP⊕H")  # the last in adaptive rows only
WALKS = ("uniform", "demos", "lively")


def _row(
    family: Family, world: str, settings: tuple[int, int, int, int], paper: tuple[float, ...], walks: tuple[int, ...]
) -> Row:
    horizon, context, iterations, leap_iterations = settings
    return Row(
        family=family,
        world=world,
        trained_on="LocS10N1" if family == "AP" else world,
        horizon=horizon,
        context=context,
        iterations=iterations,
        entropy=0.7 if family == "AP" else 0.3,
        leap_iterations=leap_iterations,
        paper=dict(zip(METHODS, paper, strict=False)),
        walks=dict(zip(WALKS, walks, strict=True)),
    )


SMALL, LARGE, LONG, SEQ = (10, 1, 5, 10), (20, 1, 10, 50), (30, 10, 15, 50), (20, 1, 10, 40)

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
        _row("AP", "SeqS5R2Un", SEQ, (42, 35.6, 29.2, 38, 29.2, 30.8), (32, 18, 44)),
    )
}
