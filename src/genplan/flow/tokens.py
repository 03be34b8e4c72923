"""Tokens and masks of streams, and their checks: an error quotes what was found and what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from genplan.flow.rng import Rng

Tokens = Mapping[str, Tensor]
"""Stream name -> int64 [*batch, *event]."""

Masks = Mapping[str, Tensor]
"""Stream name -> bool [*batch, *event]; a stream may be left out."""


def mask_of(masks: Masks | None, name: str, x: Tensor, default: bool) -> Tensor:
    """The mask of one stream, or `default` everywhere if it has none."""
    if masks is not None and name in masks:
        return masks[name]
    return torch.full_like(x, default, dtype=torch.bool)


def sum_event(x: Tensor, batch_ndim: int) -> Tensor:
    """The sum over all axes after the first `batch_ndim`."""
    return x.flatten(batch_ndim).sum(-1) if x.ndim > batch_ndim else x


def check_streams(expected: Iterable[str], found: Iterable[str], label: str) -> None:
    if set(expected) != set(found):
        raise ValueError(f"{label} has the streams {sorted(found)}, expected {sorted(expected)}")


def check_tokens(sizes: Mapping[str, int], tokens: Tokens, batch: Sequence[int] = (), num_special: int = 0) -> None:
    """Tokens are int64, shaped [*batch, *event], and within their vocabulary (`num_special` more are allowed)."""
    check_streams(sizes, tokens, "tokens")
    for name, x in tokens.items():
        if x.dtype != torch.int64:
            raise TypeError(f"stream '{name}' has dtype {x.dtype}, expected torch.int64 tokens")
        if x.shape[: len(batch)] != tuple(batch):
            raise ValueError(f"stream '{name}' has shape {tuple(x.shape)}, expected it to start with {tuple(batch)}")
        if x.numel() == 0:
            continue
        low, high, limit = int(x.min()), int(x.max()), sizes[name] + num_special
        if low < 0 or high >= limit:
            raise ValueError(f"stream '{name}' has a token {low if low < 0 else high}, expected 0 to {limit - 1}")


def check_masks(tokens: Tokens, **masks: Masks | None) -> None:
    """A mask is bool, belongs to a stream, and is shaped like it."""
    for label, name, mask in ((label, *item) for label, some in masks.items() for item in (some or {}).items()):
        if name not in tokens:
            raise ValueError(f"{label} names a stream '{name}', expected one of {sorted(tokens)}")
        if mask.dtype != torch.bool:
            raise TypeError(f"{label}['{name}'] has dtype {mask.dtype}, expected torch.bool")
        if mask.shape != (shape := tokens[name].shape):
            raise ValueError(
                f"{label}['{name}'] has shape {tuple(mask.shape)}, expected {tuple(shape)} like its tokens"
            )


def check_times(t: Tensor | float, rng: Rng) -> Tensor:
    """t as a float tensor [*batch] in [0, 1]."""
    t = torch.as_tensor(t, device=rng.key.device)
    if not t.is_floating_point():
        raise TypeError(f"t has dtype {t.dtype}, expected a floating point time between 0 and 1")
    if t.ndim and t.shape != rng.shape:
        raise ValueError(f"t has shape {tuple(t.shape)}, expected {tuple(rng.shape)}: one time per row")
    outside = ~((t >= 0) & (t <= 1))
    if outside.any():
        raise ValueError(f"t is {t[outside].reshape(-1)[0].item():g}, expected 0 to 1")
    if t.dtype in (torch.bfloat16, torch.float16):
        t = t.float()  # eight bits of mantissa would leave 256 distinct times
    return t.expand(rng.shape)


def check_logits(sizes: Mapping[str, int], logits: Mapping[str, Tensor], tokens: Tokens) -> None:
    """A network returns one logit per token of the vocabulary for every position of every stream; MASK has none."""
    check_streams(sizes, logits, "logits")
    for name, x in tokens.items():
        expected = (*x.shape, sizes[name])
        if logits[name].shape != expected:
            raise ValueError(f"logits['{name}'] have shape {tuple(logits[name].shape)}, expected {expected}")
        if not logits[name].is_floating_point():
            raise TypeError(f"logits['{name}'] have dtype {logits[name].dtype}, expected floating point")


def check_finite(name: str, per_position: Tensor) -> None:
    """NaN, +inf or all −inf among logits show in their log-sum-exp, at a fraction of the cost of checking each."""
    bad = ~torch.isfinite(per_position)
    if bad.any():
        raise ValueError(
            f"logits['{name}'] hold NaN or infinity at {int(bad.sum())} of {bad.numel()} positions, expected 0; "
            "the network has diverged: go back to an earlier checkpoint or lower the learning rate"
        )
