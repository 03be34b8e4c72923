"""Experts: planners that look inside the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.types import Env, Memory, Observations, Oracle, Plan

ExpertFn = Callable[[Any], Any]
"""One expert in one episode: the action taken last (None at the start) -> the next action, a number or an array."""


class ExpertPlanner:
    """A planner out of a function that makes an `ExpertFn` for an environment just reset. One action per plan."""

    privileged = True
    action_steps: int | None = None

    def __init__(self, make_policy: Callable[[Env], ExpertFn]) -> None:
        self.make_policy = make_policy

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        if oracle is None:
            raise UserError("an expert looks inside the simulator; it needs the oracle argument, found none")
        return [[self.make_policy(env), None] for env in oracle.envs]  # each one's expert, and the action taken last

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        actions = np.stack([expert(last) for expert, last in (memory[row] for row in ids.tolist())])
        if actions.dtype.kind not in "iuf":
            raise UserError(f"the expert returned {actions[0]!r}, expected a number or an array of numbers: an action")
        if actions.dtype.kind == "f":
            actions = actions.astype(np.float32, copy=False)
        return Plan(torch.from_numpy(actions)[:, None]), memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, ids: Tensor) -> Memory:
        for row, action in zip(ids.tolist(), actions.tolist() if actions.ndim == 1 else actions.numpy(), strict=True):
            memory[row][1] = action
        return memory
