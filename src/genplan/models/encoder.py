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
    While learning, the number of passes is drawn anew every time, from a third of `passes` up: what is learnt is then a
    pass that makes progress from anywhere, and the longest paths do not depend on the very last one.
    """

    places: Tensor  # what a channel counts in the number of a cell's kind

    def __init__(self, spec: PlanSpec, width: int, passes: int) -> None:
        super().__init__()
        self.passes = passes
        self.embed = nn.ModuleList(nn.Embedding(size, width) for size in spec.map_channels)
        sizes = torch.tensor([1, *reversed(spec.map_channels[1:])])
        self.register_buffer("places", sizes.cumprod(0).flip(0), persistent=False)
        narrow = width // 2  # what spreads is half as wide as what is kept: half the cost
        self.film = nn.Linear(width, 2 * width + 2 * narrow)
        self.mix = nn.Conv2d(width, width, 1)
        self.spread = nn.Conv2d(width, narrow, 3, padding=1)
        self.keep = nn.Conv2d(width, narrow, 1)  # what stands at a cell, told at every pass
        self.update = nn.Conv2d(narrow, width, 1)
        self.norm = nn.GroupNorm(1, width)
        self.out = nn.LayerNorm(width)

    def forward(self, maps: Tensor, mission: Tensor) -> Tensor:
        """maps uint8 [M, W, H, C], mission [M, D] -> features [M, W · H, D], in the order of cells (x + W · y)."""
        width = mission.shape[-1]
        kinds = self.kind(maps).transpose(1, 2).contiguous()  # else the image would not be channels-last
        image = functional.embedding(kinds, self.kinds()).permute(0, 3, 1, 2)  # [M, D, H, W]
        sizes = [width, width, width // 2, width // 2]
        scale, shift, gain, bias = torch.split(self.film(mission)[:, :, None, None], sizes, 1)
        # Which cell does the mission mean?
        image = image + self.mix(functional.relu(torch.addcmul(shift, image, 1 + scale), inplace=True))
        state, gain, offset = image, 1 + gain, bias + self.keep(image)
        passes = self.passes
        if self.training:
            passes = int(torch.randint(-(-passes // 3), passes + 1, ()))
        # Calling modules would cost a small map as much as the arithmetic does.
        spread, update, norm = ((module.weight, module.bias) for module in (self.spread, self.update, self.norm))
        for _ in range(passes):
            change = torch.addcmul(offset, torch.conv2d(state, *spread, padding=1), gain).relu_()
            state = torch.group_norm(torch.conv2d(change, *update).add_(state), 1, norm[0], norm[1])
        features: Tensor = self.out(state.flatten(2).transpose(1, 2))
        return features

    def kind(self, maps: Tensor) -> Tensor:
        """The channels of a cell as one number."""
        return (maps.long() * self.places).sum(-1)

    def kinds(self) -> Tensor:
        """What each kind of cell looks like, [kinds, D]: one look-up for every cell in place of one per channel."""
        table, *others = self.embed.parameters()
        for weights in others:
            table = (table[:, None] + weights).flatten(0, 1)  # type: ignore[assignment]
        return table


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


class TimeEncoder(nn.Module):
    """Sines and cosines of t at frequencies from 1 to 100, mixed: [...] -> [..., D]."""

    frequencies: Tensor
    phases: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        frequencies = torch.exp(torch.linspace(0, math.log(100.0), width // 2)) * math.pi
        phases = torch.tensor([0.0, math.pi / 2]).repeat_interleave(width // 2)
        self.register_buffer("frequencies", frequencies.repeat(2), persistent=False)
        self.register_buffer("phases", phases, persistent=False)
        self.mix = nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        mixed: Tensor = self.mix(torch.addcmul(self.phases, t[..., None], self.frequencies).sin_())
        return mixed
