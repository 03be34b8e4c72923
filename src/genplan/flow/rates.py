"""Rate matrices of the continuous-time Markov chain that turns noise into data.

`conditional_rates` is the definition (the paper's appendix on rate matrices): R*(x, j | x_1) with its ReLU, Z_t, dead
states and diagonal, plus eta times a rate in detailed balance with p_t|1 (Campbell et al. 2024). It is small, slow and
used by tests only.

`expected_rates` is what the sampler uses: the row R(x_t, ·) averaged exactly over x_1 ~ p = p(x_1 | x_t), in closed
form since rates are linear in p. With the schedule kappa(t) = t:

    mask     MASK -> j   (1 + eta · t) / (1 − t) · p(j)
             x -> MASK   eta
    uniform  x -> j      (1 + eta · (1 + (S − 1) · t)) / (1 − t) · p(j)  +  eta · p(x)        (j ≠ x)

The two agree for 0 < t < 1. At t = 0 the closed form is the limit t -> 0: the definition's dead-state rule, taken
literally, forbids every jump out of MASK there and wastes the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.flow.path import ProbPath, Source


def conditional_rates(path: ProbPath, stream: str, x_1: Tensor, t: Tensor, eta: float = 0.0) -> Tensor:
    """R_t(x, j | x_1), by definition, as matrices [..., num_states, num_states] (rows x, columns j)."""
    p = path.marginal(stream, x_1, t)  # [..., S]
    p_dot = path.marginal_dot(stream, x_1, t)
    support = p > 0
    num_support = support.sum(-1)[..., None, None]  # Z_t
    flux = torch.relu(p_dot[..., None, :] - p_dot[..., :, None])
    rates = flux / (num_support * torch.where(support, p, 1.0)[..., :, None])
    rates = rates + eta * _balanced_rates(path, stream, x_1, p)
    rates = torch.where(support[..., None, :] & support[..., :, None], rates, 0.0)  # no rates from or to dead states
    rates = rates - torch.diag_embed(torch.diagonal(rates, dim1=-2, dim2=-1))
    return rates - torch.diag_embed(rates.sum(-1))


def _balanced_rates(path: ProbPath, stream: str, x_1: Tensor, p: Tensor) -> Tensor:
    """Rates that leave p_t|1 unchanged: from x_1 to noise at rate 1, and back as detailed balance demands."""
    is_data = torch.nn.functional.one_hot(x_1, p.shape[-1]).bool()
    is_noise = ~is_data
    if path.source is Source.MASK:
        is_noise = (torch.arange(p.shape[-1], device=p.device) == path.mask_token(stream)).expand_as(is_data)
    out = (is_data[..., :, None] & is_noise[..., None, :]).to(p.dtype)
    # p(j) R(j, x_1) = p(x_1) R(x_1, j)
    back = out.transpose(-1, -2) * p[..., None, :] / torch.where(p > 0, p, 1.0)[..., :, None]
    return out + back


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
