"""What is recorded in an episode of a Minari dataset, as fields of a spec: one class per format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from genplan.data.episodes import checked_subgoal, episode_from_arrays, spec_difference
from genplan.envs.babyai import ACTION_NAMES, AGENT, DIRECTIONS, EMPTY, NOTHING_CARRIED, babyai_spec, cell_in_front
from genplan.errors import DataError
from genplan.migrations import migrate_spec
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Episode, Task, terminated_with_reward

Raw = Mapping[str, Any]
"""An episode as Minari reads it, with its metadata: seed, subgoals, success, last_repeated."""
PICKUP, DROP = ACTION_NAMES.index("pickup"), ACTION_NAMES.index("drop")
DONE = len(ACTION_NAMES)  # MiniGrid's seventh action, which does nothing


class Source(NamedTuple):
    """A dataset before its episodes are read."""

    name: str
    space: Any  # of observations
    action_space: gymnasium.Space[Any]
    metadata: Mapping[str, Any]  # what genplan wrote; empty if another program did
    task: Task | None


def adapter_for(source: Source) -> Adapter:
    keys = set(source.space.spaces) if isinstance(source.space, spaces.Dict) else set()
    if source.metadata.get("format", 0) >= 2:
        return FieldColumns(source)
    if {"image", "pose", "carrying", "mission"} <= keys:
        return GridColumns(source)
    if {"image", "direction", "mission"} <= keys:
        return StockMiniGrid(source)
    if "state" in keys and keys <= {"state", "map", "features", "mission"}:
        return TokenColumns(source)
    return SingleNumber(source) if isinstance(source.space, spaces.Discrete) else ObservedByTask(source)


def roles_v1(spec: PlanSpec) -> dict[str, str]:
    """The fields of a spec that hold what format 1 called state, map, features and mission, as far as there are any."""

    def first(kind: str, has_shape: bool) -> str | None:
        found = (name for name, field in spec.fields.items() if (field.kind, bool(field.shape)) == (kind, has_shape))
        return next(found, None)

    roles = {
        "state": spec.state_field or first("category", False),
        "map": spec.grid_field or first("grid", True),
        "features": first("category", True),
        "mission": spec.words_field,
    }
    return {role: name for role, name in roles.items() if name is not None}


class Adapter:
    """Reads the episodes of a dataset that another program wrote, or format 1: success follows from what is recorded.

    The spec is that of the task, the one that is stored, or what can be known without either.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        if source.task is not None:
            self.spec = source.task.spec
        else:
            stored = source.metadata.get("spec")
            self.spec = self.default_spec() if stored is None else PlanSpec.from_json(migrate_spec(stored))
        self.check_actions()
        self.roles = roles_v1(self.spec)
        self.infos = () if source.task is None else source.task.infos

    def default_spec(self) -> PlanSpec:
        name = self.source.name
        raise DataError(f"dataset {name} does not tell its PlanSpec; name its task with --task file.py:task")

    def check_actions(self) -> None:
        """The action space must be that of the spec; bounds are those of the spec, and checked by the numbers."""
        found, expected = self.source.action_space, self.spec.actions.space()
        numbers = getattr(found, "n", None), getattr(found, "start", 0), found.shape
        if not isinstance(found, type(expected)) or numbers != (self.spec.actions.n, 0, expected.shape):
            raise DataError(f"dataset {self.source.name} has the actions {found}, expected {expected}")

    def observations(self, where: str, raw: Raw) -> Mapping[str, Any]:
        """Columns [T + 1, …] by their `roles`."""
        raise NotImplementedError

    def episode(self, where: str, raw: Raw) -> Episode:
        task, is_v1 = self.source.task, self.source.metadata.get("format") == 1
        columns = self.observations(where, raw)
        episode = episode_from_arrays(
            self.spec, {name: columns[role] for role, name in self.roles.items() if role in columns}, raw["actions"],
            raw["rewards"], raw["terminations"], raw["truncations"], _infos(raw, self.infos), raw["seed"],
            json.loads(raw.get("subgoals", "[]")), where=where,
        )  # fmt: skip
        rule = terminated_with_reward if task is None or is_v1 else task.success
        success = rule is None or _is_success(where, episode, rule)
        rewards = np.full_like(episode.rewards, np.nan) if is_v1 else episode.rewards  # there, 1 stood for success
        return replace(episode, rewards=rewards, success=success)


class FieldColumns(Adapter):
    """genplan's own format: what was recorded is what is read, with success as it was decided then."""

    def __init__(self, source: Source) -> None:
        self.source, self.spec = source, PlanSpec.from_json(source.metadata["spec"])
        self.check_actions()
        if source.task is not None:
            if reason := spec_difference(self.spec, source.task.spec):
                raise DataError(
                    f"dataset {source.name} does not fit task {source.task.name}: {reason}; name one of this task"
                )
            self.spec = source.task.spec

    def episode(self, where: str, raw: Raw) -> Episode:
        episode = episode_from_arrays(
            self.spec, {name: _column(where, raw, name) for name in self.spec.fields}, raw["actions"], raw["rewards"],
            raw["terminations"], raw["truncations"], _infos(raw, None), raw["seed"], json.loads(raw["subgoals"]),
            bool(raw["success"]), where,
        )  # fmt: skip
        return replace(episode, last_repeated=bool(raw["last_repeated"]))


