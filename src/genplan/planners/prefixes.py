"""Prefixes: training windows that are shown up to some step, as plans are that grow near to far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from genplan.flow import Rng
from genplan.planners.base import distance_weights

RNG_PREFIX = "prefix"  # label of random draws: never renamed


class Prefixes(NamedTuple):
    """Of the windows of a batch."""

    chosen: Tensor  # bool [B]: which are shown as prefixes
    length: Tensor  # [B]: the step up to whose state all is shown
    goals: Tensor  # [B], uniform: a third of the prefixes shows all goals, a third those of the steps shown

    def show(
        self, x_1: Mapping[str, Tensor], x_t: Mapping[str, Tensor], noise: Mapping[str, Tensor],
        given: dict[str, Tensor], discount: float,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:  # fmt: skip
        """x_t with the prefixes in it, and the weights of all positions; what is shown is added to `given`.

        The further a position is behind what is shown, the less it counts; in other windows all count alike.
        """
        shown_x, weights = {}, {}
        for name, x in x_1.items():
            first, length, goals = name != "states", self.length[:, None], self.goals[:, None]
            ahead = torch.arange(x.shape[1], device=x.device) - length + first  # 1: just behind
            shown = ahead <= 0 if name != "goals" else (goals < 1 / 3) | (goals < 2 / 3) & (ahead <= 0)
            each = (*shown.shape, *(1 for _ in x.shape[2:]))
            prefix = self.chosen.reshape(-1, *(1 for _ in x.shape[1:]))
            shown = shown.reshape(each).expand_as(x)
            shown_x[name] = torch.where(prefix, torch.where(shown, x, noise[name]), x_t[name])
            given[name] = torch.where(prefix, shown, given.get(name, torch.zeros_like(shown)))
            counted = distance_weights(discount, ahead).reshape(each)
            weights[name] = torch.where(prefix, counted, 1.0).expand_as(x)
        return shown_x, weights


def draw_prefixes(horizon: int, share: float, start_share: float, rows: Rng) -> Prefixes:
    """For the windows `rows` [B]: a share of them, of which another share ends at the current state."""
    u = (rows.fold(RNG_PREFIX, "length").uniform() - start_share) / (1 - start_share)
    length = torch.where(u < 0, 0, (u * (horizon - 1)).long() + 1).clamp(max=horizon - 1)
    return Prefixes(rows.fold(RNG_PREFIX).uniform() < share, length, rows.fold(RNG_PREFIX, "goals").uniform())
