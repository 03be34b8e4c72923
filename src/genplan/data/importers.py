"""Recorded demonstrations in the formats that they are published in: PushT, Franka Kitchen, and LeRobot's.

A file is data: nothing in it is run, and every number is checked when the episodes are made. What was not recorded is
not invented: without a last observation the one before is repeated and marked, and rewards are unknown.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genplan.data.episodes import episode_from_arrays
from genplan.errors import DataError, UserError
from genplan.types import Env, Episode, SubGoal, Task

CONTROL_EVERY = 40  # records of Kitchen's raw logs, at 500 Hz, per step of the environment
# Positions, velocities, controls, bodies in hand, sensors, user data, length of a name.
LOG_HEADER = struct.Struct("<7i")
LOG_SIZES = (30, 29, 9, 1, 0, 0)


@dataclass(frozen=True)
class Recorded:
    """Episodes that are made when they are asked for, one by one: that may take minutes, and can be watched."""

    parts: Sequence[Any]
    make: Callable[[Any], Episode]  # of a part

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Episode]:
        return map(self.make, self.parts)


def read_pusht(path: Path, task: Task) -> Recorded:
    """An npz file with `state`, `action`, `episode_ends`, or the published zarr folder. They end when it is pushed."""
    from genplan.envs.pusht import observed

    columns = _zarr_columns(path) if path.is_dir() else _npz_columns(path)
    state, action = (_column(columns, name, path) for name in ("state", "action"))
    if state.ndim != 2 or state.shape[1] < 5:
        raise DataError(f"{path}: 'state' has shape {state.shape}, expected (steps, 5): agent x, y, block x, y, angle")
    seen = observed(np.asarray(state, np.float64)[:, :5])
    episodes = _episodes(columns, len(state), path)

    def make(number: int) -> Episode:
        steps, where = episodes[number], f"{path}, episode {number}"
        length = len(seen[steps])
        goals = _subgoals({"push": length - 1}, task, length)
        return episode_from_arrays(task.spec, {"observation": seen[steps]}, action[steps], subgoals=goals, where=where)

    return Recorded(range(len(episodes)), make)


def read_kitchen(path: Path, task: Task) -> Recorded:
    """An npz file with `qpos_qvel`, `action`, `completion_step`, `episode_ends`, or a folder of raw .mjl logs.

    Actions become joint targets. Raw logs are replayed, to know what the environment observes and what is completed.
    """
    if path.is_dir():
        logs = sorted(path.rglob("*.mjl"))
        if not logs:
            raise DataError(f"{path} has no .mjl files, expected raw logs of demonstrations, or an npz file")
        return Recorded(logs, partial(_replayed_log, task=task))
    from genplan.envs.kitchen import REACH

    columns = _npz_columns(path)
    recorded, action, steps_done = (_column(columns, one, path) for one in ("qpos_qvel", "action", "completion_step"))
    names = list(map(str, _column(columns, "task_names", path)))
    if recorded.ndim != 2 or recorded.shape[1] < 30:
        raise DataError(f"{path}: 'qpos_qvel' has shape {recorded.shape}, expected (steps, 59)")
    positions = recorded[:, :30]
    targets = np.clip(positions[:, :9] + REACH * action, task.spec.actions.low, task.spec.actions.high)
    episodes = _episodes(columns, len(positions), path)

    def make(number: int) -> Episode:
        steps, where = episodes[number], f"{path}, episode {number}"
        goals = _subgoals(dict(zip(names, steps_done[number].tolist(), strict=True)), task, steps.stop - steps.start)
        seen = {"observation": positions[steps]}
        return episode_from_arrays(task.spec, seen, targets[steps], subgoals=goals, where=where)

    return Recorded(range(len(episodes)), make)


def _subgoals(done: Mapping[str, int], task: Task, length: int) -> list[SubGoal]:
    """Of tasks by name, with the step at which each was completed (−1: never), in order."""
    goals = task.spec.goals
    numbers = {name: number for number, name in enumerate(() if goals is None else goals.names)}
    if unknown := sorted(set(done) - set(numbers)):
        raise DataError(f"the recording completes '{unknown[0]}', expected one of {', '.join(numbers)}")
    reached = sorted((min(step, length - 1), numbers[name]) for name, step in done.items() if step >= 0)
    return [SubGoal(step, token, "target") for step, token in reached]


def _replayed_log(path: Path, task: Task) -> Episode:
    """A raw log, played in the environment from its own start."""
    env, actions = task.make_env(), task.spec.actions
    targets = np.clip(read_log(path), actions.low, actions.high)
    try:
        raw, _ = env.reset(seed=0)
        observations, completed = [np.asarray(raw)], list[int]()
        for target in targets:
            raw, _, _, _, info = env.step(target)
            observations.append(np.asarray(raw))
            completed.append(int(info["completed"]))
    finally:
        env.close()
    goals = () if task.spec.goals is None else task.spec.goals.names
    done = {
        name: next((step for step, bits in enumerate(completed) if bits >> bit & 1), -1)
        for bit, name in enumerate(goals)
    }
    return episode_from_arrays(
        task.spec, {"observation": np.stack(observations)}, targets, infos={"completed": np.array(completed)},
        subgoals=_subgoals(done, task, len(targets)), where=str(path),
    )  # fmt: skip


def read_log(path: Path) -> NDArray[np.float64]:
    """Joint targets [steps, 9] of a raw log of the kitchen: controls at the times of the environment's steps."""
    data = path.read_bytes()
    if len(data) < LOG_HEADER.size:
        raise DataError(f"{path} has {len(data)} bytes, expected a header of {LOG_HEADER.size}")
    *sizes, name_length = LOG_HEADER.unpack_from(data)
    if tuple(sizes) != LOG_SIZES or not 0 <= name_length < 4096:
        raise DataError(f"{path} begins with {(*sizes, name_length)}, expected {LOG_SIZES} and the length of a name")
    positions, velocities, controls, bodies, sensors, users = sizes
    width = 1 + positions + velocities + controls + 7 * bodies + sensors + users
    body = data[LOG_HEADER.size + name_length :]
    if not body or len(body) % (4 * width):
        raise DataError(f"{path} holds {len(body)} bytes of records, expected a multiple of {4 * width}")
    records = np.frombuffer(body, "<f4").reshape(-1, width)[::CONTROL_EVERY]
    first = 1 + positions + velocities
    return np.asarray(records[:, first : first + controls], np.float64)


