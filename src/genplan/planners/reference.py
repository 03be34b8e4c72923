"""Planners that learn nothing: experts that look inside the simulator, and walks that look at nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any

import gymnasium
import torch
from torch import Tensor

from genplan.errors import LostError, UserError
from genplan.flow import Rng
from genplan.types import Memory, Observations, Oracle, Plan

Act = Callable[[int | None], int]
"""One expert in one episode: the action taken last (None at the start) -> the next action."""


class Expert:
    """A planner out of a function that makes an `Act` for an environment. One action per plan."""

    needs_oracle = True

    def __init__(self, follow: Callable[[gymnasium.Env[Any, Any]], Act]) -> None:
        self.follow = follow

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        if oracle is None:
            raise UserError("an expert looks inside the simulator; it needs the oracle argument, found none")
        return _Following([self.follow(env) for env in oracle.envs], [None] * len(oracle.envs))

    def plan(
        self, observations: Observations, memory: _Following, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        actions = [memory.acts[row](memory.last[row]) for row in rows.tolist()]
        return Plan(torch.tensor(actions)[:, None]), memory

    def observe(self, memory: _Following, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        for row, action in zip(rows.tolist(), actions.tolist(), strict=True):
            memory.last[row] = action
        return memory


@dataclass
class _Following:
    acts: list[Act]
    last: list[int | None] = field(default_factory=list)


class Bot(Expert):
    """BabyAI's bot. It explores with its 7×7 view, so its paths are longer than they need be in a known map."""

    def __init__(self) -> None:
        super().__init__(partial(_follow_bot, sees_all=False))


class ShortestBot(Expert):
    """The bot with its eyes opened: shortest paths, where all doors are open."""

    def __init__(self) -> None:
        super().__init__(partial(_follow_bot, sees_all=True))


class _Intentions(list[Any]):
    """What the bot means to do next. On odd maps one intention follows another for ever; here they come to an end."""

    MOST = 100  # between two actions; in BabyAI's levels there are fewer than ten

    number = 0

    def append(self, intention: Any) -> None:
        self.number += 1
        if self.number > self.MOST:
            raise RecursionError(f"{self.MOST} intentions and no action")
        super().append(intention)


def _follow_bot(env: gymnasium.Env[Any, Any], sees_all: bool) -> Act:
    from minigrid.utils.baby_ai_bot import BabyAIBot

    if not hasattr(env.unwrapped, "instrs"):
        raise UserError(
            f"the bot understands BabyAI's levels, found {type(env.unwrapped).__name__}; give your own expert"
        )
    bot = BabyAIBot(env)
    bot.stack = intentions = _Intentions(bot.stack)
    if sees_all:
        bot.vis_mask[:] = True

    def act(last: int | None) -> int:
        intentions.number = 0
        try:
            action = int(bot.replan(last))
        except Exception as error:  # it gives up in many ways
            raise LostError(f"the bot does not know how to go on here ({type(error).__name__})") from error
        return action if action < env.action_space.n else 0  # type: ignore[attr-defined]  # `done` is no action here

    return act


class Clumsy:
    """Another planner that does something random now and then: sub-optimal demonstrations."""

    def __init__(self, planner: Any, num_actions: int, probability: float = 0.25) -> None:
        if not 0 <= probability < 1:
            raise ValueError(f"the share of random actions is {probability}, expected 0 to below 1")
        self.planner, self.num_actions, self.probability = planner, num_actions, probability
        self.needs_oracle: bool = planner.needs_oracle

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        return self.planner.start(observations, oracle)

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        plan, memory = self.planner.plan(observations, memory, rng, rows, oracle)
        horizon = plan.actions.shape[1:]
        slips = rng.fold("slips").uniform(horizon) < self.probability
        random = rng.fold("random").integers(self.num_actions, horizon)
        return Plan(torch.where(slips, random, plan.actions)), memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        return self.planner.observe(memory, actions, observations, rows)


class Walk:
    """A blind walk: actions drawn from a fixed histogram, whatever is seen. The control that every result stands by."""

    needs_oracle = False

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = torch.tensor(weights, dtype=torch.float64)
        if self.weights.min() < 0 or not self.weights.sum() > 0:
            raise ValueError(f"a walk's weights are {list(weights)}, expected at least 0 each and more than 0 in all")

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        return None

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        return Plan(rng.categorical(self.weights.expand(len(rows), 1, -1))), memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        return memory


LIVELY = (1.0, 1.0, 3.0, 0.2, 0.2, 1.0)  # left, right, forward, pick up, drop, toggle


def walk(kind: str, num_actions: int, trained_on: str | None = None) -> Walk:
    """`uniform`; `demos`, the histogram of the demonstrations; `lively`, mostly forward and some toggling."""
    if kind == "uniform":
        return Walk([1.0] * num_actions)
    if kind == "lively":
        if num_actions != len(LIVELY):
            raise UserError(
                f"walk:lively knows MiniGrid's {len(LIVELY)} actions, found {num_actions}; use walk:uniform"
            )
        return Walk(LIVELY)
    if kind == "demos":
        counts = demonstrated_actions()
        if trained_on not in counts:
            raise UserError(f"walk:demos knows the demonstrations of {', '.join(counts)}, found {trained_on}")
        return Walk(counts[trained_on])
    raise UserError(f"there is no walk '{kind}'; known are uniform, demos and lively")


def demonstrated_actions() -> dict[str, list[int]]:
    """How often each action occurs in the bot's 1,000 demonstrations of each world, from seed 10,000 on."""
    text = resources.files("genplan.planners").joinpath("demonstrated_actions.json").read_text()
    counts: dict[str, list[int]] = json.loads(text)
    return counts
