"""Random numbers, keyed per row.

A row of a batch has a key, and everything random about that row is a pure function of it: the same row gets the same
draws alone, in a batch of a thousand, on another device. `torch.Generator` cannot do that without one generator (and
one Python loop) per row, so the draws come from SplitMix64, a counter-based hash of a few integer operations.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def _signed(bits: int) -> int:
    """The 64-bit pattern `bits` as the signed integer that torch stores."""
    return bits - (1 << 64) if bits >= 1 << 63 else bits


GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)
_64_BITS = (1 << 64) - 1


def _mix_integer(z: int) -> int:
    """`_mix` of one Python integer (modulo 2^64), offset so that zero changes too."""
    z = (z + GOLDEN) & _64_BITS
    z = ((z ^ (z >> 30)) * _MIX_1) & _64_BITS
    z = ((z ^ (z >> 27)) * _MIX_2) & _64_BITS
    return z ^ (z >> 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift (torch's `>>` repeats the sign bit)."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finalizer: a bijection of 64 bits in which every input bit affects every output bit."""
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


@dataclass(frozen=True)
class Rng:
    """One key per row of a batch; `key` has the shape of the batch."""

    key: Tensor  # int64 [*batch]

    def __post_init__(self) -> None:
        if self.key.dtype != torch.int64:
            raise TypeError(f"an Rng needs int64 keys, found {self.key.dtype}; make one with Rng.of(seed, ...)")

    @staticmethod
    def of(seed: int, *ids: Tensor | int, batch: Sequence[int] = (), device: torch.device | str = "cpu") -> Rng:
        """Keys from a seed and whatever identifies a row, e.g. `Rng.of(seed, episodes, plan_numbers)`.

        Tensors among `ids` give the batch its shape. `batch=(n, ...)` instead numbers the rows 0, 1, ….
        """
        rng = Rng(torch.full((), _signed(_mix_integer(seed)), dtype=torch.int64, device=device))
        if batch:
            rng = rng.fold(torch.arange(math.prod(batch), device=device).reshape(tuple(batch)))
        return rng.fold(*ids)

    @property
    def shape(self) -> torch.Size:
        return self.key.shape

    def fold(self, *data: Tensor | int | str) -> Rng:
        """New keys, independent of these, that differ wherever `data` differs."""
        key = self.key
        constant = 0
        for item in data:
            if isinstance(item, Tensor):
                key = _mix(key ^ _mix(item.to(torch.int64) + GOLDEN))
            else:  # strings and integers are folded in Python, which saves a dozen tensor operations each
                constant = _mix_integer(constant ^ (zlib.crc32(item.encode()) if isinstance(item, str) else item))
        return Rng(_mix(key ^ _signed(constant)))

    def __getitem__(self, ids: Tensor | slice | int) -> Rng:
        return Rng(self.key[ids])

    def uniform(self, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> Tensor:
        """Draws from [0, 1) of shape [*batch, *shape]; the same key always gives the same draws."""
        counter = torch.arange(1, math.prod(shape) + 1, device=self.key.device) * GOLDEN
        z = _mix(self.key[..., None] + counter).reshape((*self.key.shape, *shape))
        if dtype == torch.float64:
            return _shift(z, 11).to(torch.float64) * 2.0**-53
        return _shift(z, 40).to(torch.float32) * 2.0**-24

    def normal(self, shape: Sequence[int] = ()) -> Tensor:
        """Draws from the standard normal distribution of shape [*batch, *shape], by Box and Muller's transform."""
        u = self.uniform((2, *shape), torch.float64)
        first, second = u.movedim(self.key.ndim, 0)
        return ((-2 * torch.log1p(-first)).sqrt() * torch.cos(2 * math.pi * second)).float()

    def integers(self, size: int, shape: Sequence[int] = ()) -> Tensor:
        """Draws from {0, …, size − 1} of shape [*batch, *shape], int64."""
        draws = (self.uniform(shape, torch.float64) * size).to(torch.int64)
        return draws.clamp_(max=size - 1)

    def categorical(self, weights: Tensor) -> Tensor:
        """One draw per last axis of `weights` [*batch, *event, S], in proportion to them; int64 [*batch, *event]."""
        return categorical(weights, self.uniform(weights.shape[self.key.ndim : -1], weights.dtype))


def categorical(weights: Tensor, u: Tensor) -> Tensor:
    """One token per u in [0, 1), [...], drawn in proportion to `weights` [..., S].

    By inversion of the CDF, one uniform number per draw: the Gumbel trick needs S, which cost more than the draw.
    A weight of zero is never drawn.
    """
    cdf = weights.cumsum(-1)
    # Without the margin, rounding may lift u · total to the total itself, past the last token of positive weight.
    target = u[..., None] * (cdf[..., -1:] * (1 - 2.0**-22))
    return torch.searchsorted(cdf, target, right=True).squeeze(-1)
