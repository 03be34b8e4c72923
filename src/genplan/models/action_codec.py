"""The protocol of action codecs, and the identity."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.models.settings import CodecConfig
from genplan.spec import Actions, Stream


class ActionCodec(nn.Module):
    """The protocol, and the identity: discrete actions are their own tokens.

    `chunk` actions in a row become the tokens of one step of `stream`.
    """

    chunk = 1
    has_offset = False  # what codes leave over can be predicted, and handed to `decode`

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        super().__init__()
        if actions.n is None:
            raise UserError("the codec 'identity' is for discrete actions, found continuous ones; use 'bins'")
        self.stream = Stream(actions.n)

    def fit(self, actions: Tensor) -> dict[str, float]:
        """From actions [N, *A], or chunks of them [N, chunk, *A] if `chunk` is more than 1, relative to their origin if
        they have one; errors of reconstruction by name."""
        return {}

    def encode(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        """Actions [B, H, *A], and what they are relative to, [B, *A] -> tokens [B, H / chunk, *stream.shape]."""
        return actions

    def is_clipped(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        """Which of the actions lie outside what can be decoded, bool [B, H]."""
        return torch.zeros(actions.shape[:2], dtype=torch.bool, device=actions.device)

    def decode(self, tokens: Tensor, origin: Tensor | None) -> Tensor:
        """The reverse: actions inside the environment's space, whatever the tokens."""
        return tokens