class GridColumns(Adapter):
    """Observations of genplan's grid environments: a symbolic image without the agent, its pose, what it carries."""

    def __init__(self, source: Source) -> None:
        shape: tuple[int, ...] = source.space["image"].shape or ()
        if len(shape) != 3 or shape[2] != 3:
            raise DataError(f"dataset {source.name} has images of shape {shape}, expected (width, height, 3) symbols")
        self.size = shape[:2]
        super().__init__(source)
        geometry = self.spec.geometry
        if geometry is None or geometry[:2] != self.size:
            expected = "none" if geometry is None else f"{geometry[:2]}"
            of = "" if source.task is None else f" for task {source.task.name}"
            raise DataError(f"dataset {source.name} has grids of {self.size}, expected {expected}{of}")
        self.geometry = geometry

    def default_spec(self) -> PlanSpec:
        return babyai_spec(*self.size)

    def observations(self, where: str, raw: Raw) -> Mapping[str, Any]:
        width, _, directions = self.geometry
        poses = Field("category", (3,), self.geometry)
        pose = poses.check(_column(where, raw, "pose"), f"{where}: pose", (len(raw["actions"]) + 1,))
        return {
            "state": (pose[:, 0] + width * pose[:, 1]) * directions + pose[:, 2],
            "map": _column(where, raw, "image"),
            "features": _column(where, raw, "carrying"),
            "mission": _mission(where, raw),
        }


class TokenColumns(Adapter):
    """Format 1 of tasks that are not genplan's own: tokens under fixed names."""

    def observations(self, where: str, raw: Raw) -> Mapping[str, Any]:
        columns = {name: _column(where, raw, name) for name in raw["observations"]}
        return {**columns, "mission": _mission(where, raw)} if "mission" in columns else columns


class SingleNumber(Adapter):
    """The observation is a number, and that is the state."""

    def default_spec(self) -> PlanSpec:
        size, actions = int(self.source.space.n), Actions.from_space(self.source.action_space)
        return PlanSpec({"state": Field("category", (), (size,))}, actions, {"states": Stream(size, (), "state")})

    def observations(self, where: str, raw: Raw) -> Mapping[str, Any]:
        return {"state": raw["observations"]}


class StockMiniGrid(GridColumns):
    """Stock MiniGrid with FullyObsWrapper: the agent hides its cell in the image, and what it carries is not recorded.

    Both are filled in from earlier observations. The target is the cell faced when the episode succeeded.
    """

    def check_actions(self) -> None:
        n, space = self.spec.actions.n, self.source.action_space
        if not isinstance(space, spaces.Discrete) or n is None or space.n not in (n, n + 1) or space.start != 0:
            raise DataError(f"dataset {self.source.name} has the actions {space}, expected MiniGrid's 6 or 7")

    def observations(self, where: str, raw: Raw) -> Mapping[str, Any]:
        return dict(raw["observations"])

    def episode(self, where: str, raw: Raw) -> Episode:
        width, height, directions = self.geometry
        length = len(raw["actions"]) + 1
        is_direction = Field("category", (), (DIRECTIONS,))
        is_direction.check(_column(where, raw, "direction"), f"{where}: direction", (length,))
        image = np.array(_column(where, raw, "image"))
        if image.shape[1:] != (width, height, 3):
            raise DataError(f"{where}: images have shape {image.shape}, expected {(length, width, height, 3)}")
        actions = Actions(DONE + 1).check(raw["actions"], f"{where}: actions")
        is_agent = image[..., 0] == AGENT
        agents = is_agent.sum((1, 2))
        if len(wrong := np.flatnonzero(agents != 1)):
            found, hint = f"image {wrong[0]} shows {agents[wrong[0]]} agents", "record with minigrid's FullyObsWrapper"
            raise DataError(f"{where}: {found}, expected 1: {hint}")
        _, x, y = np.nonzero(is_agent)
        direction = is_direction.check(image[is_agent][:, 2], f"{where}: the agent's direction", (length,))
        poses = list(zip(x.tolist(), y.tolist(), direction.tolist(), strict=True))
        columns = {
            "state": directions * (x + width * y) + direction,
            "features": _reveal(image, poses, actions),
            "map": image,
            "mission": np.array([_mission(where, raw)] * length, object),
        }
        episode = super().episode(where, self._without_done(where, {**raw, "actions": actions}, columns))
        if not episode.success:
            return episode
        target = len(episode) - 1, self.geometry.cell(*cell_in_front(*poses[-1])), "target"
        return replace(episode, subgoals=(checked_subgoal(target, self.spec, len(episode), where),))

    def _without_done(self, where: str, raw: Raw, columns: Mapping[str, NDArray[Any]]) -> Raw:
        """Without the action that does nothing; its reward and its end go to the step before."""
        is_kept = raw["actions"] != DONE
        if not is_kept.any():
            raise DataError(f"{where}: all {len(is_kept)} actions are 'done', expected at least 1 other")
        steps = np.r_[np.flatnonzero(is_kept), len(is_kept)]
        step_of = np.maximum(np.cumsum(is_kept) - 1, 0)
        return {
            **raw,
            "observations": {name: column[steps] for name, column in columns.items()},
            "actions": raw["actions"][is_kept],
            "rewards": np.bincount(step_of, raw["rewards"]),
            "terminations": np.bincount(step_of, raw["terminations"]) > 0,
            "truncations": np.bincount(step_of, raw["truncations"]) > 0,
            "infos": {name: column[is_kept] for name, column in _infos(raw, self.infos).items()},
        }


