"""Boolean masks of streams, and sums over the event axes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Masks = Mapping[str, Tensor]
"""Stream name -> bool [*batch, *event]; a stream may be left out."""


def mask_of(masks: Masks | None, name: str, x: Tensor, default: bool) -> Tensor:
    """The mask of one stream, or `default` everywhere if it has none."""
    if masks is not None and name in masks:
        return masks[name]
    return torch.full_like(x, default, dtype=torch.bool)


def loss_mask(name: str, x: Tensor, valid: Masks | None, given: Masks | None) -> Tensor:
    """Positions that count in losses and energies: valid, and not given."""
    return mask_of(valid, name, x, True) & ~mask_of(given, name, x, False)


def sum_event(x: Tensor, batch_ndim: int) -> Tensor:
    """The sum over all axes after the first `batch_ndim`."""
    return x.flatten(batch_ndim).sum(-1) if x.ndim > batch_ndim else x
