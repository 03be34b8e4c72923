"""What is recorded in an episode of a Minari dataset, as fields of a spec: one class per format.

FieldColumns     genplan's datasets: a column per field of the spec that is stored with them
GridColumns      image, pose, carrying, mission: genplan's grid environments, and their datasets of format 1
TokenColumns     state (map, features, mission): all other datasets of format 1
StockMiniGrid    image, direction, mission: MiniGrid or BabyAI with FullyObsWrapper, the agent drawn in the image
SingleNumber     environments such as Taxi-v3: the observation is the state
ObservedByTask   anything else, through the task's own `observe`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from genplan.data.episodes import episode_from_arrays, spec_difference
from genplan.data.minigrid import DONE, NUM_DIRECTIONS, find_agent, minigrid_spec, reveal
from genplan.errors import DataError
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Episode, SubGoal, Task, terminated_with_reward

Raw = Mapping[str, Any]
"""An episode as Minari reads it, with its metadata: seed, subgoals, success, last_repeated."""


class Source(NamedTuple):
    """A dataset before its episodes are read."""

    name: str
    space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    metadata: Mapping[str, Any]  # what genplan wrote; empty if another program did
    task: Task | None


class Adapter(Protocol):
    spec: PlanSpec

    def __init__(self, source: Source) -> None: ...

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool: ...

    def episode(self, where: str, raw: Raw) -> Episode: ...


def adapter_for(source: Source) -> Adapter:
    for adapter in ADAPTERS:
        if adapter.matches(source.space, source.metadata):
            return adapter(source)
    if source.task is not None:
        return ObservedByTask(source)
    raise DataError(
        f"dataset {source.name} has the observations {source.space}, expected a grid (image, pose, carrying, mission), "
        "a stock MiniGrid with FullyObsWrapper (image, direction, mission), or one number; for anything else describe "
        "it as a Task and name it with --task file.py:task"
    )


# --- what adapters share ---------------------------------------------------------------------------------------------


def _keys(space: gymnasium.Space[Any]) -> set[str]:
    return set(space.spaces) if isinstance(space, spaces.Dict) else set()


def _check_actions(source: Source, actions: Actions) -> None:
    """The dataset's action space must be that of the spec; bounds are those of the spec, and checked by the numbers."""
    found, expected = source.action_space, actions.space()
    if isinstance(expected, spaces.Discrete):
        fits = isinstance(found, spaces.Discrete) and (found.n, found.start) == (expected.n, 0)
    else:
        fits = isinstance(found, spaces.Box) and found.shape == expected.shape
    if not fits:
        raise DataError(f"dataset {source.name} has the actions {found}, expected {expected}")


def _column(where: str, raw: Raw, name: str) -> Any:
    """The observations [T + 1, …] of that name."""
    observations, length = raw["observations"], len(raw["actions"]) + 1
    if length == 1:
        raise DataError(f"{where}: 0 actions, expected at least 1")
    if name not in observations:
        raise DataError(f"{where}: observations have no '{name}', found {sorted(observations)}")
    if len(observations[name]) != length:
        found = len(observations[name])
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
    length = len(raw["actions"])
    columns = {name: np.asarray(recorded[name]) for name in recorded if names is None or name in names}
    return {name: column[1:] if column.shape == (length + 1,) else column for name, column in columns.items()}


def _is_success(where: str, episode: Episode, task: Task | None) -> bool:
    """Whether any step was a success, by the task's rule or the default one."""
    if task is not None and task.success is None:
        return True
    rule = terminated_with_reward if task is None or task.success is None else task.success
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


def _episode(where: str, raw: Raw, source: Source, spec: PlanSpec, observations: Mapping[str, Any]) -> Episode:
    """An episode of another format: its success is decided from what is recorded."""
    infos = _infos(raw, () if source.task is None else source.task.infos)
    episode = episode_from_arrays(
        spec, observations, raw["actions"], raw["rewards"], raw["terminations"], raw["truncations"], infos, raw["seed"],
        json.loads(raw.get("subgoals", "[]")), where=where,
    )  # fmt: skip
    if source.metadata.get("format") == 1:  # rewards were not kept: 1 was written for success
        unknown = np.full(len(episode), np.nan)
        return replace(episode, rewards=unknown, success=_is_success(where, episode, None))
    return replace(episode, success=_is_success(where, episode, source.task))


