"""A task: an environment, and how a planner sees it. This is all that a user's own environment needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from genplan.data.tokens import PlanSpec
from genplan.errors import UserError
from genplan.types import Observation, Planner


def reached(reward: float, terminated: bool, info: dict[str, Any]) -> bool:
    """Success, in most Gymnasium environments: the episode ended with a reward."""
    return bool(terminated and reward > 0)


Watcher = Callable[[Observation, Observation, bool], list[tuple[int, str]]]


@dataclass(frozen=True)
class Task:
    """Describe any Gymnasium environment with discrete actions, and genplan can plan in it."""

    name: str
    make: Callable[[], gymnasium.Env[Any, Any]]
    spec: PlanSpec
    # What a planner sees, from the environment and its own observation (see genplan.types.Observation).
    observe: Callable[[gymnasium.Env[Any, Any], Any], Observation]
    max_steps: int
    expert: Callable[[], Planner] | None = None
    # Makes, for an episode, a function (before, after, success) -> [(goal token, kind), ...] of what a step reached.
    watch: Callable[[gymnasium.Env[Any, Any]], Watcher] | None = None
    # Where the simulator says the next goals are, for planners that are told (never in an observation).
    goals: Callable[[gymnasium.Env[Any, Any]], list[int]] | None = None
    succeeded: Callable[[float, bool, dict[str, Any]], bool] = reached

    def new_env(self) -> gymnasium.Env[Any, Any]:
        try:
            return self.make()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"the environment of task {self.name} cannot be made ({reason}); see its make()") from error

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError(f"task {self.name}: max_steps is {self.max_steps}, expected at least 1")
