"""The grammar of planners' names, the same in every command.

runs/maze                    a run folder
pretrained:MazeS4G1          a planner that comes with genplan (one of the folders in genplan/pretrained)
bot, shortest, clumsy        experts: the bot, the bot with open eyes, the bot with 25 % random actions
walk:uniform, walk:demos, walk:lively
file.py:Class                your own: a class (or function) that is called without arguments, or a planner itself
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
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
        return _own(name)
    if name.startswith("pretrained:") or (Path(name) / "config.json").is_file():
        from genplan import runs  # not at the top: a run needs demonstrations, and those need experts' names

        return runs.load(runs.locate(name))[0].on(task.spec)
    raise UserError(f"there is no planner '{name}'; expected one of:\n{_grammar()}")


def _own(name: str) -> Planner:
    found = load_object(name)
    if isinstance(found, type) or not hasattr(found, "plan"):
        try:
            found = found()
        except Exception as error:
            raise UserError(f"'{name}' cannot be called without arguments: {described(error)}") from error
    for method in ("start", "plan", "observe"):
        if not callable(getattr(found, method, None)):
            raise UserError(f"'{name}' has no method {method}(), expected a planner: see genplan.types.Planner")
    if not isinstance(getattr(found, "needs_oracle", None), bool):
        raise UserError(f"'{name}' has no needs_oracle, expected True or False: see genplan.types.Planner")
    planner: Planner = found
    return planner


def described(error: Exception) -> str:
    """What went wrong in somebody's own file, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (place.filename, place.lineno)
    return f"{type(error).__name__}: {error} ({file}, line {line})"


def _expert(task: Task) -> Planner:
    if task.expert is None:
        raise UserError(f"task {task.name} has no expert; give it one with Task(expert=...)")
    return task.expert()


def _grammar() -> str:
    return "\n".join((__doc__ or "").strip().splitlines()[2:])  # without the title


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
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"'{path}' cannot be run: {described(error)}") from error
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise UserError(f"'{path}' has no '{attribute}'; it has: {', '.join(public)}")
    return getattr(module, attribute)
