"""Finish and HoldLast: recordings end when their task is nearly done; what comes then is to finish, and to stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genplan.envs import ROBOTS, make_robot
from genplan.errors import UserError
from genplan.spec import Observation, PlanSpec
from genplan.types import Episode, SubGoal

POSITION_ERROR = 0.01  # of a simulator that begins with what was observed


@dataclass(frozen=True)
class Finish:
    """Goes on for some steps in the simulator, where the last action is repeated: what happens then is observed.

    For actions that are targets. Recordings that are cut off in the middle of a movement do not show where it leads;
    the last action says where it was to lead. A sub-goal that was reached by the last action is reached by the last of
    these.

    env    a robot of genplan's whose episodes can begin with what was observed
    least  what `info` must come to at the end. Episodes that end with less stay as they are, and count as not
           successful: they are no example of where to stay.
    """

    name: ClassVar[str] = "finish"
    replaces: ClassVar[bool] = True  # the episodes that go on take the place of the others
    env: str
    steps: int
    info: str | None = None
    least: float = 0.0

    def __post_init__(self) -> None:
        _check_steps(self.name, self.steps)
        if self.env not in ROBOTS:
            raise UserError(
                f"the transform '{self.name}' has env {self.env!r:.80}, expected one of {', '.join(ROBOTS)}"
            )
        if isinstance(self.least, bool) or not isinstance(self.least, int | float) or not np.isfinite(self.least):
            raise UserError(f"the transform '{self.name}' has least {self.least!r:.80}, expected a number")

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        _check_actions(self.name, spec)
        env = make_robot(self.env)
        try:
            return [self._finished(env, episode) for episode in episodes]
        finally:
            env.close()

    def _finished(self, env: Any, episode: Episode) -> Episode:
        length, (field,) = len(episode), episode.observations
        known = length + (not episode.last_repeated)
        before, target = episode.observations[field][known - 1], episode.actions[-1]
        found, _ = env.reset(seed=0, options={"start": {field: before}})
        if not np.allclose(found, before, atol=POSITION_ERROR):
            raise UserError(
                f"the simulator of {self.env} cannot begin with what was observed last; expected recordings of it, or "
                f"a recipe without the transform '{self.name}'"
            )
        # The last observation, where it was not recorded, is known then.
        steps = [env.step(target) for _ in range(length + 1 + self.steps - known)]
        if self.info is not None and steps[-1][-1].get(self.info, -np.inf) < self.least:
            return replace(episode, success=False)
        last = length - 1 + self.steps
        goals = [goal._replace(step=last) if goal.step == length - 1 else goal for goal in episode.subgoals]
        rest = {field: np.stack([one[0] for one in steps]).astype(before.dtype)}
        finished = extended(episode, known, rest, np.repeat(target[None], self.steps, 0), goals)
        return replace(finished, last_repeated=False)


@dataclass(frozen=True)
class HoldLast:
    """Goes on for some steps in which what was observed last stays.

    For actions that are targets. Where they are relative to what is observed, the target is what is observed: to repeat
    the last one would teach to go on by as much for ever. Where they are not, the last one is repeated. Only episodes
    that succeeded are held.

    goal  the token of the sub-goal that is reached by it; None: there is none
    """

    name: ClassVar[str] = "hold_last"
    replaces: ClassVar[bool] = True
    steps: int
    goal: int | None = None

    def __post_init__(self) -> None:
        _check_steps(self.name, self.steps)
        if self.goal is not None and (isinstance(self.goal, bool) or not isinstance(self.goal, int) or self.goal < 0):
            raise UserError(
                f"the transform '{self.name}' has goal {self.goal!r}, expected a token of the goals, or none"
            )

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        _check_actions(self.name, spec)
        if self.goal is not None and (spec.goals is None or self.goal >= spec.goals.size):
            size = 0 if spec.goals is None else spec.goals.size
            raise UserError(f"the transform '{self.name}' has goal {self.goal}, and the task has {size} of them")
        return [self._held(spec, episode) if episode.success else episode for episode in episodes]

    def _held(self, spec: PlanSpec, episode: Episode) -> Episode:
        target = episode.actions[-1]
        if spec.actions.origin is not None:
            name, first = spec.actions.origin
            there = episode.observations[name][-1, first : first + len(spec.actions.low)]
            target = np.clip(there, spec.actions.low, spec.actions.high).astype(target.dtype)
        length = len(episode)
        rest = {name: np.repeat(column[-1:], self.steps, 0) for name, column in episode.observations.items()}
        goals = list(episode.subgoals)
        if self.goal is not None:
            goals.append(SubGoal(length - 1 + self.steps, self.goal, "target"))
        return extended(episode, length + 1, rest, np.repeat(target[None], self.steps, 0), goals)


def extended(
    episode: Episode, known: int, observations: Observation, actions: NDArray[Any], subgoals: Sequence[SubGoal]
) -> Episode:
    """An episode that goes on behind its first `known` observations; what else a step has is repeated."""

    def held(column: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([column, np.repeat(column[-1:], len(actions), 0)])

    return replace(
        episode,
        observations={
            name: np.concatenate([column[:known], observations[name]]) for name, column in episode.observations.items()
        },
        actions=np.concatenate([episode.actions, actions]),
        rewards=held(episode.rewards),
        terminations=held(episode.terminations),
        truncations=held(episode.truncations),
        infos={name: held(column) for name, column in episode.infos.items()},
        subgoals=tuple(subgoals),
    )


def _check_steps(name: str, steps: Any) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 10**4:
        raise UserError(f"the transform '{name}' has steps {steps!r}, expected 1 to 10000")


def _check_actions(name: str, spec: PlanSpec) -> None:
    if spec.actions.n is not None:
        raise UserError(f"the transform '{name}' needs continuous actions; train without it")
