"""Planners that learn nothing: random policies, and noisy experts for sub-optimal demonstrations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import Actions, PlanSpec
from genplan.types import Episode, Memory, Observations, Oracle, Plan, Planner

FORWARD = (1.0, 1.0, 3.0, 0.2, 0.2, 1.0)  # left, right, forward, pickup, drop, toggle


class NoisyExpert:
    """Another planner whose actions are replaced by random ones with a probability."""

    action_steps = None

    def __init__(self, planner: Planner, actions: Actions, probability: float = 0.25) -> None:
        if not 0 <= probability < 1:
            raise ValueError(f"the probability of a random action is {probability}, expected 0 to below 1")
        self.planner, self.actions, self.probability = planner, actions, probability
        self.privileged, self.reset, self.observe = planner.privileged, planner.reset, planner.observe

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        plan, memory = self.planner.plan(observations, memory, rng, ids, oracle)
        horizon = plan.actions.shape[1]
        slips = rng.fold("slips").uniform((horizon,)) < self.probability
        slips = slips.reshape(*slips.shape, *(1 for _ in self.actions.shape))
        return Plan(
            torch.where(slips, uniform_actions(self.actions, rng.fold("random"), horizon), plan.actions)
        ), memory


def uniform_actions(actions: Actions, rng: Rng, horizon: int) -> Tensor:
    """Uniform draws of the action space, [*batch, horizon, *A]."""
    if actions.n is not None:
        return rng.integers(actions.n, (horizon,))
    low, high = (torch.tensor(bound, device=rng.key.device) for bound in (actions.low, actions.high))
    return low + (high - low) * rng.uniform((horizon, *actions.shape))


class RandomPolicy:
    """Actions drawn from a fixed distribution, whatever is observed. The control that every result stands beside."""

    privileged = False
    action_steps = None

    def __init__(self, actions: Actions, weights: Sequence[float] | None = None) -> None:
        """`weights` of discrete actions; uniform by default."""
        if weights is not None and (min(weights) < 0 or not sum(weights) > 0):
            raise ValueError(f"a random policy's weights are {list(weights)}, expected at least 0, and more in all")
        self.actions, self.weights = actions, None if weights is None else torch.tensor(weights, dtype=torch.float64)

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        return None

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        if self.weights is None:
            return Plan(uniform_actions(self.actions, rng, 1)), memory
        return Plan(rng.categorical(self.weights.to(rng.key.device).expand(len(ids), 1, -1))), memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, ids: Tensor) -> Memory:
        return memory


class ReplayPlanner:
    """Plays the demonstration that began most alike, whatever comes; behind its end, its last action."""

    privileged = False
    action_steps = None

    def __init__(self, spec: PlanSpec, episodes: Sequence[Episode]) -> None:
        self.fields = [name for name, one in spec.fields.items() if one.kind == "vector"]
        if not self.fields:
            raise UserError("replay compares vectors that are observed, found none; use random:uniform")
        first = self._features([one.observations for one in episodes], 0)
        self.scale = first.std(0).clamp(min=1e-6)
        self.first = first / self.scale
        length = max(len(one) for one in episodes)
        self.actions = torch.stack([self._padded(torch.from_numpy(one.actions), length) for one in episodes])

    def _features(self, observations: Sequence[Mapping[str, Any]], step: int) -> Tensor:
        rows = [np.concatenate([one[name][step] for name in self.fields]) for one in observations]
        return torch.from_numpy(np.stack(rows)).float()

    @staticmethod
    def _padded(actions: Tensor, length: int) -> Tensor:
        return torch.cat([actions, actions[-1:].expand(length - len(actions), *actions.shape[1:])])

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        """The demonstration of each row, and whether it was played."""
        seen = torch.cat([observations[name] for name in self.fields], 1) / self.scale
        return [torch.cdist(seen, self.first).argmin(1), torch.zeros(len(seen), dtype=torch.bool)]

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        chosen, played = memory
        actions = self.actions[chosen[ids]]
        actions = torch.where(played[ids].reshape(-1, *(1 for _ in actions.shape[1:])), actions[:, -1:], actions)
        played[ids] = True
        return Plan(actions), memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, ids: Tensor) -> Memory:
        return memory


def random_policy(kind: str, actions: Actions, train_task: str | None = None) -> RandomPolicy:
    """`uniform`; `demos`, the histogram of the demonstrations; `forward`, mostly forward and some toggling."""
    if kind == "uniform":
        return RandomPolicy(actions, None if actions.n is None else [1.0] * actions.n)
    if kind == "forward":
        if actions.n != len(FORWARD):
            raise UserError(f"random:forward knows MiniGrid's {len(FORWARD)} actions, found {actions.n or 'others'}; "
                            "use random:uniform")  # fmt: skip
        return RandomPolicy(actions, FORWARD)
    if kind == "demos":
        counts = demonstrated_actions()
        if train_task not in counts:
            raise UserError(f"random:demos knows the demonstrations of {', '.join(counts)}, found {train_task}")
        return RandomPolicy(actions, counts[train_task])
    raise UserError(f"there is no random policy '{kind}'; known are uniform, demos and forward")


def demonstrated_actions() -> dict[str, list[int]]:
    """How often each action occurs in the bot's 1,000 demonstrations of each task, from seed 10,000 on."""
    text = resources.files("genplan.planners").joinpath("demonstrated_actions.json").read_text()
    counts: dict[str, list[int]] = json.loads(text)
    return counts
