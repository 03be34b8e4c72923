"""Episodes from arrays, with every number checked against a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genplan.errors import DataError
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Episode, SubGoal


def episode_from_arrays(
    spec: PlanSpec,
    observations: Mapping[str, Any],
    actions: Any,
    rewards: Any = None,
    terminations: Any = None,
    truncations: Any = None,
    infos: Mapping[str, Any] | None = None,
    seed: int | None = None,
    subgoals: Sequence[Sequence[Any]] = (),
    success: bool = True,
    where: str = "the episode",
) -> Episode:
    """One recorded episode of T actions. What does not fit the spec is a DataError that begins with `where`.

    observations    [T + 1, …] per field, or [T, …] if what followed the last action was not recorded: then the one
                    before is repeated, and the episode marked as `last_repeated`. Words are tokens, texts, or one text
    actions         [T, *A], of the environment
    rewards         [T]; NaN, which means unknown, if they are not given
    terminations,   [T]; all False if they are not given: how the episode ended was not recorded
    truncations
    infos           [T] numbers per key
    subgoals        (step, token, type) each
    """
    actions = _array(actions, f"{where}: actions")
    if actions.ndim and len(actions) == 0:
        raise DataError(f"{where}: 0 actions, expected at least 1")
    actions = spec.actions.check(actions, f"{where}: actions")
    length = len(actions)
    if actions.shape != (length, *spec.actions.shape):
        raise DataError(f"{where}: actions have shape {actions.shape}, expected {(length, *spec.actions.shape)}")
    columns, last_repeated = _observed(spec, observations, length, where)
    return Episode(
        observations=columns,
        actions=actions,
        rewards=_rewards(rewards, length, where),
        terminations=_flags(terminations, length, f"{where}: terminations"),
        truncations=_flags(truncations, length, f"{where}: truncations"),
        infos={name: _numbers(column, length, f"{where}: info '{name}'") for name, column in (infos or {}).items()},
        subgoals=tuple(checked_subgoal(one, spec, length, where) for one in subgoals),
        success=bool(success),
        seed=None if seed is None else int(seed),
        last_repeated=last_repeated,
    )


def _array(value: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{what} are no array ({error}), expected equally long rows") from error


def _observed(
    spec: PlanSpec, observations: Mapping[str, Any], length: int, where: str
) -> tuple[dict[str, NDArray[Any]], bool]:
    """A column [T + 1, …] per field, and whether the last observation had to be repeated."""
    if missing := [name for name in spec.fields if name not in observations]:
        raise DataError(f"{where}: observations have no '{missing[0]}', found {sorted(observations)}")
    given = {name: _array(observations[name], f"{where}: {name}") for name in spec.fields}
    lengths = {name: len(column) for name, column in given.items() if column.ndim}  # one text holds for all steps
    last_repeated = set(lengths.values()) == {length}
    recorded = length if last_repeated else length + 1
    for name, found in lengths.items():
        if found != recorded:
            raise DataError(f"{where}: {found} '{name}' observations, expected {length + 1}: one more than actions")
    columns = {}
    for name, field in spec.fields.items():
        column = _tokens(field, given[name], recorded, where) if field.kind == "words" else given[name]
        checked = field.check(column, f"{where}: {name}", (recorded,))
        columns[name] = np.concatenate([checked, checked[-1:]]) if last_repeated else checked
    return columns, last_repeated


def _tokens(field: Field, column: NDArray[Any], length: int, where: str) -> NDArray[Any]:
    """Texts as tokens; tokens as they are."""
    texts = column.tolist() if column.ndim else [column.item()] * length
    if not all(isinstance(text, str) for text in texts):
        return column
    try:
        tokens = {text: field.encode(text) for text in dict.fromkeys(texts)}
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    return np.stack([tokens[text] for text in texts])


def _rewards(rewards: Any, length: int, where: str) -> NDArray[np.float64]:
    if rewards is None:
        return np.full(length, np.nan)
    values = _numbers(rewards, length, f"{where}: rewards").astype(np.float64)
    bad = values[~np.isfinite(values)]
    if len(bad) and not np.isnan(values).all():  # NaN throughout: unknown
        raise DataError(f"{where}: a reward is {bad[0]}, expected a number (or NaN for all, if they are unknown)")
    return values


def _flags(values: Any, length: int, what: str) -> NDArray[np.bool_]:
    flags = _numbers(np.zeros(length, bool) if values is None else values, length, what)
    if len(odd := flags[~np.isin(flags, (0, 1))]):
        raise DataError(f"{what} hold {odd[0]}, expected True or False")
    return flags.astype(bool)


def _numbers(values: Any, length: int, what: str) -> NDArray[Any]:
    numbers = _array(values, what)
    if numbers.shape != (length,):
        raise DataError(f"{what} have shape {numbers.shape}, expected {(length,)}, one per action")
    if numbers.dtype != bool and not np.issubdtype(numbers.dtype, np.number):
        raise DataError(f"{what} have dtype {numbers.dtype}, expected numbers")
    return numbers


def checked_subgoal(one: Sequence[Any], spec: PlanSpec, length: int, where: str) -> SubGoal:
    try:
        step, token, type_ = one
        subgoal = SubGoal(int(step), int(token), str(type_))
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: a sub-goal is {one!r}, expected [step, token, type]") from error
    if not 0 <= subgoal.step < length:
        raise DataError(f"{where}: a sub-goal is reached at step {subgoal.step}, expected 0 to {length - 1}")
    if spec.goals is not None and not 0 <= subgoal.token < spec.goals.size:
        raise DataError(f"{where}: a sub-goal is {subgoal.token}, expected 0 to {spec.goals.size - 1}")
    return subgoal


def spec_difference(found: PlanSpec, expected: PlanSpec) -> str | None:
    """Why episodes of one spec cannot be used with another, with both values; None if they can.

    Fields that are not expected do no harm. The number of goals per step is no property of episodes.
    """
    for name in (*expected.scene_fields, *expected.step_fields):
        if name not in found.fields:
            return f"there is no field '{name}', found {', '.join(found.fields)}"
        theirs, ours = found.fields[name], expected.fields[name]
        for part in ("kind", "shape", "sizes"):
            if getattr(theirs, part) != getattr(ours, part):
                return f"the {part} of field '{name}' is {getattr(theirs, part)}, expected {getattr(ours, part)}"
        if theirs.vocabulary != ours.vocabulary:
            words = sorted(set(theirs.vocabulary) ^ set(ours.vocabulary)) or ["their order"]
            return (
                f"the vocabulary of field '{name}' has {len(theirs.vocabulary)} words, expected "
                f"{len(ours.vocabulary)}; they differ in {', '.join(words[:5])}"
            )
    for part in ("n", "low", "high"):
        a, b = getattr(found.actions, part), getattr(expected.actions, part)
        if a != b:
            return f"{part} of the actions is {a}, expected {b}"
    if found.actions.origin != expected.actions.origin:
        return f"actions are {_meaning(found.actions)}, expected {_meaning(expected.actions)}"
    if found.goals is not None and expected.goals is not None and found.goals.size != expected.goals.size:
        return f"there are {found.goals.size} goal tokens, expected {expected.goals.size}"
    return None


def _meaning(actions: Actions) -> str:
    if actions.origin is None:
        return "absolute"
    return f"relative to field '{actions.origin[0]}' from entry {actions.origin[1]} on"
