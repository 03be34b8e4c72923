"""Rate matrices of the continuous-time Markov chain that turns noise into data.

`expected_rates` is the row R(x_t, ·) averaged exactly over x_1 ~ p = p(x_1 | x_t), in closed form since rates are
linear in p. With the schedule kappa(t) = t:

    mask     MASK -> j   (1 + eta · t) / (1 − t) · p(j)
             x -> MASK   eta
    uniform  x -> j      (1 + eta · (1 + (S − 1) · t)) / (1 − t) · p(j)  +  eta · p(x)        (j ≠ x)

The rates R(x, j | x_1) that are averaged are those of the paper's appendix, plus eta times rates in detailed balance
with p_t|1 (Campbell et al. 2024); tests/flow/exact.py has them by definition, and they agree for 0 < t < 1. At t = 0
the closed form is the limit t -> 0: the definition's dead-state rule, taken literally, forbids every jump out of MASK
there and wastes the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.flow.path import ProbPath, Source


def expected_rates(path: ProbPath, stream: str, probs: Tensor, x_t: Tensor, t: Tensor, eta: float = 0.0) -> Tensor:
    """R_t(x_t, ·) under x_1 ~ probs, as rows [..., num_states] whose entry at x_t is minus the sum of the rest.

    probs [..., S] are p(x_1 | x_t); x_t is int64 [...], and t < 1 broadcasts to it.
    """
    size, index = path.sizes[stream], x_t[..., None]
    if path.source is Source.MASK:
        masked = x_t == size
        unmask = torch.where(masked, (1 + eta * t) / (1 - t), 0.0).to(probs.dtype)
        back = torch.where(masked, -unmask, torch.full_like(unmask, eta))
        rates = torch.cat([probs * unmask[..., None], back[..., None]], -1)
        if eta:
            rates.scatter_add_(-1, index, torch.where(masked, 0.0, -eta).to(probs.dtype)[..., None])
        return rates
    toward = ((1 + eta * (1 + (size - 1) * t)) / (1 - t)).to(probs.dtype)
    rates = probs * toward[..., None]
    if eta:
        rates = rates + eta * probs.gather(-1, index)
    rates.scatter_(-1, index, 0.0)
    return rates.scatter_(-1, index, -rates.sum(-1, keepdim=True))


def step_probabilities(rates: Tensor, x_t: Tensor, dt: Tensor) -> Tensor:
    """p(x_{t+dt} | x_t): delta(x_t) + R dt, clipped to the simplex; [..., num_states]."""
    probs = rates * dt[..., None]
    probs.scatter_add_(-1, x_t[..., None], torch.ones_like(probs[..., :1]))
    probs.clamp_(min=0.0)
    return probs.div_(probs.sum(-1, keepdim=True))


def transition(
    path: ProbPath, stream: str, probs: Tensor, x_t: Tensor, t: Tensor, t_next: Tensor, eta: float = 0.0
) -> Tensor:
    """One step of Algorithm 2 for one stream: p(x_{t_next} | x_t), [..., num_states].

    t and t_next broadcast to x_t. The last step (t_next = 1) is exact: eta does not apply, and what is not yet data
    becomes a draw from probs.
    """
    last = bool((t_next == 1).all())
    rates = expected_rates(path, stream, probs, x_t, t.to(probs.dtype), 0.0 if last else eta)
    return step_probabilities(rates, x_t, (t_next - t).to(probs.dtype).expand(x_t.shape))
