"""One's own code, named `file.py:Name`; and tasks made from Gymnasium's registered environments."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from genplan.errors import USER_MODULE, DataError, UserError, error_location
from genplan.spec import Actions, Field, Observation, PlanSpec, Stream
from genplan.types import Env, Metric, Planner, Task, terminated_with_reward


def import_object(name: str) -> Any:
    """What `file.py:Name` names. This runs the file: only ever one that the user named."""
    path, attribute = _path(name), name.rpartition(":")[2]
    if not path.is_file():
        raise UserError(f"there is no file '{path}' (from '{name}'); expected path/to/file.py:Name")
    try:
        module = _run_file(path.resolve(), path.read_bytes())
    except Exception as error:
        raise UserError(f"'{path}' cannot be run: {error_location(error)}") from error
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise UserError(f"'{path}' has no '{attribute}'; it has: {', '.join(public)}")
    return getattr(module, attribute)


@functools.cache
def _run_file(path: Path, content: bytes) -> ModuleType:
    """The file as a module; run once, and again if its content has changed: classes of two runs would differ."""
    module_name = f"{USER_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling to workers look it up
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)  # what stands beside it can be imported, as by a script
    spec.loader.exec_module(module)
    return module


def short_name(name: str) -> str:
    """For files and folders: of `file.py:Name` the file, with the name unless it is `task`; others as they are."""
    if ".py:" not in name:
        return name
    stem, attribute = _path(name).stem, name.rpartition(":")[2]
    return re.sub(r"[^\w-]", "-", stem if attribute == "task" else f"{stem}-{attribute}")


@contextlib.contextmanager
def user_code_errors(name: str) -> Iterator[None]:
    """Errors while one's own code `file.py:Name` is used become a UserError with their location in that file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if ".py:" not in name:
            raise
        raise UserError(f"'{name}' failed: {error_location(error)}") from error


def _path(name: str) -> Path:
    return Path(name.rpartition(":")[0])


Success = Callable[[float, bool, Mapping[str, Any]], bool]


def task_from_gym(
    gym_id: str,
    *,
    expert: Callable[[], Planner] | None = None,
    name: str | None = None,
    max_steps: int | None = None,
    success: Success | Literal["auto"] | None = "auto",
    metrics: tuple[str | Metric, ...] = (),
    **options: Any,
) -> Task:
    """A task out of a registered environment: fields, actions and streams follow from its spaces.

    success  as in Task; "auto": an episode that ends with a reward, if states are discrete. Where vectors are observed,
             a reward at the end says nothing (CartPole gives one for falling), and the return counts
    options  are handed to `gymnasium.make`
    """
    make = partial(gymnasium.make, gym_id, **options)
    try:
        env = make()
    except Exception as error:
        raise UserError(
            f"'{gym_id}' cannot be made ({type(error).__name__}: {error}); expected the id of a Gymnasium environment"
        ) from error
    observed, actions = env.observation_space, env.action_space
    limit = max_steps or (env.spec.max_episode_steps if env.spec is not None else None)
    env.close()
    if limit is None:
        raise UserError(f"'{gym_id}' has no limit of steps; give one: task_from_gym('{gym_id}', max_steps=...)")
    try:
        fields = _fields(observed)
        states = [field for field, one in fields.items() if one.kind == "category" and not one.shape]
        streams = {"states": Stream(fields[states[0]].sizes[0], observed=states[0])} if len(states) == 1 else {}
        spec = PlanSpec(fields, Actions.from_space(actions), streams)
    except (DataError, ValueError) as error:
        raise UserError(f"'{gym_id}': {error}; write a Task with an observe() of its own") from error
    if success == "auto":
        success = None if any(one.kind == "vector" for one in fields.values()) else terminated_with_reward
    return Task(
        name or gym_id.rpartition("/")[2], make, spec, partial(_observe, fields), limit, success,
        metrics=metrics, expert=expert,
    )  # fmt: skip


def _fields(space: gymnasium.Space[Any]) -> dict[str, Field]:
    if isinstance(space, spaces.Dict):
        return {str(name): _field(one) for name, one in space.spaces.items()}
    return {"state" if isinstance(space, spaces.Discrete) else "observation": _field(space)}


def _field(space: gymnasium.Space[Any]) -> Field:
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Field("category", sizes=(int(space.n),))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not np.any(space.start):
        return Field("category", space.nvec.shape, tuple(map(int, space.nvec)))
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return Field("vector", space.shape)
    raise DataError(f"it observes {space}, expected Discrete or MultiDiscrete from 0 on, a Box of one axis, or a Dict")


def _observe(fields: Mapping[str, Field], env: Env, observation: Any) -> Observation:
    parts = observation if isinstance(observation, Mapping) else dict.fromkeys(fields, observation)
    return {name: np.asarray(parts[name], one.dtype) for name, one in fields.items()}
