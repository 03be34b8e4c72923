"""Visit memory of training windows: which states an episode visited before, and what was done in the current one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Visits(NamedTuple):
    """What `History` holds of it, for B windows over M scenes."""

    visited_states: Tensor | None  # [M, L]; None if L = 0
    visited_mask: Tensor | None  # bool [B, L]
    action_counts: Tensor | None  # [B, actions]


class VisitedStates:
    """The distinct states of every episode in the order of first visits: what lies behind a window is a prefix."""

    def __init__(self, states: Tensor, actions: Tensor, first: Tensor, changed: Tensor, num_actions: int) -> None:
        """All [N], over the steps of all episodes: `first` is the first step of a step's episode; `changed` is True
        where anything but the state differs from the step before, or another episode begins."""
        self.states, self.first = states, first
        seen: dict[tuple[int, int], int] = {}
        for step, visit in enumerate(zip(first.tolist(), states.tolist(), strict=True)):
            seen.setdefault(visit, step)
        self.first_visits = torch.tensor(sorted(seen.values()))  # steps at which a state is first visited, in turn
        self.num_before = torch.searchsorted(self.first_visits, torch.arange(len(states)))  # [N]: visits before a step
        self.action_counts = count_actions(states, actions, changed, num_actions)

    def before(self, steps: Tensor, num_scenes: int) -> Visits:
        """Of windows that start at `steps` [B]: equally many in each scene, in turn; a scene is of one episode."""
        counts = self.action_counts[steps]
        per_scene = len(steps) // num_scenes
        begin = self.num_before[self.first[steps[::per_scene]]]  # [M]
        passed = self.num_before[steps] - begin.repeat_interleave(per_scene)  # [B]
        length = int(passed.max())
        if not length:
            return Visits(None, None, counts)
        index = torch.arange(length, device=steps.device)
        visits = (begin[:, None] + index).clamp_(max=len(self.first_visits) - 1)
        visited = self.states[self.first_visits[visits]]
        mask = index < passed[:, None]
        mask &= visited.repeat_interleave(per_scene, 0) != self.states[steps, None]
        return Visits(visited, mask, counts)


def count_actions(states: Tensor, actions: Tensor, changed: Tensor, num_actions: int) -> Tensor:
    """[N, actions]: how often each action had been done before in a step's state, since anything else changed."""
    counts = np.zeros((len(states), num_actions), np.int64)
    before: dict[int, NDArray[np.int64]] = {}
    for step, (state, action, anew) in enumerate(zip(states.tolist(), actions.tolist(), changed.tolist(), strict=True)):
        if anew:
            before = {}
        done = before.setdefault(state, np.zeros(num_actions, np.int64))
        counts[step] = done
        done[action] += 1
    return torch.from_numpy(counts)
