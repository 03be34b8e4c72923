"""Planners that learn nothing: random policies, and noisy experts for sub-optimal demonstrations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources

import torch
from torch import Tensor

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import Actions
from genplan.types import Memory, Observations, Oracle, Plan, Planner

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
