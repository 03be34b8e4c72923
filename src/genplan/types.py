"""The glossary: what is handed from one room to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genplan.flow import Rng, Trace

Observation = Mapping[str, Any]
"""What a planner may see, as a PlanSpec describes it; nothing of the goal or the instruction object is in it.

    state      int                  the token of the current state
    map        uint8 [W, H, C]      if the spec has a map; the agent is not drawn in it
    mission    int64 [max_words]    if the spec has words
    features   int64 [F]            if the spec has features, such as what is carried
"""


@dataclass(frozen=True)
class Observations:
    """A batch of observations."""

    state: Tensor  # int64 [B]
    map: Tensor | None = None  # uint8 [B, W, H, C]
    mission: Tensor | None = None  # int64 [B, L]
    features: Tensor | None = None  # int64 [B, F]

    @staticmethod
    def stack(observations: Sequence[Observation]) -> Observations:
        first = observations[0]

        def field_of(name: str) -> Tensor | None:
            if name not in first:
                return None
            return torch.from_numpy(np.stack([observation[name] for observation in observations]))

        state = torch.tensor([int(observation["state"]) for observation in observations])
        return Observations(state, field_of("map"), field_of("mission"), field_of("features"))

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, rows: Tensor) -> Observations:
        others = (None if x is None else x[rows] for x in (self.map, self.mission, self.features))
        return Observations(self.state[rows], *others)


class SubGoal(NamedTuple):
    """Something that was reached on the way: a fact of a demonstration."""

    step: int  # the action that reached it, counted from 0
    token: int  # the goal token: a cell, or a state
    kind: str  # target, blocker, key or door


@dataclass(frozen=True)
class Episode:
    """One demonstration, in the tokens of a spec: T actions, T + 1 states."""

    states: NDArray[np.int64]  # [T + 1]
    actions: NDArray[np.int64]  # [T]
    maps: NDArray[np.uint8] | None = None  # [T + 1, W, H, C]
    features: NDArray[np.int64] | None = None  # [T + 1, F]
    mission: str = ""
    subgoals: tuple[SubGoal, ...] = ()
    success: bool = True
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Plan:
    """What to do next, for a batch of episodes, and how it came about."""

    actions: Tensor  # int64 [B, H]
    states: Tensor | None = None  # int64 [B, H]
    goals: Tensor | None = None  # int64 [B, H, num_goals]
    energy: Tensor | None = None  # [B]
    energies: Tensor | None = None  # [B, candidates]: of all plans among which these were chosen
    confidence: Tensor | None = None  # [B, H], of the actions
    trace: Trace | None = None


Memory = Any
"""Whatever a planner keeps of its episodes; the evaluator owns it and hands it back."""


@dataclass(frozen=True)
class Oracle:
    """The simulator itself, for planners that may look inside (experts, and baselines given goals). Never a default."""

    envs: Sequence[gymnasium.Env[Any, Any]]
    goals: Callable[[gymnasium.Env[Any, Any]], list[int]] | None = None  # what is to be reached next, as goal tokens


class Planner(Protocol):
    """Anything that can plan."""

    needs_oracle: bool

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        """At the start of a batch of episodes."""

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        """Plans for the `rows` [n] of the batch that need one; `observations` and `rng` hold just those rows."""

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        """After every executed step: what was done in `rows`, and what was seen then."""


@dataclass(frozen=True)
class EpisodeResult:
    """How one evaluated episode went."""

    seed: int
    success: bool
    steps: int
    plans: int
    stalled: int  # steps that changed nothing
    cells: int  # distinct cells visited (states, where there is no map)
    actions: tuple[int, ...] = field(default=(), repr=False)