class Roles(NamedTuple):
    """The fields of a spec that hold what format 1 called by fixed names; None if there is no such field."""

    state: str | None
    map: str | None
    features: str | None
    mission: str | None

    @staticmethod
    def of(spec: PlanSpec) -> Roles:
        def first(suits: Callable[[Field], bool]) -> str | None:
            return next((name for name, field in spec.fields.items() if suits(field)), None)

        return Roles(
            spec.state_field or first(lambda field: field.kind == "category" and not field.shape),
            spec.grid_field or first(lambda field: field.kind == "grid"),
            first(lambda field: field.kind == "category" and bool(field.shape)),
            spec.words_field,
        )

    def observations(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of format 1 by their names in the spec; what the spec does not have is left out."""
        named = {name: getattr(self, name) for name in columns}
        return {named[name]: column for name, column in columns.items() if named[name] is not None}


def spec_from_v1(data: Mapping[str, Any]) -> PlanSpec:
    """The spec that is stored with a dataset of format 1."""
    cells = tuple(data["map_shape"]) if data.get("map_shape") else None
    fields = {"state": Field("category", (), (data["num_states"],))}
    if cells is not None:
        fields["grid"] = Field("grid", cells, data["map_channels"])
    if data.get("words"):
        fields["mission"] = Field("words", (data["max_words"],), vocabulary=data["words"])
    if data.get("features"):
        fields["carrying"] = Field("category", (len(data["features"]),), data["features"])
    grid = None if cells is None else "grid"
    streams = {"states": Stream(data["num_states"], (), "state", grid, data.get("num_headings", 1))}
    if data.get("num_goals"):
        on_grid = cells is not None and data["goal_size"] == cells[0] * cells[1]
        streams["goals"] = Stream(data["goal_size"], (data["num_goals"],), points_at="grid" if on_grid else None)
    return PlanSpec(fields, Actions(data["num_actions"]), streams)


def _grid_spec(source: Source) -> PlanSpec:
    """Of a dataset with images: the task's, the stored one, or that of any MiniGrid."""
    assert isinstance(source.space, spaces.Dict)
    shape = source.space["image"].shape
    if shape is None or len(shape) != 3 or shape[2] != 3:
        raise DataError(f"dataset {source.name} has images of shape {shape}, expected (width, height, 3) symbols")
    if source.task is None:
        return spec_from_v1(source.metadata["spec"]) if "spec" in source.metadata else minigrid_spec(*shape[:2])
    geometry = source.task.spec.geometry
    expected = None if geometry is None else (geometry.width, geometry.height)
    if expected != shape[:2]:
        name = source.task.name
        raise DataError(f"dataset {source.name} has grids of {shape[:2]}, expected {expected} for task {name}")
    return source.task.spec


# --- formats ---------------------------------------------------------------------------------------------------------


class FieldColumns:
    """genplan's own format: what was recorded is what is read, with success as it was decided then."""

    def __init__(self, source: Source) -> None:
        self.spec = PlanSpec.from_json(source.metadata["spec"])
        _check_actions(source, self.spec.actions)
        if source.task is not None:
            if reason := spec_difference(self.spec, source.task.spec):
                raise DataError(f"dataset {source.name} does not fit task {source.task.name}: {reason}")
            self.spec = source.task.spec

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool:
        return bool(metadata.get("format", 0) >= 2)

    def episode(self, where: str, raw: Raw) -> Episode:
        episode = episode_from_arrays(
            self.spec, {name: _column(where, raw, name) for name in self.spec.fields}, raw["actions"], raw["rewards"],
            raw["terminations"], raw["truncations"], _infos(raw, None), raw["seed"], json.loads(raw["subgoals"]),
            bool(raw["success"]), where,
        )  # fmt: skip
        return replace(episode, last_repeated=bool(raw["last_repeated"]))


class GridColumns:
    """Observations of genplan's grid environments: a symbolic image without the agent, its pose, what it carries."""

    def __init__(self, source: Source) -> None:
        self.source, self.spec = source, _grid_spec(source)
        _check_actions(source, self.spec.actions)
        self.roles = Roles.of(self.spec)

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool:
        return {"image", "pose", "carrying", "mission"} <= _keys(space)

    def episode(self, where: str, raw: Raw) -> Episode:
        geometry = self.spec.geometry
        assert geometry is not None
        poses = Field("category", (3,), geometry)
        pose = poses.check(_column(where, raw, "pose"), f"{where}: pose", (len(raw["actions"]) + 1,))
        columns = {
            "state": (pose[:, 0] + geometry.width * pose[:, 1]) * geometry.directions + pose[:, 2],
            "map": _column(where, raw, "image"),
            "features": _column(where, raw, "carrying"),
            "mission": _mission(where, raw),
        }
        return _episode(where, raw, self.source, self.spec, self.roles.observations(columns))


class TokenColumns:
    """Format 1 of tasks that are not genplan's own: tokens under fixed names."""

    def __init__(self, source: Source) -> None:
        if source.task is None and "spec" not in source.metadata:
            raise DataError(f"dataset {source.name} does not tell its PlanSpec; name its task with --task file.py:task")
        self.source = source
        self.spec = source.task.spec if source.task is not None else spec_from_v1(source.metadata["spec"])
        _check_actions(source, self.spec.actions)
        self.roles = Roles.of(self.spec)

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool:
        return "state" in _keys(space) and _keys(space) <= set(Roles._fields)

    def episode(self, where: str, raw: Raw) -> Episode:
        columns = {name: _column(where, raw, name) for name in raw["observations"]}
        if "mission" in columns:
            columns["mission"] = _mission(where, raw)
        return _episode(where, raw, self.source, self.spec, self.roles.observations(columns))


class SingleNumber:
    """The observation is a number, and that is the state."""

    def __init__(self, source: Source) -> None:
        self.source = source
        if source.task is not None:
            self.spec = source.task.spec
        else:
            assert isinstance(source.space, spaces.Discrete)
            size = int(source.space.n)
            actions = Actions.from_space(source.action_space)
            self.spec = PlanSpec(
                {"state": Field("category", (), (size,))}, actions, {"states": Stream(size, (), "state")}
            )
        _check_actions(source, self.spec.actions)
        self.roles = Roles.of(self.spec)

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool:
        return isinstance(space, spaces.Discrete)

    def episode(self, where: str, raw: Raw) -> Episode:
        observations = self.roles.observations({"state": raw["observations"]})
        return _episode(where, raw, self.source, self.spec, observations)


class StockMiniGrid:
    """Stock MiniGrid with FullyObsWrapper: the agent hides its cell in the image, and what it carries is not recorded.

    Both are filled in from earlier observations. The target is the cell faced when the episode succeeded.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.spec = source, _grid_spec(source)
        n, space = self.spec.actions.n, source.action_space
        if not isinstance(space, spaces.Discrete) or n is None or space.n not in (n, n + 1) or space.start != 0:
            raise DataError(f"dataset {source.name} has the actions {space}, expected MiniGrid's 6 or 7")
        self.roles = Roles.of(self.spec)

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool:
        return {"image", "direction", "mission"} <= _keys(space)

    def episode(self, where: str, raw: Raw) -> Episode:
        geometry = self.spec.geometry
        assert geometry is not None
        length = len(raw["actions"]) + 1
        Field("category", (), (NUM_DIRECTIONS,)).check(
            _column(where, raw, "direction"), f"{where}: direction", (length,)
        )
        image = np.array(_column(where, raw, "image"))
        if image.shape[1:] != (geometry.width, geometry.height, 3):
            expected = (length, geometry.width, geometry.height, 3)
            raise DataError(f"{where}: images have shape {image.shape}, expected {expected}")
        actions = Actions(DONE + 1).check(raw["actions"], f"{where}: actions")
        agent = find_agent(image, where)
        columns = {
            "state": geometry.directions * (agent.positions @ (1, geometry.width)) + agent.directions,
            "features": reveal(image, agent, actions),
            "map": image,
            "mission": np.array([_mission(where, raw)] * length, object),
        }
        kept = self._without_done(where, {**raw, "actions": actions, "observations": self.roles.observations(columns)})
        episode = _episode(where, kept, self.source, self.spec, kept["observations"])
        target = SubGoal(len(episode) - 1, geometry.cell(*agent.fronts[-1]), "target")
        return replace(episode, subgoals=(target,)) if episode.success else episode

    def _without_done(self, where: str, raw: Raw) -> dict[str, Any]:
        """Without the action that does nothing; its reward and its end go to the step before."""
        is_kept = raw["actions"] != DONE
        if not is_kept.any():
            raise DataError(f"{where}: all {len(is_kept)} actions are 'done', expected at least 1 other")
        steps = np.r_[np.flatnonzero(is_kept), len(is_kept)]
        step_of = np.maximum(np.cumsum(is_kept) - 1, 0)
        infos = _infos(raw, () if self.source.task is None else self.source.task.infos)
        return {
            **raw,
            "observations": {name: column[steps] for name, column in raw["observations"].items()},
            "actions": raw["actions"][is_kept],
            "rewards": np.bincount(step_of, raw["rewards"]),
            "terminations": np.bincount(step_of, raw["terminations"]) > 0,
            "truncations": np.bincount(step_of, raw["truncations"]) > 0,
            "infos": {name: column[is_kept] for name, column in infos.items()},
        }


class ObservedByTask:
    """Any other environment: the task's own `observe`, given the recorded observation and no environment."""

    def __init__(self, source: Source) -> None:
        assert source.task is not None
        self.source, self.task, self.spec = source, source.task, source.task.spec
        _check_actions(source, self.spec.actions)

    @staticmethod
    def matches(space: gymnasium.Space[Any], metadata: Mapping[str, Any]) -> bool:
        return True

    def episode(self, where: str, raw: Raw) -> Episode:
        recorded = raw["observations"]
        columns = recorded if isinstance(recorded, dict) else {"": recorded}
        length = min(len(column) for column in columns.values())
        try:
            rows = [{name: column[step] for name, column in columns.items()} for step in range(length)]
            seen = [self.task.observe(None, row if isinstance(recorded, dict) else row[""]) for row in rows]  # type: ignore[arg-type]
            observations = {name: np.stack([one[name] for one in seen]) for name in self.spec.fields}
        except Exception as error:
            raise DataError(
                f"{where}: task {self.task.name} cannot read a recorded observation without its environment "
                f"({type(error).__name__}: {error}); write observe() so that it needs the observation alone"
            ) from error
        return _episode(where, raw, self.source, self.spec, observations)


ADAPTERS: tuple[type[Adapter], ...] = (FieldColumns, GridColumns, StockMiniGrid, TokenColumns, SingleNumber)
