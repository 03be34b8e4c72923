"""Environments: the only importers of simulators. Importing this registers `genplan/<Name>-v0` with Gymnasium.

The table costs nothing to read: MiniGrid is imported when the first environment is made.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from genplan.errors import UserError

__all__ = ["ENVS", "KITCHEN_TASKS", "PUSHT_POINTS", "ROBOTS", "EnvEntry", "RobotEntry", "make_env", "make_robot"]


@dataclass(frozen=True)
class EnvEntry:
    """One environment: its class in `genplan.envs.grid`, its arguments, and what a task should know of it."""

    name: str
    level: str
    size: int  # the grid is size × size
    max_steps: int
    arguments: Mapping[str, Any]
    num_goals: int = 1
    description: str = "go to one object"


def _maze(room: int, doors_open: bool) -> dict[str, Any]:
    return {"room_size": room, "num_rows": 3, "num_cols": 3, "num_dists": room, "doors_open": doors_open}


SEQUENCE = {
    "room_size": 5, "num_rows": 2, "num_cols": 2, "num_dists": 5, "locked_room_prob": 0.0, "locations": False,
    "unblocking": True, "action_kinds": ("goto",), "instr_kinds": ("and",),
}  # fmt: skip
ENVS: dict[str, EnvEntry] = {
    entry.name: entry
    for entry in (
        EnvEntry("MazeS4G1", "MazeEnv", 10, 399, _maze(4, True)),
        EnvEntry("MazeS4G2", "TwoGoalMazeEnv", 10, 499, _maze(4, True), 2, "go to two objects, in any order"),
        EnvEntry("MazeS7G1", "MazeEnv", 19, 699, _maze(7, True)),
        EnvEntry("MazeS7G2", "TwoGoalMazeEnv", 19, 999, _maze(7, True), 2, "go to two objects, in any order"),
        EnvEntry("MazeClose", "MazeEnv", 10, 499, _maze(4, False), 1, "go to one object, behind closed doors"),
        EnvEntry("DoorsOrder", "DoorsEnv", 13, 144, {"num_doors": 4, "room_size": 5}, 2,
                 "open one or two doors, in order"),
        EnvEntry("BlockUnlock", "BlockedDoorEnv", 9, 399, {"room_size": 5, "num_rows": 2, "num_cols": 2}, 1,
                 "go to the box behind a blocked, locked door"),
        EnvEntry("KeyCorridorS3R3", "CorridorEnv", 7, 499, {"room_size": 3, "num_rows": 3}, 1,
                 "find the key, unlock the door, go to the ball"),
        EnvEntry("LocS10N10G2", "TwoGoalRoomEnv", 10, 299, {"room_size": 10, "num_dists": 10}, 2,
                 "go to two of ten objects in one room"),
        EnvEntry("MazeS4N3G1", "MazeEnv", 10, 499, _maze(4, True)),
        EnvEntry("SeqS5R2Un", "GoToSequenceEnv", 9, 499, SEQUENCE, 2, "go to two objects, unblocking the way"),
        EnvEntry("LocS10N1", "RoomEnv", 10, 200, {"room_size": 10, "num_dists": 1}, 2, "go to the only object"),
    )
}  # fmt: skip


def make_env(name: str, **options: Any) -> Any:
    """The environment itself, without Gymnasium's wrappers; `options` override the table (render_mode, say)."""
    from genplan.envs import grid

    entry = ENVS[name]
    return getattr(grid, entry.level)(**{"max_steps": entry.max_steps, **entry.arguments, **options})


@dataclass(frozen=True)
class RobotEntry:
    """A robot environment: its class, and what it needs."""

    name: str
    environment: str  # "module:Class"
    max_steps: int
    needs: str
    description: str


# In the order in which `info` counts what is completed.
KITCHEN_TASKS = (
    "bottom burner", "top burner", "light switch", "slide cabinet", "hinge cabinet", "microwave", "kettle",
)  # fmt: skip
# Nine points of PushT's block in its own frame, as the published demonstrations have them.
PUSHT_POINTS = (
    (9.26952249, 90.04107184), (-60.98329918, -1.18696431), (60.91292639, -1.39301726), (-0.27045966, 25.54367943),
    (-14.0653473, 122.81583962), (39.00274615, 32.85764568), (-39.96640392, 32.72952027), (-16.82447814, 62.86315347),
    (23.54163429, -1.70011936),
)  # fmt: skip
ROBOTS: dict[str, RobotEntry] = {
    entry.name: entry
    for entry in (
        RobotEntry("PushT", "genplan.envs.pusht:PushTEnv", 300, "gym-pusht", "push a block onto its place"),
        RobotEntry("Kitchen", "genplan.envs.kitchen:KitchenEnv", 280, "gymnasium-robotics", "four of seven tasks"),
    )
}


def make_robot(name: str, **options: Any) -> Any:
    """The environment itself, without Gymnasium's wrappers."""
    entry = ROBOTS[name]
    try:
        environment = pkgutil.resolve_name(entry.environment)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the task {name} needs {entry.needs} (there is no module {error.name}); install it with: "
            "pip install 'genplan[robots]'"
        ) from error
    return environment(**options)


for _name, _entry in ROBOTS.items():
    if (_id := f"genplan/{_name}-v0") not in gymnasium.registry:
        gymnasium.register(_id, entry_point="genplan.envs:make_robot", kwargs={"name": _name})
for _name in ENVS:
    if (_id := f"genplan/{_name}-v0") not in gymnasium.registry:
        gymnasium.register(_id, entry_point="genplan.envs:make_env", kwargs={"name": _name})
