"""The eight symmetries of the square: a demonstration, turned or reflected, is a demonstration of the turned maze.

Everything is a table, so that augmenting a batch is a handful of gathers. Symmetry g = 4 · mirrored + turns: first
reflect left to right, then turn by 90° clockwise `turns` times. Headings turn along; under a reflection, left and right
turns swap, and so do the words for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from genplan.data.tokens import PlanSpec


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
