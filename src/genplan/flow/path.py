"""The probability path from noise (t = 0) to data (t = 1), and corruption along it.

A plan is a dict of *streams* — states, goals, actions, or whatever a problem has — each with its own vocabulary and its
own shape [*batch, *event]. One t per row is shared by all streams; the draws are independent per position and stream.

Two sources (the paper's equations `noise_mask` and `noise_unif`), with kappa = kappa(t) = t:

    mask     p_t|1(x | x_1) = kappa · 1[x = x_1] + (1 − kappa) · 1[x = MASK]
    uniform  p_t|1(x | x_1) = kappa · 1[x = x_1] + (1 − kappa) / S

MASK is the token S, one past the vocabulary: it can be read by a network but has no logit, so it cannot be predicted.

The labels in `rng.fold(…)` seed the draws: another label is another sample. They never change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from genplan.flow.rng import Rng
from genplan.flow.tokens import Masks, Tokens, check_masks, check_streams, check_times, check_tokens, mask_of


class Source(StrEnum):
    """The distribution of the noise at t = 0."""

    MASK = "mask"
    UNIFORM = "uniform"


@dataclass(frozen=True)
class ProbPath:
    """The probability path of all streams: their vocabularies and the source; the schedule is kappa(t) = t."""

    sizes: Mapping[str, int]  # stream name -> vocabulary size S
    source: Source = Source.MASK

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Source(self.source))
        object.__setattr__(self, "sizes", dict(self.sizes))
        if not self.sizes:
            raise ValueError("a path needs at least 1 stream, found 0; pass sizes={'actions': 6, ...}")
        for name, size in self.sizes.items():
            if size < 2:
                raise ValueError(f"stream '{name}': a vocabulary needs at least 2 tokens, found {size}")

    @property
    def num_special(self) -> int:
        """Tokens beyond the vocabulary: MASK, if it is the source."""
        return int(self.source is Source.MASK)

    def mask_token(self, stream: str) -> int:
        return self.sizes[stream]

    def num_states(self, stream: str) -> int:
        """How many values a token can take along the path."""
        return self.sizes[stream] + self.num_special

    def noise(self, shapes: Mapping[str, Sequence[int]], rng: Rng) -> dict[str, Tensor]:
        """x_0: pure noise [*batch, *event] per stream; `shapes` holds the event shapes."""
        check_streams(self.sizes, shapes, "shapes")
        return {name: self.stream_noise(name, shape, rng) for name, shape in shapes.items()}

    def stream_noise(self, stream: str, event: Sequence[int], rng: Rng) -> Tensor:
        """Pure noise of one stream, [*batch, *event]."""
        size = self.sizes[stream]
        if self.source is Source.MASK:
            return torch.full((*rng.shape, *event), size, dtype=torch.int64, device=rng.key.device)
        return rng.fold(stream, "noise").integers(size, event)

    def corrupt(self, x_1: Tokens, t: Tensor | float, rng: Rng, given: Masks | None = None) -> dict[str, Tensor]:
        """x_t ~ p_t|1(· | x_1), independently per position; what is `given` stays as it is.

        x_1    int64 [*batch, *event] per stream
        t      [*batch], or one number for all rows
        given  bool, shaped as x_1; a stream may be left out (nothing of it is given)
        """
        check_tokens(self.sizes, x_1, rng.shape)
        check_masks(x_1, given=given)
        t = check_times(t, rng)
        x_t = {}
        for name, clean in x_1.items():
            event = clean.shape[rng.key.ndim :]
            kappa = t.reshape((*rng.shape, *(1 for _ in event)))
            is_data = rng.fold(name, "shows").uniform(event, t.dtype) < kappa
            is_data = is_data | mask_of(given, name, clean, False)
            x_t[name] = torch.where(is_data, clean, self.stream_noise(name, event, rng))
        return x_t
