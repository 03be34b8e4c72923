"""What was recorded in an episode of a Minari dataset, as tokens, with every number checked.

What may be in a dataset of discrete actions, told apart by its observation space:

    image, pose, carrying, mission     genplan's own grid worlds
    image, direction, mission          stock MiniGrid or BabyAI with FullyObsWrapper: the agent is drawn in the image
    state (map, features, mission)     any task described by a PlanSpec
    a single number                    environments such as Taxi-v3: the observation is the state

Anything else is read through the task's own `observe`, if a task is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from genplan.data.tokens import PlanSpec
from genplan.errors import DataError
from genplan.tasks.task import Task
from genplan.types import Episode, Observation, SubGoal

AGENT, EMPTY = 10, 1
PICKUP, DROP, DONE = 3, 4, 6


def recorded_actions(where: str, raw: Mapping[str, Any], num_actions: int) -> NDArray[np.int64]:
    actions = np.asarray(raw["actions"])
    if actions.ndim != 1 or not np.issubdtype(actions.dtype, np.integer):
        raise DataError(
            f"{where}: actions have shape {actions.shape} and dtype {actions.dtype}, expected whole numbers [T]"
        )
    if len(actions) == 0:
        raise DataError(f"{where}: 0 actions, expected at least 1")
    _in_range(where, "action", actions, num_actions)
    for key in ("rewards", "terminations", "truncations"):
        column = np.asarray(raw[key])
        if column.shape != actions.shape:
            raise DataError(f"{where}: {key} have shape {column.shape}, expected {actions.shape}, one per action")
        if key == "rewards" and not np.isfinite(column.astype(float)).all():
            raise DataError(f"{where}: a reward is {column[~np.isfinite(column.astype(float))][0]}, expected a number")
    return actions.astype(np.int64)


def _in_range(where: str, what: str, values: NDArray[Any], size: int) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        bad = values[~np.isfinite(values)] if np.issubdtype(values.dtype, np.floating) else values[:0]
        found = f"; one is {bad.flat[0]}" if bad.size else ""
        raise DataError(
            f"{where}: {what}s have dtype {values.dtype}{found}, expected whole numbers from 0 to {size - 1}"
        )
    if values.size and (values.min() < 0 or values.max() >= size):
        worst = values.min() if values.min() < 0 else values.max()
        raise DataError(f"{where}: a {what} is {worst}, expected 0 to {size - 1}")


def reader(
    name: str, space: gymnasium.Space[Any], about: Mapping[str, Any], task: Task | None, num_actions: int
) -> tuple[PlanSpec, Any]:
    """The spec of a dataset, and the function that turns a raw episode into tokens."""
    keys = set(space.spaces) if isinstance(space, spaces.Dict) else set()
    if {"image", "pose", "carrying", "mission"} <= keys:
        return _grid_spec(name, space, task), _from_whole_grid
    if {"image", "direction", "mission"} <= keys:
        spec = _grid_spec(name, space, task)
        if num_actions not in (spec.num_actions, spec.num_actions + 1):
            raise DataError(f"dataset {name} has {num_actions} actions, expected MiniGrid's 6 or 7")
        return spec, _StockGrid(spec)
    if "state" in keys:
        if task is None and "spec" not in about:
            raise DataError(f"dataset {name} does not tell its PlanSpec; name its task with --task file.py:task")
        spec = task.spec if task is not None else PlanSpec.from_json(about["spec"])
        return spec, _from_tokens
    if isinstance(space, spaces.Discrete):
        spec = task.spec if task is not None else PlanSpec(num_actions=num_actions, num_states=int(space.n))
        return spec, _from_numbers
    if task is not None:
        return task.spec, _Observed(task)
    raise DataError(
        f"dataset {name} has the observations {space}, expected a grid (image, pose, carrying, mission), a stock "
        "MiniGrid with FullyObsWrapper (image, direction, mission), state tokens, or one number; for anything else "
        "describe it as a Task and name it with --task file.py:task"
    )


def _grid_spec(name: str, space: Any, task: Task | None) -> PlanSpec:
    shape = space["image"].shape
    if len(shape) != 3 or shape[2] != 3:
        raise DataError(f"dataset {name} has images of shape {shape}, expected (width, height, 3) symbols")
    if task is not None:
        if task.spec.map_shape != shape[:2]:
            raise DataError(
                f"dataset {name} has maps of {shape[:2]}, expected {task.spec.map_shape} for task {task.name}"
            )
        return task.spec
    return PlanSpec.grid(shape[0], shape[1])


def _column(where: str, raw: Mapping[str, Any], key: str, length: int) -> NDArray[Any]:
    observations = raw["observations"]
    if key not in observations:
        raise DataError(f"{where}: observations have no '{key}', found {sorted(observations)}")
    column = np.asarray(observations[key])
    if len(column) != length:
        raise DataError(f"{where}: {len(column)} '{key}' observations, expected {length}: one more than actions")
    return column


def _mission(where: str, raw: Mapping[str, Any], length: int) -> str:
    missions = _column(where, raw, "mission", length)
    if len(set(missions.tolist())) != 1:
        raise DataError(f"{where}: {len(set(missions.tolist()))} missions, expected 1 for the whole episode")
    return str(missions[0])


def _subgoals(raw: Mapping[str, Any]) -> tuple[SubGoal, ...]:
    return tuple(SubGoal(int(step), int(token), str(kind)) for step, token, kind in json.loads(raw["subgoals"]))


def _succeeded(raw: Mapping[str, Any]) -> bool:
    return bool(np.asarray(raw["terminations"])[-1]) and float(np.asarray(raw["rewards"])[-1]) > 0


def _from_whole_grid(where: str, raw: Mapping[str, Any], actions: NDArray[np.int64]) -> Episode:
    length = len(actions) + 1
    image = _column(where, raw, "image", length)
    pose = _column(where, raw, "pose", length)
    if pose.shape != (length, 3):
        raise DataError(f"{where}: poses have shape {pose.shape}, expected {(length, 3)}")
    width, height = image.shape[1:3]
    for what, values, size in (("x", pose[:, 0], width), ("y", pose[:, 1], height), ("heading", pose[:, 2], 4)):
        _in_range(where, what, values, size)
    states = (pose[:, 0] + width * pose[:, 1]) * 4 + pose[:, 2]
    return Episode(
        states=states.astype(np.int64),
        actions=actions,
        maps=image,
        features=_column(where, raw, "carrying", length),
        mission=_mission(where, raw, length),
        subgoals=_subgoals(raw),
        success=_succeeded(raw),
        seed=raw["seed"],
    )


class _StockGrid:
    """Stock MiniGrid with FullyObsWrapper: the agent hides its cell in the image, and what it carries is not told.

    Both are filled in from what was seen before: the cell as it was when the agent was elsewhere, and the thing that
    vanished when it was picked up. The target is the cell faced when the episode succeeded.
    """

    def __init__(self, spec: PlanSpec) -> None:
        self.spec = spec

    def __call__(self, where: str, raw: Mapping[str, Any], actions: NDArray[np.int64]) -> Episode:
        length = len(actions) + 1
        image = _column(where, raw, "image", length).copy()
        _in_range(where, "heading", _column(where, raw, "direction", length), 4)
        is_agent = image[..., 0] == AGENT
        if not (is_agent.sum((1, 2)) == 1).all():
            found = int(is_agent[0].sum())
            raise DataError(
                f"{where}: the first image shows {found} agents, expected 1: record with minigrid's FullyObsWrapper"
            )
        _, xs, ys = np.nonzero(is_agent)
        heading = image[is_agent][:, 2].astype(np.int64)
        _in_range(where, "heading", heading, 4)
        under = np.array([EMPTY, 0, 0], np.uint8)
        carried = np.array([EMPTY, 0])
        features = np.zeros((length, 2), np.int64)
        for step in range(length):
            x, y = xs[step], ys[step]
            # What is under the agent is what lay there before it came; at the start nothing is known: an empty cell.
            if step and (x, y) != (xs[step - 1], ys[step - 1]):
                under = image[step - 1, x, y].copy()
            image[step, x, y] = under
            if step:
                front = xs[step - 1] + (1, 0, -1, 0)[heading[step - 1]], ys[step - 1] + (0, 1, 0, -1)[heading[step - 1]]
                was, now = image[step - 1][front], image[step][front]
                if actions[step - 1] == PICKUP and was[0] != EMPTY and now[0] == EMPTY:
                    carried = was[:2].astype(np.int64)
                elif actions[step - 1] == DROP and was[0] == EMPTY and now[0] != EMPTY:
                    carried = np.array([EMPTY, 0])
            features[step] = carried
        states = (xs + self.spec.map_shape[0] * ys) * 4 + heading  # type: ignore[index]
        success = _succeeded(raw)
        subgoals: tuple[SubGoal, ...] = ()
        if success:
            front = xs[-1] + (1, 0, -1, 0)[heading[-1]], ys[-1] + (0, 1, 0, -1)[heading[-1]]
            subgoals = (SubGoal(len(actions) - 1, self.spec.cell(*front), "target"),)
        kept = actions != DONE  # a step that does nothing is no part of a plan
        if not kept.any():
            raise DataError(f"{where}: all {len(actions)} actions are 'done', expected at least 1 other")
        rows = np.r_[np.flatnonzero(kept), len(actions)]
        moved = tuple(
            SubGoal(int(kept[: goal.step].sum()) - int(not kept[goal.step]), goal.token, goal.kind) for goal in subgoals
        )
        mission = _mission(where, raw, length)
        return Episode(states[rows], actions[kept], image[rows], features[rows], mission, moved, success, raw["seed"])


def _from_tokens(where: str, raw: Mapping[str, Any], actions: NDArray[np.int64]) -> Episode:
    length = len(actions) + 1
    observations = raw["observations"]
    return Episode(
        states=_column(where, raw, "state", length),
        actions=actions,
        maps=_column(where, raw, "map", length) if "map" in observations else None,
        features=_column(where, raw, "features", length) if "features" in observations else None,
        mission=_mission(where, raw, length) if "mission" in observations else "",
        subgoals=_subgoals(raw),
        success=_succeeded(raw),
        seed=raw["seed"],
    )


def _from_numbers(where: str, raw: Mapping[str, Any], actions: NDArray[np.int64]) -> Episode:
    states = np.asarray(raw["observations"])
    if states.shape != (len(actions) + 1,):
        raise DataError(f"{where}: observations have shape {states.shape}, expected {(len(actions) + 1,)}")
    return Episode(states, actions, subgoals=_subgoals(raw), success=_succeeded(raw), seed=raw["seed"])


def stacked(seen: Sequence[Observation], key: str) -> NDArray[Any] | None:
    """One column of a sequence of observations."""
    return np.stack([view[key] for view in seen]) if key in seen[0] else None


class _Observed:
    """Any other environment: the task's own `observe`, given the recorded observation and no environment."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, where: str, raw: Mapping[str, Any], actions: NDArray[np.int64]) -> Episode:
        recorded = raw["observations"]
        length = len(actions) + 1
        try:
            pick = (
                (lambda k: {key: column[k] for key, column in recorded.items()})
                if isinstance(recorded, dict)
                else recorded.__getitem__
            )
            seen = [self.task.observe(None, pick(k)) for k in range(length)]  # type: ignore[arg-type]
        except Exception as error:
            raise DataError(
                f"{where}: task {self.task.name} cannot read a recorded observation without its environment "
                f"({type(error).__name__}: {error}); write observe() so that it needs the observation alone"
            ) from error
        states = np.array([int(view["state"]) for view in seen])
        mission = self.task.spec.decode_mission(seen[0]["mission"]) if "mission" in seen[0] else ""
        return Episode(
            states,
            actions,
            stacked(seen, "map"),
            stacked(seen, "features"),
            mission,
            _subgoals(raw),
            _succeeded(raw),
            raw["seed"],
        )


