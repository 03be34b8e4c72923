"""The grammar of planners' names, the same in every command.

runs/maze                    a run folder
pretrained:MazeS4G1          a planner shipped with genplan; pretrained:MazeS4G1/LEAP for another method
bot, shortest, clumsy        experts: the bot, the bot with open eyes, the bot with 25 % random actions
walk:uniform, walk:demos, walk:lively
file.py:Class                your own: a class (or function) that is called without arguments, or a planner itself
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from genplan.errors import UserError
from genplan.planners import reference
from genplan.tasks.task import Task
from genplan.types import Planner


def resolve(name: str, task: Task, trained_on: str | None = None) -> Planner:
    """The planner of that name, for that task."""
    if name.startswith("walk:"):
        return reference.walk(name.removeprefix("walk:"), task.spec.num_actions, trained_on or task.name)
    if name in ("bot", "expert"):
        return _expert(task)
    if name == "shortest":
        return reference.ShortestBot()
    if name == "clumsy":
        return reference.Clumsy(_expert(task), task.spec.num_actions)
    if ".py:" in name:
        found = load_object(name)
        planner: Planner = found() if isinstance(found, type) or not hasattr(found, "plan") else found
        for method in ("start", "plan", "observe"):
            if not callable(getattr(planner, method, None)):
                raise UserError(f"'{name}' has no method {method}(), expected a planner: see genplan.types.Planner")
        return planner
    if name.startswith("pretrained:") or (Path(name) / "config.json").is_file():
        from genplan import runs  # not at the top: a run needs demonstrations, and those need experts' names

        return runs.load(runs.locate(name))[0].on(task.spec)
    raise UserError(f"there is no planner '{name}'; expected one of:\n{_grammar()}")


def _expert(task: Task) -> Planner:
    if task.expert is None:
        raise UserError(f"task {task.name} has no expert; give it one with Task(expert=...)")
    return task.expert()


def _grammar() -> str:
    return "\n".join(line for line in (__doc__ or "").splitlines() if line.startswith("    "))


def load_object(name: str) -> Any:
    """What `file.py:Name` names. This runs the file: only ever one that the user named."""
    path_name, _, attribute = name.rpartition(":")
    path = Path(path_name)
    if not path.is_file():
        raise UserError(f"there is no file '{path}' (from '{name}'); expected path/to/file.py:Name")
    module_name = f"genplan_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling to workers look it up
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise UserError(f"'{path}' has no '{attribute}'; it has: {', '.join(public)}")
    return getattr(module, attribute)
