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

from genplan.config import PlannerConfig
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
    pass that makes progress from anywhere, and the longest paths do not depend on the very last one. Such passes settle
    on a state that further ones leave alone; once learnt, a map is done as soon as it has: half of the passes, mostly.
    """

    SETTLED = 0.1  # a pass that changes no feature of any cell by more leaves plans as they are (docs/log.md)
    GLANCE = 2  # passes between looks at how much has changed

    places: Tensor  # what a channel counts in the number of a cell's kind

    def __init__(self, spec: PlanSpec, width: int, passes: int, positions: bool) -> None:
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
        self.position = PositionEncoder(width) if positions else None

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
        if self.training:
            for _ in range(int(torch.randint(-(-self.passes // 3), self.passes + 1, ()))):
                state = self.spread_once(state, gain, offset)
        else:
            state = self.settle(state, gain, offset)
        features: Tensor = self.out(state.flatten(2).transpose(1, 2))
        return features if self.position is None else features + self.position(*state.shape[:1:-1])

    def spread_once(self, state: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
        # Calling modules would cost a small map as much as the arithmetic does.
        spread, update, norm = self.spread, self.update, self.norm
        change = torch.addcmul(offset, torch.conv2d(state, spread.weight, spread.bias, padding=1), gain).relu_()
        state = torch.conv2d(change, update.weight, update.bias).add_(state)
        return torch.group_norm(state, 1, norm.weight, norm.bias)

    def settle(self, state: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
        """Pass after pass, at most `passes`, over the maps that still change: none waits for another."""
        rows = torch.arange(len(state), device=state.device)
        done: list[tuple[Tensor, Tensor]] = []
        for number in range(1, self.passes + 1):
            before, state = state, self.spread_once(state, gain, offset)
            if number % self.GLANCE or number < self.passes // 4:  # nothing has settled so soon
                continue
            moving = (state - before).abs_().flatten(1).amax(1) > self.SETTLED
            still = int(moving.sum())
            if not still:
                break
            if still < len(rows):
                done.append((rows[~moving], state[~moving]))
                rows, state, gain, offset = (part[moving] for part in (rows, state, gain, offset))
        if not done:
            return state
        order, states = (torch.cat(parts) for parts in zip(*done, (rows, state), strict=True))
        return states[order.argsort()]

    def kind(self, maps: Tensor) -> Tensor:
        """The channels of a cell as one number."""
        return (maps.long() * self.places).sum(-1)

    def kinds(self) -> Tensor:
        """What each kind of cell looks like, [kinds, D]: one look-up for every cell in place of one per channel."""
        table, *others = self.embed.parameters()
        for weights in others:
            table = (table[:, None] + weights).flatten(0, 1)  # type: ignore[assignment]
        return table


class PositionEncoder(nn.Module):
    """Sines and cosines of a cell's place at wavelengths from 3 to 48 cells, mixed: -> [W · H, D].

    Cells of an empty room look alike to a convolution, and yet a plan must point at one of them. With codes that turn
    along with x and y, "one cell further" is the same small rotation everywhere, in grids of any size.
    """

    WAVELENGTHS = (3.0, 48.0, 6)  # shortest, longest, number

    def __init__(self, width: int) -> None:
        super().__init__()
        shortest, longest, number = self.WAVELENGTHS
        waves = torch.exp(torch.linspace(math.log(shortest), math.log(longest), number))
        self.register_buffer("frequencies", 2 * math.pi / waves, persistent=False)
        self.mix = nn.Linear(4 * number, width, bias=False)

    frequencies: Tensor

    def forward(self, width: int, height: int) -> Tensor:
        x = torch.arange(width, device=self.frequencies.device).repeat(height)
        y = torch.arange(height, device=self.frequencies.device).repeat_interleave(width)
        turns = torch.stack([x, y], 1)[:, :, None] * self.frequencies  # [cells, 2, number]
        mixed: Tensor = self.mix(torch.cat([turns.sin(), turns.cos()], 1).flatten(1))
        return mixed


class Encoder(nn.Module):
    def __init__(self, spec: PlanSpec, config: PlannerConfig) -> None:
        super().__init__()
        width = config.width
        self.mission = MissionEncoder(spec, width) if spec.words else None
        self.map = None
        if spec.map_shape is not None:
            self.map = MapEncoder(spec, width, config.passes, config.positions)
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
