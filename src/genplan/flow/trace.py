"""A record of the sampler's steps: how a plan takes shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genplan.flow.masks import Masks, mask_of, sum_event
from genplan.flow.path import Tokens


@dataclass(frozen=True)
class Trace:
    """The steps of one sample: K network calls, K + 1 values of x_t."""

    t: Tensor  # [K + 1]
    tokens: Mapping[str, Tensor]  # [K + 1, *batch, *event]
    predicted: Mapping[str, Tensor]  # [K, *batch, *event], the most probable token at each call
    confidence: Mapping[str, Tensor]  # [K, *batch, *event], its probability
    energy: Tensor  # [K, *batch], −Σ log confidence over the energy's streams: falls as tokens are committed


class TraceRecorder:
    """Collects a Trace, one network call at a time."""

    def __init__(self, energy_streams: Sequence[str], batch_ndim: int, valid: Masks | None) -> None:
        self.energy_streams, self.batch_ndim, self.valid = energy_streams, batch_ndim, valid
        self.t: list[float] = []
        self.tokens: list[Tokens] = []
        self.predicted: list[Tokens] = []
        self.confidence: list[Mapping[str, Tensor]] = []
        self.energy: list[Tensor] = []

    def add(self, t: float, x_t: Tokens, log_p: Mapping[str, Tensor]) -> None:
        best = {name: a.max(-1) for name, a in log_p.items()}
        confidence = {name: b.values.exp() for name, b in best.items()}
        self.t.append(t)
        self.tokens.append(x_t)
        self.predicted.append({name: b.indices for name, b in best.items()})
        self.confidence.append(confidence)
        nll = [
            torch.where(mask_of(self.valid, name, x_t[name], True), -confidence[name].log(), 0.0)
            for name in self.energy_streams
        ]
        self.energy.append(torch.stack([sum_event(n, self.batch_ndim) for n in nll]).sum(0))

    def finish(self, x_1: Tokens) -> Trace:
        """The trace of the calls added so far, which ended in `x_1`."""
        return Trace(
            t=torch.tensor([*self.t, 1.0], device=self.energy[0].device),
            tokens={name: torch.stack([x[name] for x in (*self.tokens, x_1)]) for name in x_1},
            predicted={name: torch.stack([p[name] for p in self.predicted]) for name in x_1},
            confidence={name: torch.stack([c[name] for c in self.confidence]) for name in x_1},
            energy=torch.stack(self.energy),
        )
