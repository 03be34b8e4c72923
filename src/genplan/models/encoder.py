"""Map, mission and what is carried -> context, computed once per plan (and not again while they stay the same).

The agent is not on the map: its pose is a token of the plan. So all windows of an episode share one encoding for as
long as nothing on the map moves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.data.tokens import PlanSpec


class Context(NamedTuple):
    """What the denoiser attends to, for M maps."""

    cells: Tensor | None  # [M, cells, D]; None without a map
    mission: Tensor  # [M, D]


class MissionEncoder(nn.Module):
    """A GRU over words: the state after the last word."""

    def __init__(self, spec: PlanSpec, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(spec.words), width, padding_idx=0)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, mission: Tensor) -> Tensor:
        lengths = (mission != 0).sum(-1).clamp(min=1)
        words = self.embed(mission[:, : int(lengths.max())])
        states, _ = self.gru(words)
        last: Tensor = states[torch.arange(len(mission), device=mission.device), lengths - 1]
        return last


class MapEncoder(nn.Module):
    """One convolution, applied again and again, with the mission modulating it (FiLM).

    Each pass spreads what a cell knows by one step, so that distances can form. The grid's size is not in the weights.
    """

    def __init__(self, spec: PlanSpec, width: int, passes: int) -> None:
        super().__init__()
        self.passes = passes
        self.embed = nn.ModuleList(nn.Embedding(size, width) for size in spec.map_channels)
        self.film = nn.Linear(width, 4 * width)
        self.mix = nn.Conv2d(width, width, 1)
        self.spread = nn.Conv2d(width, width, 3, padding=1)
        self.update = nn.Conv2d(width, width, 1)
        self.norm = nn.GroupNorm(1, width)
        self.out = nn.LayerNorm(width)

    def forward(self, maps: Tensor, mission: Tensor) -> Tensor:
        """maps uint8 [M, W, H, C], mission [M, D] -> features [M, W · H, D], in the order of cells (x + W · y)."""
        by_channel = maps.long().unbind(-1)
        cells = sum((embed(channel) for embed, channel in zip(self.embed, by_channel, strict=True)), torch.zeros(()))
        image = cells.permute(0, 3, 2, 1).contiguous(memory_format=torch.channels_last)  # [M, D, H, W]
        scale, shift, gain, bias = self.film(mission)[:, :, None, None].chunk(4, 1)
        image = image + self.mix(functional.relu(image * (1 + scale) + shift))  # which cell does the mission mean?
        state, gain, offset = image, 1 + gain, bias + image
        for _ in range(self.passes):
            change = torch.addcmul(offset, self.spread(state), gain)
            state = self.norm(state + self.update(functional.relu(change)))
        features: Tensor = self.out(state.flatten(2).transpose(1, 2))
        return features


class Encoder(nn.Module):
    def __init__(self, spec: PlanSpec, width: int, passes: int) -> None:
        super().__init__()
        self.mission = MissionEncoder(spec, width) if spec.words else None
        self.map = MapEncoder(spec, width, passes) if spec.map_shape is not None else None
        self.nothing = nn.Parameter(torch.zeros(width))

    def forward(self, maps: Tensor | None, mission: Tensor | None, number: int) -> Context:
        words = self.nothing.expand(number, -1)
        if self.mission is not None and mission is not None:
            words = self.mission(mission)
        cells = None
        if self.map is not None and maps is not None:
            cells = self.map(maps, words)
        return Context(cells, words)


def time_features(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of t at frequencies from 1 to 100: [..., width]."""
    frequencies = torch.exp(torch.linspace(0, math.log(100.0), width // 2, device=t.device))
    angles = t[..., None] * frequencies * math.pi
    return torch.cat([angles.sin(), angles.cos()], -1)
