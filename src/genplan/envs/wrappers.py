"""Stochastic environments: now and then another action happens than the one chosen."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class SlipperyActions(gymnasium.Wrapper[Any, int, Any, int]):
    """With `probability`, the chosen action is replaced by another, uniformly (the paper's stochastic environments).

    The slips of an episode depend on its seed alone, not on the layout's own random draws. `info["executed"]` is the
    action that happened.
    """

    def __init__(self, env: gymnasium.Env[Any, int], probability: float = 0.2) -> None:
        super().__init__(env)
        if not 0 <= probability <= 1:
            raise ValueError(f"the probability of a slip is {probability}, expected 0 to 1")
        if not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"slips need discrete actions, found {env.action_space}")
        self.probability = probability
        self.num_actions = int(env.action_space.n)
        self._slips = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._slips = np.random.default_rng([seed, 0x511B])
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        slips = self._slips.random() < self.probability
        other = int(self._slips.integers(self.num_actions - 1))  # always drawn: slips do not depend on earlier choices
        executed = (other if other < action else other + 1) if slips else int(action)
        observation, reward, terminated, truncated, info = super().step(executed)
        return observation, reward, terminated, truncated, {**info, "executed": executed}
