"""The offset head: continuous actions out of code words, for what is observed and for the goal that is drawn.

Code words say which of the demonstrated ways is taken; the rest of a chunk follows from what is observed. The head sees
the goal as well: averaged over ways to several goals, it would spoil the precision of each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.models.chunk_codes import ChunkCodes
from genplan.models.settings import EncoderConfig, MemoryConfig
from genplan.models.stack import ObservationStack
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Observations


class OffsetHead(nn.Module):
    """A network of (observations, code words so far, goal, which chunk of the plan) -> the offset of the chunk.

    It learns the offset from every number of levels of codes, so that how many are decoded can be chosen when planning;
    with none, the chunk follows from observations and goal alone.
    """

    def __init__(
        self, spec: PlanSpec, network: EncoderConfig, memory: MemoryConfig, codec: ChunkCodes, num_chunks: int,
        sees_goals: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        width, goals = network.hidden_size, spec.goals
        self.levels, self.size = codec.levels, codec.size
        self.observations = ObservationStack(spec, spec.step_fields, network, memory)
        self.words = nn.Linear(self.size, width)
        self.num_levels = nn.Embedding(self.levels + 1, width)
        self.chunk = nn.Embedding(num_chunks, width)
        self.goal = nn.Embedding(goals.size, width) if sees_goals and goals is not None else None
        layers: list[nn.Module] = [nn.LayerNorm(width)]
        for number in range(3):
            layers += [nn.Linear(4 * width if number else width, 4 * width), nn.GELU(), nn.Dropout(network.dropout)]
        self.network = nn.Sequential(*layers, nn.Linear(4 * width, self.size))

    def forward(
        self, current: Observations, history: History, scaled: Tensor, num_levels: Tensor, goals: Tensor | None
    ) -> Tensor:
        """Sums of code words [B, L, N, size], of so many levels [L], goals [B, N, G] -> offsets [B, L, N, size]."""
        x = self.chunk.weight[: scaled.shape[2]] + self.observations(current, history)[:, None]
        if self.goal is not None and goals is not None:
            x = x + self.goal(goals).sum(2)
        x = x[:, None] + self.words(scaled) + self.num_levels(num_levels)[:, None]
        answer: Tensor = self.network(x)
        return answer

    def loss(
        self, codec: ChunkCodes, batch: Batch, origin: Tensor | None, tokens: Tensor, goals: Tensor | None,
        valid: Tensor,
    ) -> Tensor:  # fmt: skip
        """The mean absolute error over chunks `valid` [B, N] and numbers of levels, in units of the deviation."""
        num_levels = torch.tensor(codec.level_choices, device=valid.device)
        scaled = codec.scaled(tokens[:, None], num_levels[:, None])  # [B, L, N, size]
        missing = codec.normalized(batch.actions, origin)[:, None] - scaled
        found = self(batch.current, batch.history, scaled, num_levels, goals)
        error = functional.l1_loss(found, missing, reduction="none").mean((1, 3))
        return (error * valid).sum() / valid.sum().clamp(min=1)
