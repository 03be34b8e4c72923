"""The grammar of planners' names, the same in every command.

runs/maze                    a run folder
pretrained:MazeS4G1          a planner that comes with genplan (one of the folders in genplan/pretrained)
bot, shortest, clumsy        experts: the bot, the bot with open eyes, the bot with 25 % random actions
walk:uniform, walk:demos, walk:lively
file.py:Class                your own: a class (or function) that is called without arguments, or a planner itself
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
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
            reason = _described(error, _file(name))
            raise UserError(f"'{name}' cannot be called without arguments: {reason}") from error
    for method in ("start", "plan", "observe"):
        if not callable(getattr(found, method, None)):
            raise UserError(f"'{name}' has no method {method}(), expected a planner: see genplan.types.Planner")
    if not isinstance(getattr(found, "needs_oracle", None), bool):
        raise UserError(f"'{name}' has no needs_oracle, expected True or False: see genplan.types.Planner")
    planner: Planner = found
    return planner


@contextlib.contextmanager
def mistakes_told(name: str) -> Iterator[None]:
    """What goes wrong while somebody's own planner is used is told as such, with its place in their file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if ".py:" not in name:
            raise
        raise UserError(f"'{name}' failed: {_described(error, _file(name))}") from error


def _described(error: Exception, path: Path) -> str:
    """What went wrong in somebody's own file, and where: the last place in that file, if it was there at all."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error} ({error.filename}, line {error.lineno})"
    places = traceback.extract_tb(error.__traceback__)
    place = next((place for place in reversed(places) if Path(place.filename).resolve() == path.resolve()), places[-1])
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"


def _expert(task: Task) -> Planner:
    if task.expert is None:
        raise UserError(f"task {task.name} has no expert; give it one with Task(expert=...)")
    return task.expert()


def _grammar() -> str:
    return "\n".join((__doc__ or "").strip().splitlines()[2:])  # without the title


def _file(name: str) -> Path:
    return Path(name.rpartition(":")[0])


def load_object(name: str) -> Any:
    """What `file.py:Name` names. This runs the file: only ever one that the user named."""
    path, attribute = _file(name), name.rpartition(":")[2]
    if not path.is_file():
        raise UserError(f"there is no file '{path}' (from '{name}'); expected path/to/file.py:Name")
    module_name = f"genplan_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling to workers look it up
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)  # what stands beside it can be imported, as by a script
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"'{path}' cannot be run: {_described(error, path)}") from error
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise UserError(f"'{path}' has no '{attribute}'; it has: {', '.join(public)}")
    return getattr(module, attribute)
