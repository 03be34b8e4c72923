"""What a state or goal looks like: the map's features at its cell, and its heading; without a map, a learnt vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.data.tokens import PlanSpec
from genplan.models.encoder import Context


class Places(nn.Module):
    """States [B, T] or goals [B, G] -> [B, T, D]; rows in turn share a map."""

    def __init__(self, spec: PlanSpec, width: int, of_goals: bool = False) -> None:
        super().__init__()
        self.headings = 1 if of_goals else spec.num_headings
        if spec.map_shape is not None:
            self.cell = nn.Linear(width, width)
            self.heading = nn.Embedding(self.headings, width)
        else:
            self.table = nn.Embedding(spec.goal_size if of_goals else spec.num_states, width)

    def forward(self, context: Context, tokens: Tensor) -> Tensor:
        if context.cells is None:
            vectors: Tensor = self.table(tokens)
            return vectors
        number, cells, _ = context.cells.shape
        first = torch.arange(number, device=tokens.device).repeat_interleave(len(tokens) // number) * cells
        seen = functional.embedding(tokens // self.headings + first[:, None], context.cells.flatten(0, 1))
        placed: Tensor = self.cell(seen) + self.heading(tokens % self.headings)
        return placed
