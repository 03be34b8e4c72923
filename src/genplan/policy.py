"""The Python interface for one episode: load a planner, give it an observation, get a plan.

policy = genplan.load("runs/maze")
plan = policy.plan(observation)
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

from genplan import checkpoint, tasks
from genplan.errors import UserError
from genplan.flow import Rng, Trace
from genplan.planners.base import LearnedPlanner
from genplan.rollout import EnvBatch, FixedPlan, open_loop
from genplan.spec import Observation
from genplan.types import Memory, Observations, OpenLoop, Plan, Task


@dataclass(frozen=True)
class SinglePlan:
    """One plan for one observation: a `Plan` without the batch axis, as arrays."""

    actions: NDArray[Any]  # [H, *A], of the environment
    states: NDArray[np.int64] | None  # [H], if the planner predicts them
    goals: NDArray[np.int64] | None  # [H, num_goals], if the planner predicts them
    energy: float | None
    confidence: NDArray[np.float32] | None  # [H], of the actions
    trace: Trace | None  # of this plan alone, one row; None if the planner keeps none

    def execute(self, batch: EnvBatch) -> OpenLoop | None:
        """What its actions do in a batch of one episode, whatever comes; None if the planner predicts no states."""
        if self.states is None:
            return None
        plan = Plan(torch.from_numpy(self.actions)[None], {"states": torch.from_numpy(self.states)[None]})
        executed = open_loop(FixedPlan(plan), batch)
        return None if executed is None else executed[0]


class Policy:
    """A planner in one episode: `reset` starts a new one, `observe` follows every executed action."""

    def __init__(self, planner: LearnedPlanner, task: Task, config: Mapping[str, Any]) -> None:
        self.planner, self.task, self.config = planner, task, dict(config)
        if planner.privileged:
            raise UserError(f"a {config['method']} planner needs privileged goals from the simulator, and an "
                            "observation has none; evaluate it with: genplan eval")  # fmt: skip
        self._ids = torch.zeros(1, dtype=torch.int64)
        self.reset()

    def reset(self, episode: int = 0) -> None:
        """Forget the last episode. `episode` is the next one's seed: its plans are then those of an evaluation."""
        self._memory: Memory = None
        self._num_plans, self._episode = 0, torch.tensor([episode])

    @torch.no_grad()
    def plan(self, observation: Any, seed: int = 0, keep_trace: bool = True, **options: Any) -> SinglePlan:
        """Plan from an observation: the environment's own, or the fields that the task's `observe` returns.

        `options` are settings for this plan only: iterations, temperature, order, num_candidates, …
        """
        observations = self._observations(observation)
        if self._memory is None:
            self._memory = self.planner.reset(observations)
        planner = self.planner.with_options(**options) if options else self.planner
        rng = Rng.of(seed, self._episode, torch.tensor([self._num_plans]))  # as in `rollout`
        plan, self._memory = planner.plan(observations, self._memory, rng, self._ids, keep_trace=keep_trace)
        self._num_plans += 1
        parts = (plan.states, plan.goals, plan.confidence)
        states, goals, confidence = (None if one is None else one[0].cpu().numpy() for one in parts)
        energy = None if plan.energy is None else float(plan.energy[0])
        trace = plan.trace if plan.trace is None or plan.selected is None else plan.trace.rows(plan.selected)
        return SinglePlan(plan.actions[0].cpu().numpy(), states, goals, energy, confidence, trace)

    @torch.no_grad()
    def observe(self, action: Any, observation: Any) -> None:
        """After an executed action: update the memory of the episode with it and what was observed then."""
        if self._memory is None:
            raise UserError("observe() was called before the first plan() of the episode; call plan() first")
        executed = self.task.spec.actions.check(np.asarray(action)[None], "the action")
        observations = self._observations(observation)
        self._memory = self.planner.observe(self._memory, torch.from_numpy(executed), observations, self._ids)

    def _observations(self, observation: Any) -> Observations:
        fields, is_dict = self.task.spec.fields, isinstance(observation, Mapping)
        if not (is_dict and fields.keys() <= observation.keys()):
            found = sorted(observation) if is_dict else type(observation).__name__
            try:
                # Without the simulator: an observe() that looks inside it cannot be used here.
                observation = self.task.observe(None, observation)  # type: ignore[arg-type]
            except Exception as error:
                raise UserError(f"the observation is {found}, expected the fields {', '.join(fields)}, or the own "
                                f"observation of the environment of {self.task.name} ({type(error).__name__}: {error})"
                                ) from error  # fmt: skip
        checked: Observation = {name: one.check(observation[name], f"field '{name}'") for name, one in fields.items()}
        return Observations.stack([checked])


def load(name: str | Path, task: str | None = None, method: str | None = None) -> Policy:
    """A trained planner by name: `pretrained:TASK`, or a run folder made by `genplan train`.

    task    to plan in, if not the one that the planner was trained on; needed if that is a file (`file.py:task`)
    method  needed if the planner's method is a file (`file.py:Class`): no file is run because a folder names it
    """
    folder = checkpoint.run_dir(name)
    planner, config = checkpoint.load_planner(folder, method)
    config["task"] = checkpoint.allowed(config, "task", task, folder)
    target = tasks.get(task or tasks.task_names(config["task"])[0])
    return Policy(planner.for_spec(target.spec), target, config)
