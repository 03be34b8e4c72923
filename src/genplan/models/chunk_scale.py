"""Chunks of continuous actions as numbers around 0: what regression and diffusion predict, and codes are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.models.action_codec import ActionCodec
from genplan.spec import Actions, Stream

SMALLEST = 1e-6  # deviation of a dimension that is taken to change


class ChunkScale(ActionCodec):
    """Scales every dimension by its deviation around the mean chunk; one that never changes has one value.

    It has no tokens: `normalized` and `restored` take the place of `encode` and `decode`.
    """

    mean: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, actions: Actions, chunk: int) -> None:
        nn.Module.__init__(self)
        if actions.n is not None:
            raise UserError("chunks of actions are of continuous ones, found discrete ones; use the codec 'identity'")
        self.chunk, size = chunk, len(actions.low)
        self.stream, self.size = Stream(2), self.chunk * size
        for name, shape in (("mean", (self.chunk, size)), ("scale", (size,)), ("low", (size,)), ("high", (size,))):
            self.register_buffer(name, torch.full(shape, torch.nan))  # not fitted: nothing can be decoded by chance
        self.register_buffer("least", torch.tensor(actions.low), persistent=False)
        self.register_buffer("most", torch.tensor(actions.high), persistent=False)

    @torch.no_grad()
    def fit(self, actions: Tensor) -> dict[str, float]:
        """From chunks [N, chunk, A]."""
        actions = actions if actions.ndim == 3 else actions[:, None]  # a chunk of 1
        flat = actions.flatten(0, 1)
        self.low.copy_(flat.amin(0))
        self.high.copy_(flat.amax(0))
        self.mean.copy_(actions.mean(0))
        std = (actions - self.mean).flatten(0, 1).std(0, correction=0)
        self.scale.copy_(torch.where(std > SMALLEST, std, 1.0))
        return {}

    def check(self) -> None:
        if not bool(torch.isfinite(self.mean).all() & torch.isfinite(self.scale).all()):
            raise UserError("the action codec has no statistics; expected a planner that was trained, or loaded whole")

    def normalized(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        """Actions [B, H, A] -> [B, H / chunk, chunk · A], around 0."""
        self.check()
        values = actions if origin is None else actions - origin[:, None]
        chunks = values.reshape(len(values), -1, *self.mean.shape)
        return ((chunks - self.mean) / self.scale).flatten(2)

    def relative(self, values: Tensor) -> Tensor:
        """Normalized chunks [B, N, chunk · A] -> actions [B, H, A] relative to their origin, if they have one, inside
        what was demonstrated."""
        self.check()
        chunks = values.reshape(*values.shape[:-1], *self.mean.shape) * self.scale + self.mean
        return torch.maximum(torch.minimum(chunks.flatten(1, 2), self.high), self.low)

    def restored(self, values: Tensor, origin: Tensor | None) -> Tensor:
        """The reverse: actions inside the environment's space and what was demonstrated, whatever the values."""
        actions = self.relative(values)
        actions = actions if origin is None else actions + origin[:, None]
        return torch.maximum(torch.minimum(actions, self.most), self.least)

    def is_clipped(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        values = actions if origin is None else actions - origin[:, None]
        return ((values < self.low) | (values > self.high)).any(-1)
