"""What is solved: environments, experts, and one table of tasks.

Importing this makes `gymnasium.make("genplan/MazeS4G1-v0")` work, and imports neither torch nor minigrid by itself.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Any

from genplan.errors import UserError
from genplan.tasks.table import ROWS, TEST_SEEDS, TRAIN_SEEDS, VALIDATION_SEEDS, WORLDS, Row, World

if TYPE_CHECKING:
    from genplan.tasks.task import Task

__all__ = [
    "ROWS",
    "TEST_SEEDS",
    "TRAIN_SEEDS",
    "VALIDATION_SEEDS",
    "WORLDS",
    "Row",
    "Task",
    "World",
    "get",
    "register",
    "worlds_of",
]


def __getattr__(name: str) -> Any:
    if name == "Task":  # it needs torch; whoever only makes environments does not
        from genplan.tasks.task import Task

        return Task
    raise AttributeError(f"module 'genplan.tasks' has no attribute '{name}'")


def make_world(name: str, **options: Any) -> Any:
    """The environment itself, without Gymnasium's wrappers; `options` override the table (render_mode, say)."""
    from genplan.tasks import grid

    world = WORLDS[name]
    return getattr(grid, world.kind)(**{"max_steps": world.max_steps, **world.arguments, **options})


def register() -> None:
    """Tell Gymnasium of all worlds."""
    import gymnasium

    for world in WORLDS.values():
        if world.env_id not in gymnasium.registry:
            gymnasium.register(world.env_id, entry_point="genplan.tasks:make_world", kwargs={"name": world.name})


def get(name: str) -> Task:
    """A task by name: one of the table, or `file.py:task` for one's own."""
    from genplan.tasks.task import Task

    if ".py:" in name:
        from genplan.planners.names import load_object

        task = load_object(name)
        if not isinstance(task, Task):
            raise UserError(f"'{name}' is a {type(task).__name__}, expected a genplan.tasks.Task")
        return task
    if name not in WORLDS:
        near = difflib.get_close_matches(name, WORLDS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(WORLDS)}, or file.py:task for your own"
        raise UserError(f"there is no task '{name}'; {hint}")
    from genplan.data.tokens import PlanSpec
    from genplan.planners.reference import Bot
    from genplan.tasks.grid import Watch, goals, observe

    world = WORLDS[name]
    spec = PlanSpec.grid(world.size, world.size, world.num_goals)
    return Task(name, partial(make_world, name), spec, observe, world.max_steps, Bot, Watch, goals)


def worlds_of(name: str) -> tuple[str, ...]:
    """The tasks that a name stands for: itself; several, joined by +; or `all` rows of the paper's TP and IC tables."""
    if name == "all":
        return tuple(row.world for row in ROWS.values() if row.family != "AP")
    return tuple(name.split("+"))


register()