def read_lerobot(path: Path, task: Task) -> Recorded:
    """A dataset folder of LeRobot, format v3: Parquet files of many episodes, with `meta/info.json`.

    A column `observation.NAME` is the field NAME; if the task observes one vector alone, `observation.state` is it.
    """
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError("LeRobot's files need pyarrow; install it with: pip install 'genplan[robots]'") from error
    try:
        information = json.loads((path / "meta" / "info.json").read_text())
        version = str(information["codebase_version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} has no meta/info.json with a codebase_version; expected a LeRobot dataset") from error
    if not version.startswith("v3"):
        raise DataError(f"{path} has LeRobot's format {version}, expected v3; convert it with lerobot's own script")
    files = sorted((path / "data").rglob("*.parquet"))
    if not files:
        raise DataError(f"{path}/data has 0 Parquet files, expected at least 1")
    named = _lerobot_columns(task)
    wanted = [*named.values(), "action", "episode_index"]
    rewards: str | None = "next.reward"
    parts: dict[str, list[NDArray[Any]]] = {}
    for file in files:
        known = parquet.read_schema(file).names
        if missing := [name for name in wanted if name not in known]:
            raise DataError(f"{file} has no column '{missing[0]}', expected it beside {', '.join(known)}")
        rewards = rewards if rewards in known else None
        table = parquet.read_table(file, columns=[*wanted, *([] if rewards is None else [rewards])])
        for name in table.column_names:
            parts.setdefault(name, []).append(_stacked(table[name].to_pylist(), f"{file}: {name}"))
    columns = {name: np.concatenate(one) for name, one in parts.items()}
    index = columns["episode_index"].reshape(-1)

    def make(number: int) -> Episode:
        rows = index == number
        seen = {name: columns[column][rows] for name, column in named.items()}
        paid = None if rewards is None else columns[rewards][rows].reshape(-1)
        where = f"{path}, episode {number}"
        return episode_from_arrays(task.spec, seen, columns["action"][rows], paid, where=where)

    return Recorded(np.unique(index).tolist(), make)


def _lerobot_columns(task: Task) -> dict[str, str]:
    fields = task.spec.fields
    if [one.kind for one in fields.values()] == ["vector"]:
        return dict.fromkeys(fields, "observation.state")
    return {name: f"observation.{name}" for name in fields}


def _stacked(rows: list[Any], what: str) -> NDArray[Any]:
    try:
        return np.array(rows)
    except ValueError as error:
        raise DataError(f"{what} has rows of different lengths, expected equally long ones") from error


IMPORTERS: Mapping[str, tuple[str | None, Callable[[Path, Task], Recorded]]] = {
    "pusht": ("PushT", read_pusht), "kitchen": ("Kitchen", read_kitchen), "lerobot": (None, read_lerobot),
}  # fmt: skip
"""Format -> the task that it is of, if it is of one, and its reader."""


def replay(task: Task, episode: Episode) -> Mapping[str, NDArray[Any]]:
    """What the environment tells of an episode whose actions are played from where it began: infos [T] by name."""
    env: Env = task.make_env()
    try:
        env.reset(seed=0, options={"start": {name: column[0] for name, column in episode.observations.items()}})
        infos = [env.step(action)[4] for action in episode.actions]
    finally:
        env.close()
    return {name: np.array([one[name] for one in infos], np.float64) for name in task.infos}


# --- columns ---------------------------------------------------------------------------------------------------------


def _npz_columns(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read ({error}); expected an npz file of arrays") from error


def _zarr_columns(path: Path) -> dict[str, NDArray[Any]]:
    """`data/state`, `data/action` and `meta/episode_ends` of a zarr folder."""
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise UserError("zarr folders need zarr; install it with: pip install 'genplan[robots]'") from error
    places = {"state": "data/state", "action": "data/action", "episode_ends": "meta/episode_ends"}
    try:
        group = zarr.open_group(str(path), mode="r")
        return {name: np.asarray(group[place][:]) for name, place in places.items()}
    except Exception as error:  # zarr fails in many ways on damaged folders; none may reach the user raw
        found, expected = f"{type(error).__name__}: {error}", ", ".join(places.values())
        raise DataError(f"{path} cannot be read ({found}); expected a zarr folder with {expected}") from error


def _column(columns: Mapping[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    if name not in columns:
        raise DataError(f"{path} has no '{name}', expected it beside {', '.join(columns)}")
    return columns[name]


def _episodes(columns: Mapping[str, NDArray[Any]], length: int, path: Path) -> list[slice]:
    """The steps of every episode."""
    ends = _column(columns, "episode_ends", path).reshape(-1).astype(np.int64)
    if not len(ends) or ends[-1] != length or (np.diff(ends, prepend=0) < 1).any():
        last = ends[-1] if len(ends) else "none"
        raise DataError(f"{path}: episodes end at {last}, expected rising numbers up to the {length} steps")
    return [slice(first, last) for first, last in zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True)]
