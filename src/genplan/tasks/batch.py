"""Hundreds of environments, stepped one after the other in this process.

A step of a grid world takes 20 to 50 µs: too little to be worth sending to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from torch import Tensor

from genplan.tasks.task import Task
from genplan.types import Observation, Observations, Oracle


@dataclass(frozen=True)
class Outcome:
    """What a step led to, one entry per row stepped."""

    success: list[bool]
    done: list[bool]
    changed: list[bool]  # whether anything observable changed


class EnvBatch:
    """One episode per seed. Rows that are done are simply not stepped any more."""

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] | None = None,
        envs: Sequence[gymnasium.Env[Any, Any]] | None = None,
    ) -> None:
        """`envs`, one per seed, can be given where they are not all the task's own, but alike."""
        self.task = task
        self.seeds = list(seeds)
        made = [task.new_env() for _ in self.seeds] if envs is None else envs
        self.envs = [env if wrap is None else wrap(env) for env in made]
        self.steps = [0] * len(self.envs)
        self.current: list[Observation] = [
            task.observe(env, env.reset(seed=seed)[0]) for env, seed in zip(self.envs, self.seeds, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.envs)

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.envs, self.task.goals)

    def observations(self, rows: Tensor | None = None) -> Observations:
        chosen = range(len(self)) if rows is None else rows.tolist()
        return Observations.stack([self.current[row] for row in chosen])

    def step(self, rows: Tensor, actions: Tensor) -> Outcome:
        """Step the `rows`; the task's own limit of steps ends an episode too."""
        success, done, changed = [], [], []
        for row, action in zip(rows.tolist(), actions.tolist(), strict=True):
            raw, reward, terminated, truncated, info = self.envs[row].step(action)
            self.steps[row] += 1
            before, now = self.current[row], self.task.observe(self.envs[row], raw)
            self.current[row] = now
            success.append(self.task.succeeded(float(reward), terminated, info))
            done.append(bool(terminated or truncated or self.steps[row] >= self.task.max_steps))
            changed.append(not same(before, now))
        return Outcome(success, done, changed)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def same(a: Observation, b: Observation) -> bool:
    """Whether two observations are alike."""
    if int(a["state"]) != int(b["state"]):
        return False
    return all((a[name] == b[name]).all() for name in ("map", "features") if name in a)
