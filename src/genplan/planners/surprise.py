"""Surprise: what a planner that predicts states learns, within one episode, from what did not come as predicted.

Who plans to step onto a cell and stays where he was has met something that is in the way. What came of each action
before a thing of that look is counted; and where the next plan leads onto a cell of a look that never let anybody pass,
what once changed something before such a thing comes first: it is done, and then the plan goes on. Nothing here says
what looks or actions mean, and all is forgotten with the episode. Colours do not count: what differs in nothing else is
alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.data.tokens import PlanSpec
from genplan.data.windows import cells_of
from genplan.types import Observations

NOTHING = -1


class Surprise:
    def __init__(self, spec: PlanSpec, size: int) -> None:
        """For a batch of `size` episodes."""
        colour = None if spec.palette is None else spec.palette.channel
        self.channels = [channel for channel in range(len(spec.map_channels)) if channel != colour]
        self.sizes = [spec.map_channels[channel] for channel in self.channels]
        self.headings = spec.num_headings
        looks = int(torch.tensor(self.sizes).prod())
        self.done = torch.zeros(size, looks, spec.num_actions)  # how often, before a thing of this look
        self.came = torch.zeros(size, looks, spec.num_actions)  # how often it let pass, or changed anything
        self.before = torch.full((size,), NOTHING)  # the look of what stands in the way, while nothing moves
        self.expected = torch.full((size,), NOTHING)  # the state that was planned to come next

    def better(
        self, rows: Tensor, seen: Observations, actions: Tensor, states: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Where plans [n, H] lead onto what was in the way before: bool [n], what helped [n], and how often [n]."""
        each = torch.arange(len(rows))
        moving = states[:, 1] // self.headings != seen.state // self.headings
        self.expected[rows] = torch.where(moving, states[:, 1], NOTHING)
        self.before[rows] = torch.where(moving, self._look(seen, states[:, 1] // self.headings), self.before[rows])
        look = self.before[rows].clamp(min=0)
        done, came = self.done[rows, look], self.came[rows, look]  # [n, actions]
        vain = (done[each, actions[:, 0]] > 0) & (came[each, actions[:, 0]] == 0) & moving
        hope, other = (came / done.clamp(min=1)).max(-1)
        chosen = vain & (hope >= 0.5)
        self.expected[rows[chosen]] = NOTHING
        return chosen, other, hope

    def learn(self, rows: Tensor, actions: Tensor, last: Observations, seen: Observations) -> None:
        """After a step: `last` is what was seen before it."""
        came = seen.state == self.expected[rows]
        for now, then in ((seen.map, last.map), (seen.features, last.features)):
            if now is not None and then is not None:
                came = came | (now != then).flatten(1).any(1)
        look = self.before[rows]
        known = look >= 0
        self.done[rows[known], look[known], actions[known]] += 1
        self.came[rows[known], look[known], actions[known]] += came[known].float()
        self.before[rows] = torch.where(came | (seen.state != last.state), NOTHING, look)
        self.expected[rows] = NOTHING

    def _look(self, seen: Observations, cells: Tensor) -> Tensor:
        assert seen.map is not None
        here = cells_of(seen.map)[torch.arange(len(cells)), cells].long()
        look = torch.zeros_like(cells)
        for channel, size in zip(self.channels, self.sizes, strict=True):
            look = look * size + here[:, channel]
        return look
