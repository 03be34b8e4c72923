"""Which positions count, and sums over a row's own axes."""

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


def counted(name: str, x: Tensor, valid: Masks | None, given: Masks | None) -> Tensor:
    """Positions that count: valid, and not given."""
    return mask_of(valid, name, x, True) & ~mask_of(given, name, x, False)


def per_row(x: Tensor, rows: int) -> Tensor:
    """The sum over everything behind the first `rows` axes."""
    return x.flatten(rows).sum(-1) if x.ndim > rows else x