def checked(where: str, episode: Episode, spec: PlanSpec) -> Episode:
    """Everything within the vocabularies of the spec."""
    _in_range(where, "state", episode.states, spec.num_states)
    _in_range(where, "action", episode.actions, spec.num_actions)
    if episode.maps is not None and spec.map_shape is not None:
        expected = (len(episode) + 1, *spec.map_shape, len(spec.map_channels))
        if episode.maps.shape != expected:
            raise DataError(f"{where}: maps have shape {episode.maps.shape}, expected {expected}")
        for channel, size in enumerate(spec.map_channels):
            _in_range(where, f"cell's channel {channel}", episode.maps[..., channel], size)
    if episode.features is not None:
        if episode.features.shape != (len(episode) + 1, len(spec.features)):
            expected_features = (len(episode) + 1, len(spec.features))
            raise DataError(f"{where}: features have shape {episode.features.shape}, expected {expected_features}")
        for number, size in enumerate(spec.features):
            _in_range(where, f"feature {number}", episode.features[:, number], size)
    if spec.words:
        spec.encode_mission(episode.mission)
    for goal in episode.subgoals:
        if not 0 <= goal.step < len(episode):
            raise DataError(f"{where}: a sub-goal is reached at step {goal.step}, expected 0 to {len(episode) - 1}")
        if spec.num_goals and not 0 <= goal.token < spec.goal_size:
            raise DataError(f"{where}: a sub-goal is {goal.token}, expected 0 to {spec.goal_size - 1}")
    return episode
