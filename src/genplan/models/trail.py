"""What lies far behind, for planners that read their last steps one by one: where they have been, what they tried."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past
from genplan.models.encoder import Context
from genplan.models.places import Places


class TrailReader(nn.Module):
    """The current step looks at all states visited before; how often each action was done in this one is added."""

    def __init__(self, spec: PlanSpec, width: int, heads: int) -> None:
        super().__init__()
        self.place = Places(spec, width)
        self.remember = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.nothing = nn.Parameter(torch.zeros(width))  # what is seen by one who has been nowhere
        self.look = nn.MultiheadAttention(width, heads, batch_first=True)
        self.tried = nn.Linear(spec.num_actions, width, bias=False)

    def forward(self, context: Context, now: Tensor, past: Past) -> Tensor:
        """now [B, D], the current step -> [B, D], to be added to it."""
        batch = len(now)
        assert past.tried is not None
        seen = self.nothing.expand(batch, 1, -1)
        hidden = torch.zeros(batch, 1, dtype=torch.bool, device=now.device)
        if past.trail is not None and past.visited is not None:
            trail = self.place(context, past.trail)
            trail = (trail + self.remember(trail)).repeat_interleave(batch // len(trail), 0)
            seen, hidden = torch.cat([seen, trail], 1), torch.cat([hidden, ~past.visited], 1)
        found, _ = self.look(now[:, None], seen, seen, key_padding_mask=hidden, need_weights=False)
        answer: Tensor = found[:, 0] + self.tried((1 + past.tried).to(now.dtype).log2())
        return answer
