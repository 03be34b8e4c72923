"""Symmetries: a demonstration that is turned, reflected or painted in other colours is a demonstration as well.

There are eight symmetries of the square, and as many of the palette as its colours have orders.

Everything is a table, so that augmenting a batch is a handful of gathers. Symmetry g = 4 · mirrored + turns: first
reflect left to right, then turn by 90° clockwise `turns` times. Headings turn along; under a reflection, left and right
turns swap, and so do the words for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from genplan.data.tokens import Palette, PlanSpec
from genplan.flow import Rng


@dataclass(frozen=True)
class Symmetries:
    """Tables [G, ...] that map old tokens to new ones; `sources` maps new cells to old ones, to move whole maps."""

    cells: Tensor  # [G, cells] old cell -> new cell
    sources: Tensor  # [G, cells] new cell -> old cell
    states: Tensor  # [G, states]
    actions: Tensor  # [G, actions]
    words: Tensor  # [G, words]

    def __len__(self) -> int:
        return len(self.cells)

    @staticmethod
    def of(spec: PlanSpec) -> Symmetries:
        """All that the spec allows: eight on a square map, four on an oblong one, one without a map or mirror."""
        if spec.map_shape is None or not spec.mirrored_actions or spec.num_headings != 4:
            return Symmetries._only_identity(spec)
        width, height = spec.map_shape
        kinds = [(m, t) for m in (0, 1) for t in range(4) if width == height or t % 2 == 0]
        xs, ys = np.meshgrid(np.arange(width), np.arange(height), indexing="xy")
        old = np.stack([xs.ravel(), ys.ravel()], -1)  # in the order of cells: x + width · y
        cells, states, actions, words = [], [], [], []
        for mirrored, turns in kinds:
            new, (w, h) = old.copy(), (width, height)
            heading = np.arange(4)
            if mirrored:
                new[:, 0] = w - 1 - new[:, 0]
                heading = (2 - heading) % 4
            for _ in range(turns):
                new = np.stack([h - 1 - new[:, 1], new[:, 0]], -1)
                heading = (heading + 1) % 4
                w, h = h, w
            cell = new[:, 0] + w * new[:, 1]
            cells.append(cell)
            states.append((cell[:, None] * 4 + heading[None, :]).ravel())
            actions.append(np.array(spec.mirrored_actions if mirrored else range(spec.num_actions)))
            swap = spec.mirrored_words if mirrored else {}
            words.append(np.array([spec.words.index(swap.get(word, word)) for word in spec.words], np.int64))
        columns = (cells, [np.argsort(cell) for cell in cells], states, actions, words)
        return Symmetries(*(torch.from_numpy(np.stack(rows).astype(np.int64)) for rows in columns))

    @staticmethod
    def _only_identity(spec: PlanSpec) -> Symmetries:
        sizes = (spec.num_cells, spec.num_cells, spec.num_states, spec.num_actions, len(spec.words))
        return Symmetries(*(torch.arange(max(size, 1))[None] for size in sizes))


class Painter:
    """Exchanges colours in maps, features and missions, all at once."""

    def __init__(self, spec: PlanSpec, palette: Palette) -> None:
        self.palette = palette
        self.words = torch.tensor([spec.words.index(word) for word in palette.words]) if spec.words else None
        self.has_colour = torch.zeros(max(spec.map_channels[0], max(palette.kinds) + 1), dtype=torch.bool)
        self.has_colour[list(palette.kinds)] = True
        self.num_words = len(spec.words)

    def orders(self, number: int, rng: Rng) -> Tensor:
        """A new order of the colours for each of `number` maps: old colour -> new colour, [M, colours]."""
        return rng.uniform((number, len(self.palette.words))).argsort(-1)

    def maps(self, maps: Tensor, order: Tensor) -> Tensor:
        """uint8 [M, W, H, C]"""
        old = maps[..., self.palette.channel].long()
        new = order.gather(1, old.flatten(1)).reshape(old.shape)
        painted = maps.clone()
        kinds = self.has_colour[maps[..., 0].long()]
        painted[..., self.palette.channel] = torch.where(kinds, new, old).to(maps.dtype)
        return painted

    def features(self, features: Tensor, order: Tensor) -> Tensor:
        """int64 [B, F], with an order [B, colours] for each."""
        place = self.palette.feature
        if place is None:
            return features
        new = order.gather(1, features[:, place : place + 1]).squeeze(1)
        painted = features.clone()
        painted[:, place] = torch.where(self.has_colour[features[:, place - 1]], new, features[:, place])
        return painted

    def missions(self, missions: Tensor, order: Tensor) -> Tensor:
        """int64 [M, L]"""
        if self.words is None:
            return missions
        table = torch.arange(self.num_words).repeat(len(order), 1)
        table[:, self.words] = self.words[order]
        return table.gather(1, missions)
