"""Tasks: environments as planners see them, by name. One's own are given as `file.py:task`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial

from genplan.envs import ENVS, ROBOTS
from genplan.errors import UserError
from genplan.tasks.files import import_object, task_from_gym
from genplan.tasks.paper import ROWS
from genplan.tasks.robots import robot_task
from genplan.types import Task

__all__ = ["TASKS", "Task", "get", "task_from_gym", "task_names"]


def _grid_task(name: str) -> Task:
    from genplan.tasks.grid import grid_task  # not above: it imports MiniGrid, and whoever lists tasks needs none

    return grid_task(name)


TASKS: dict[str, Callable[[], Task]] = {
    **{name: partial(_grid_task, name) for name in ENVS},
    **{name: partial(robot_task, name) for name in ROBOTS},
}


def get(name: str) -> Task:
    """A task by name: one of the table, or `file.py:task` for one's own."""
    if ".py:" in name:
        task = import_object(name)
        if not isinstance(task, Task):
            raise UserError(f"'{name}' is a {type(task).__name__}, expected a genplan.types.Task")
        return task
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(TASKS)}, or file.py:task for your own"
        raise UserError(f"there is no task '{name}'; {hint}")
    return TASKS[name]()


def task_names(name: str) -> tuple[str, ...]:
    """The tasks that a name stands for: itself; several, joined by +; or `all` rows of the paper's TP and IC tables."""
    if name == "all":
        return tuple(row.task for row in ROWS.values() if row.split != "AP")
    return tuple(name.split("+"))
