"""The encoder of grids: maps of symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.models.settings import EncoderConfig
from genplan.spec import Field


class Words(NamedTuple):
    """A sentence of every scene, word by word."""

    states: Tensor  # [M, L, D]: what was read up to each word
    valid: Tensor  # bool [M, L]


class GridEncoder(nn.Module):
    """One convolution, applied again and again, with the words modulating it (FiLM).

    Each iteration spreads what a cell knows by one step, so that distances can form. The grid's size is not in the
    weights. In training, the number of iterations is drawn anew every time, from a third of `iterations` up: what is
    learnt is then an iteration that makes progress from anywhere. Such iterations converge; once learnt, a grid is done
    as soon as it has converged, mostly after half of them.
    """

    TOLERANCE = 0.1  # an iteration that changes no feature of any cell by more leaves plans as they are (docs/log.md)
    CHECK_EVERY = 2  # iterations between checks of convergence

    strides: Tensor  # what a channel counts in the number of a cell's type

    def __init__(self, field: Field, config: EncoderConfig) -> None:
        super().__init__()
        hidden, self.iterations = config.hidden_size, config.encoder_iterations
        self.embed = nn.ModuleList(nn.Embedding(size, hidden) for size in field.sizes)
        strides = torch.tensor([1, *reversed(field.sizes[1:])])
        self.register_buffer("strides", strides.cumprod(0).flip(0), persistent=False)
        narrow = hidden // 2  # what spreads is half as wide as what is kept: half the cost
        self.film = nn.Linear(hidden, 2 * hidden + 2 * narrow)
        self.mix = nn.Conv2d(hidden, hidden, 1)
        self.spread = nn.Conv2d(hidden, narrow, 3, padding=1)
        self.keep = nn.Conv2d(hidden, narrow, 1)  # what stands at a cell, shown at every iteration
        self.update = nn.Conv2d(narrow, hidden, 1)
        self.norm = nn.GroupNorm(1, hidden)
        self.out = nn.LayerNorm(hidden)
        self.position = PositionEncoder(hidden) if config.position_embedding else None
        self.words = WordAttention(config) if config.word_attention else None

    def forward(self, grids: Tensor, condition: Tensor, words: Sequence[Words] = ()) -> Tensor:
        """Grids uint8 [M, W, H, C], condition [M, D] -> features [M, W · H, D], in the order of cells (x + W · y)."""
        hidden = condition.shape[-1]
        types = (grids.long() * self.strides).sum(-1)  # the channels of a cell as one number
        types = types.transpose(1, 2).contiguous()  # else the image would not be channels-last
        image = functional.embedding(types, self.type_table())
        if self.words is not None and words:
            image = image + self.words(image.flatten(1, 2), words).view_as(image)
        image = image.permute(0, 3, 1, 2)  # [M, D, H, W]
        sizes = [hidden, hidden, hidden // 2, hidden // 2]
        scale, shift, gain, bias = torch.split(self.film(condition)[:, :, None, None], sizes, 1)
        # Which cell do the words mean?
        image = image + self.mix(functional.relu(torch.addcmul(shift, image, 1 + scale), inplace=True))
        state, gain, bias = image, 1 + gain, bias + self.keep(image)
        if self.training:
            for _ in range(int(torch.randint(-(-self.iterations // 3), self.iterations + 1, (), device="cpu"))):
                state = self.iterate(state, gain, bias)
        else:
            state = self.converge(state, gain, bias)
        features: Tensor = self.out(state.flatten(2).transpose(1, 2))
        return features if self.position is None else features + self.position(*state.shape[:1:-1])

    def iterate(self, state: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        # Calling modules would cost a small grid as much as the arithmetic does.
        spread, update, norm = self.spread, self.update, self.norm
        change = torch.addcmul(bias, torch.conv2d(state, spread.weight, spread.bias, padding=1), gain).relu_()
        state = torch.conv2d(change, update.weight, update.bias).add_(state)
        return torch.group_norm(state, 1, norm.weight, norm.bias)

    def converge(self, state: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        """At most `iterations`, over the grids that still change: none waits for another."""
        ids = torch.arange(len(state), device=state.device)
        done: list[tuple[Tensor, Tensor]] = []
        for number in range(1, self.iterations + 1):
            before, state = state, self.iterate(state, gain, bias)
            if number % self.CHECK_EVERY or number < self.iterations // 4:  # nothing has converged so soon
                continue
            active = (state - before).abs_().flatten(1).amax(1) > self.TOLERANCE
            num_active = int(active.sum())
            if not num_active:
                break
            if num_active < len(ids):
                done.append((ids[~active], state[~active]))
                ids, state, gain, bias = (part[active] for part in (ids, state, gain, bias))
        if not done:
            return state
        order, states = (torch.cat(parts) for parts in zip(*done, (ids, state), strict=True))
        return states[order.argsort()]

    def type_table(self) -> Tensor:
        """What each type of cell looks like, [types, D]: one look-up for every cell in place of one per channel."""
        table, *others = self.embed.parameters()
        for weights in others:
            table = (table[:, None] + weights).flatten(0, 1)  # type: ignore[assignment]
        return table


class WordAttention(nn.Module):
    """What a cell shows attends to the words: which of them mean it? A mission may name several objects, and one vector
    that says all of it is slow to learn. A cell that is not meant attends to nothing."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, self.heads = config.hidden_size, config.num_heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def forward(self, cells: Tensor, words: Sequence[Words]) -> Tensor:
        """Cells [M, N, D] -> [M, N, D], to be added to them."""
        states, valid = (torch.cat(parts, 1) for parts in zip(*words, strict=True))
        width = cells.shape[-1] // self.heads
        query, key, value = (
            functional.pad(part, (0, 0, 0, extra)).reshape(len(cells), -1, self.heads, width).transpose(1, 2)
            for part, extra in zip((self.query(cells), *self.key_value(states).chunk(2, -1)), (0, 1, 1), strict=True)
        )
        mask = functional.pad(valid, (0, 1), value=True)[:, None, None]  # the last is nothing
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        answer: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return answer


class PositionEncoder(nn.Module):
    """Sines and cosines of a cell's position at wavelengths from 3 to 48 cells, mixed: -> [W · H, D].

    Cells of an empty room look alike to a convolution, and yet a plan must point at one of them. With codes that rotate
    along with x and y, "one cell further" is the same small rotation everywhere, in grids of any size.
    """

    WAVELENGTHS = (3.0, 48.0, 6)  # shortest, longest, number

    frequencies: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        shortest, longest, number = self.WAVELENGTHS
        waves = torch.exp(torch.linspace(math.log(shortest), math.log(longest), number))
        self.register_buffer("frequencies", 2 * math.pi / waves, persistent=False)
        self.mix = nn.Linear(4 * number, hidden_size, bias=False)

    def forward(self, width: int, height: int) -> Tensor:
        x = torch.arange(width, device=self.frequencies.device).repeat(height)
        y = torch.arange(height, device=self.frequencies.device).repeat_interleave(width)
        angles = torch.stack([x, y], 1)[:, :, None] * self.frequencies  # [cells, 2, number]
        mixed: Tensor = self.mix(torch.cat([angles.sin(), angles.cos()], 1).flatten(1))
        return mixed
