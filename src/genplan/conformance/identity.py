"""Identity tasks: the observation shows a symbol, and the action of that number is right. One per kind of field.

Symbols follow each other in a circle, so that a plan of several steps can be right as well. Goals are drawn apart from
symbols: whoever is given them still has to read the observation.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, get_args

import gymnasium
import numpy as np

from genplan.collect import collect_episode
from genplan.spec import Actions, Field, Kind, Observation, PlanSpec, Stream
from genplan.tasks.experts import ExpertPlanner
from genplan.types import TRAIN_SEEDS, Episode, Task

KINDS = get_args(Kind)
CODECS = ("identity", "bins")  # that `auto` chooses for discrete and for continuous actions
SYMBOLS, STEPS, EPISODES = 4, 6, 24
VALUES = np.array([-0.75, -0.25, 0.25, 0.75], np.float32)  # of symbols, as numbers
TOLERANCE = 0.2  # of a continuous action; with a bin per symbol, half a bin is 0.1875
FIELDS = {
    "grid": Field("grid", (2, 2), (SYMBOLS,)),
    "words": Field("words", (1,), vocabulary=("<pad>", "north", "east", "south", "west")),
    "category": Field("category", sizes=(SYMBOLS,)),
    "vector": Field("vector", (1,)),
}


class IdentityEnv(gymnasium.Env[Any, Any]):
    """A symbol, a cell and a goal, drawn at the start; symbol and cell move on by one with every step."""

    def __init__(self, discrete: bool) -> None:
        self.discrete = discrete

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.symbol, self.cell, self.goal, *self.noise = self.np_random.integers(SYMBOLS, size=7).tolist()
        return None, {}

    def right_action(self) -> Any:
        return self.symbol if self.discrete else VALUES[self.symbol] * np.array([1, -1], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        is_right = bool(np.all(np.abs(np.asarray(action) - self.right_action()) <= TOLERANCE))
        self.symbol, self.cell = (self.symbol + 1) % SYMBOLS, (self.cell + 1) % SYMBOLS
        return None, float(is_right), False, False, {}


def _observe(kind: Kind, env: Any, raw: Any) -> Observation:
    if kind == "grid":  # the agent's cell shows it; the others show anything
        grid = ((env.noise + env.symbol * np.arange(4)) % SYMBOLS).astype(np.uint8).reshape(2, 2, 1)
        grid[env.cell % 2, env.cell // 2] = env.symbol
        return {"symbol": grid, "cell": env.cell}
    shown = {"words": [env.symbol + 1], "category": env.symbol, "vector": [VALUES[env.symbol]]}[kind]
    return {"symbol": np.asarray(shown, FIELDS[kind].dtype)}


def _goal(env: Any) -> list[int]:
    return [env.goal]


def _label_goal(env: Any) -> Any:
    return lambda before, after, success: [(env.goal, "target")]


def _policy(env: Any) -> Any:
    return lambda last: env.right_action()


@cache
def identity_task(kind: Kind, codec: str, goals: bool = False) -> Task:
    """`codec`: identity, for discrete actions, or another, for continuous ones; with `goals`, a stream of them."""
    fields, streams = {"symbol": FIELDS[kind]}, dict[str, Stream]()
    discrete, points_at = codec == "identity", "symbol" if kind == "grid" else None
    if kind == "grid":
        fields["cell"] = Field("category", sizes=(4,))
        streams["states"] = Stream(4, observed="cell", points_at=points_at)
    if kind == "category":
        streams["states"] = Stream(SYMBOLS, observed="symbol")
    if goals:
        streams["goals"] = Stream(SYMBOLS, (1,), points_at=points_at)
    actions = Actions(SYMBOLS) if discrete else Actions(low=(-1.0, -1.0), high=(1.0, 1.0))
    return Task(
        f"{kind} × {codec}", partial(IdentityEnv, discrete), PlanSpec(fields, actions, streams),
        partial(_observe, kind), STEPS, success=None, metrics=("return",), expert=partial(ExpertPlanner, _policy),
        label_subgoals=_label_goal if goals else None, privileged_goals=_goal,
    )  # fmt: skip


@cache
def demonstrations(kind: Kind, codec: str, goals: bool = False) -> tuple[Episode, ...]:
    task = identity_task(kind, codec, goals)
    played = (collect_episode(ExpertPlanner(_policy), task, task.make_env(), seed) for seed in TRAIN_SEEDS[:EPISODES])
    return tuple(episode for episode in played if episode is not None)
