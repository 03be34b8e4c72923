"""The Python interface: load a planner, show it what you see, get a plan.

planner = genplan.load("runs/maze")
plan = planner.plan(observation)
plan.actions, plan.states, plan.goals, plan.energy, plan.confidence, plan.trace
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from genplan import runs, tasks
from genplan.errors import UserError
from genplan.flow import Rng, Trace
from genplan.planners.genplan import GenPlan
from genplan.planners.learned import Learned
from genplan.tasks.task import Task
from genplan.types import Observation, Observations


@dataclass(frozen=True)
class SinglePlan:
    """One plan, for one observation."""

    actions: NDArray[np.int64]  # [H]
    states: NDArray[np.int64] | None  # [H], if the planner predicts them
    goals: NDArray[np.int64] | None  # [H, num_goals]
    energy: float
    confidence: NDArray[np.float32]  # [H], of the actions
    trace: Trace | None  # with an axis for the batch, of one (or of the candidates)


class Pilot:
    """A planner in one episode. `start` a new episode, `plan`, and tell it by `observe` what was done and seen."""

    def __init__(self, planner: Learned, task: Task, config: Mapping[str, Any]) -> None:
        self.planner, self.task, self.config = planner, task, dict(config)
        if planner.needs_oracle:
            raise UserError(
                f"a {config['method']} planner is told its goals by the simulator, and an observation has none; "
                "judge it with: genplan eval"
            )
        self._row = torch.zeros(1, dtype=torch.int64)
        self.start()

    def start(self, episode: int = 0) -> None:
        """Forget the episode before. With its seed, this one has the chance that it has in an evaluation."""
        self._memory: Any = None
        self._plans, self._episode = 0, torch.tensor([episode])

    def plan(
        self, observation: Mapping[str, Any], seed: int = 0, keep_trace: bool = True, **options: Any
    ) -> SinglePlan:
        """Plan from an observation: the environment's own (of a grid world), or tokens as the task's `observe` gives.

        `options` change how this plan is made: iterations, temperature, order, candidates, …
        """
        seen = Observations.stack([self._tokens(observation)])
        if self._memory is None:
            self._memory = self.planner.start(seen)
        planner = self.planner.with_options(**options) if options else self.planner
        rng = Rng.of(seed, self._episode, self._plans)
        if isinstance(planner, GenPlan):
            plan, self._memory = planner.plan(seen, self._memory, rng, self._row, keep_trace=keep_trace)
        else:
            plan, self._memory = planner.plan(seen, self._memory, rng, self._row)
        self._plans += 1
        assert plan.energy is not None
        assert plan.confidence is not None
        return SinglePlan(
            actions=plan.actions[0].numpy(),
            states=None if plan.states is None else plan.states[0].numpy(),
            goals=None if plan.goals is None else plan.goals[0].numpy(),
            energy=float(plan.energy[0]),
            confidence=plan.confidence[0].numpy(),
            trace=plan.trace,
        )

    def observe(self, action: int, observation: Mapping[str, Any]) -> None:
        """After an action: what was seen then. Keeps the memory of the episode up to date."""
        seen = Observations.stack([self._tokens(observation)])
        if self._memory is None:
            raise UserError("observe() was called before the first plan() of the episode")
        self._memory = self.planner.observe(self._memory, torch.tensor([int(action)]), seen, self._row)

    def _tokens(self, observation: Mapping[str, Any]) -> Observation:
        if "state" in observation:
            return observation
        if {"image", "pose", "carrying", "mission_tokens"} <= set(observation):
            from genplan.tasks.grid import tokens

            return tokens(self.planner.spec, observation)
        raise UserError(
            f"the observation has {sorted(observation)}, expected a grid world's own, or 'state' and the rest"
        )


def load(name: str | Path, task: str | None = None) -> Pilot:
    """A trained planner by name: `pretrained:TASK`, or a run folder made by `genplan train`.

    `task` is the world it is to plan in, if not the one it learnt in.
    """
    planner, config = runs.load(runs.locate(name))
    world = tasks.get(task or tasks.worlds_of(config["task"])[0])
    return Pilot(planner.on(world.spec), world, config)