class ObservedByTask(Adapter):
    """Any other environment: the task's own `observe`, given the recorded observation and no environment."""

    def __init__(self, source: Source) -> None:
        if source.task is None:
            raise DataError(
                f"dataset {source.name} has the observations {source.space}, expected a grid (image, pose, carrying, "
                "mission), a stock MiniGrid with FullyObsWrapper (image, direction, mission), or one number; for "
                "anything else describe it as a Task and name it with --task file.py:task"
            )
        super().__init__(source)
        self.task, self.roles = source.task, {name: name for name in self.spec.fields}

    def observations(self, where: str, raw: Raw) -> Mapping[str, Any]:
        recorded = raw["observations"]
        rows: Any = recorded
        try:
            if isinstance(recorded, dict):
                length = min(map(len, recorded.values()))
                rows = [{name: column[step] for name, column in recorded.items()} for step in range(length)]
            seen = [self.task.observe(None, row) for row in rows]  # type: ignore[arg-type]
            return {name: np.stack([one[name] for one in seen]) for name in self.spec.fields}
        except Exception as error:
            raise DataError(
                f"{where}: task {self.task.name} cannot read a recorded observation without its environment "
                f"({type(error).__name__}: {error}); write observe() so that it needs the observation alone"
            ) from error


# --- what adapters share ---------------------------------------------------------------------------------------------


def _column(where: str, raw: Raw, name: str) -> Any:
    """The observations [T + 1, …] of that name."""
    observations, length = raw["observations"], len(raw["actions"]) + 1
    if length == 1:
        raise DataError(f"{where}: 0 actions, expected at least 1")
    if name not in observations:
        raise DataError(f"{where}: observations have no '{name}', found {sorted(observations)}")
    if (found := len(observations[name])) != length:
        raise DataError(f"{where}: {found} '{name}' observations, expected {length}: one more than actions")
    return observations[name]


def _mission(where: str, raw: Raw) -> str:
    missions = set(_column(where, raw, "mission"))
    if len(missions) != 1:
        raise DataError(f"{where}: {len(missions)} missions, expected 1 for the whole episode")
    return str(missions.pop())


def _infos(raw: Raw, names: tuple[str, ...] | None) -> dict[str, Any]:
    """Recorded infos of these names (None: all), one per action; Minari's collector puts those of `reset` before."""
    recorded = raw.get("infos") or {}
    columns = {name: np.asarray(recorded[name]) for name in recorded if names is None or name in names}
    length = len(raw["actions"])
    return {name: column[1:] if column.shape == (length + 1,) else column for name, column in columns.items()}


def _is_success(where: str, episode: Episode, rule: Callable[[float, bool, Mapping[str, Any]], bool]) -> bool:
    """Whether any step was a success."""
    try:
        return any(
            rule(float(reward), bool(terminated), {name: column[step].item() for name, column in episode.infos.items()})
            for step, (reward, terminated) in enumerate(zip(episode.rewards, episode.terminations, strict=True))
        )
    except Exception as error:
        raise DataError(
            f"{where}: success() of the task cannot be applied to what is recorded ({type(error).__name__}: {error}), "
            f"expected it to need no more than rewards, terminations and the infos {sorted(episode.infos)}"
        ) from error


def _reveal(image: NDArray[Any], poses: list[tuple[int, int, int]], actions: NDArray[Any]) -> NDArray[np.int64]:
    """Puts into the images, in place, what is under the agent; returns what is carried: [T + 1, type and color].

    Both follow from earlier images: the cell as it was when the agent was elsewhere, and the object that vanished when
    it was picked up.
    """
    under = np.array([EMPTY, 0, 0], image.dtype)  # at the start nothing else is known
    image[0][poses[0][:2]] = under
    carrying = np.tile(np.array(NOTHING_CARRIED, np.int64), (len(image), 1))
    for step, (pose, action) in enumerate(zip(poses, actions.tolist(), strict=False), 1):
        position, front = poses[step][:2], cell_in_front(*pose)
        if position != pose[:2]:
            under = image[step - 1][position].copy()
        image[step][position] = under
        carrying[step] = carrying[step - 1]
        before, after = image[step - 1][front], image[step][front]
        if action == PICKUP and before[0] != EMPTY and after[0] == EMPTY:
            carrying[step] = before[:2]
        elif action == DROP and before[0] == EMPTY and after[0] != EMPTY:
            carrying[step] = NOTHING_CARRIED
    return carrying
