"""Exact answers on spaces small enough to enumerate, in float64."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from genplan.flow import ProbPath, Source, transition

LENGTH = 3


def marginal(path: ProbPath, stream: str, x_1: Tensor, t: Tensor) -> Tensor:
    """p_t|1(· | x_1) of one stream as a vector [..., num_states]; x_1 and t broadcast."""
    data, noise = _endpoints(path, stream, x_1, t)
    return t[..., None] * data + (1 - t[..., None]) * noise


def marginal_dot(path: ProbPath, stream: str, x_1: Tensor, t: Tensor) -> Tensor:
    """The time derivative of `marginal`."""
    data, noise = _endpoints(path, stream, x_1, t)
    return data - noise


def _endpoints(path: ProbPath, stream: str, x_1: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """The path at t = 1 and t = 0 as distributions: all mass on x_1, and the source."""
    num_states = path.num_states(stream)
    data = torch.nn.functional.one_hot(x_1, num_states).to(t.dtype)
    if path.source is Source.UNIFORM:
        return data, torch.full_like(data, 1 / num_states)
    return data, torch.nn.functional.one_hot(torch.full_like(x_1, path.mask_token(stream)), num_states).to(t.dtype)


def conditional_rates(path: ProbPath, stream: str, x_1: Tensor, t: Tensor, eta: float = 0.0) -> Tensor:
    """R_t(x, j | x_1), by definition, as matrices [..., num_states, num_states] (rows x, columns j).

    The paper's appendix on rate matrices: R* with its ReLU, Z_t, dead states and diagonal, plus eta times a rate in
    detailed balance with p_t|1 (Campbell et al. 2024).
    """
    p = marginal(path, stream, x_1, t)  # [..., S]
    p_dot = marginal_dot(path, stream, x_1, t)
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
        is_noise = (torch.arange(p.shape[-1]) == path.mask_token(stream)).expand_as(is_data)
    out = (is_data[..., :, None] & is_noise[..., None, :]).to(p.dtype)
    # p(j) R(j, x_1) = p(x_1) R(x_1, j)
    back = out.transpose(-1, -2) * p[..., None, :] / torch.where(p > 0, p, 1.0)[..., :, None]
    return out + back


def joint(size: int, seed: int = 0) -> Tensor:
    """A random, full-support distribution over LENGTH tokens: [size, size, size]."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(*[size] * LENGTH, generator=generator, dtype=torch.float64).mul(3).exp()
    return weights / weights.sum()


def states(num: int) -> Tensor:
    """All num^LENGTH sequences, [N, LENGTH]."""
    return torch.tensor(list(itertools.product(range(num), repeat=LENGTH)))


def posterior(path: ProbPath, stream: str, data: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """p(x_1^k | x_t) for every sequence x_t [N, LENGTH], by Bayes' rule: [N, LENGTH, S]."""
    size = path.sizes[stream]
    clean = states(size)  # [M, L]
    likelihood = marginal(path, stream, clean, t.expand(clean.shape))  # [M, L, num_states]
    picked = likelihood[torch.arange(len(clean))[None, :, None], torch.arange(LENGTH), x_t[:, None, :]]  # [N, M, L]
    weights = picked.prod(-1) * data.reshape(-1)  # [N, M]
    one_hot = torch.nn.functional.one_hot(clean, size).double()  # [M, L, S]
    unnormalized = torch.einsum("nm,mls->nls", weights, one_hot)
    total = unnormalized.sum(-1, keepdim=True)
    # Sequences that cannot occur (they contradict the data) get any distribution: nothing ever reaches them.
    return torch.where(total > 0, unnormalized / total.clamp(min=1e-300), 1 / size)


def sampled_probs(path: ProbPath, stream: str, data: Tensor, steps: int, eta: float = 0.0) -> Tensor:
    """The distribution of the sampler's output after `steps` steps with the exact posterior, propagated exactly."""
    num = path.num_states(stream)
    x_t = states(num)
    probs = torch.zeros(len(x_t), dtype=torch.float64)
    if path.source is Source.MASK:
        probs[-1] = 1.0  # all MASK
    else:
        probs[:] = 1 / len(probs)
    for k in range(steps):
        t = torch.tensor(k / steps, dtype=torch.float64)
        t_next = torch.tensor((k + 1) / steps, dtype=torch.float64)
        denoised = posterior(path, stream, data, x_t, t)
        kernel = transition(path, stream, denoised, x_t, t.reshape(1, 1), t_next.reshape(1, 1), eta)  # [N, L, num]
        step = kernel[:, 0, :, None, None] * kernel[:, 1, None, :, None] * kernel[:, 2, None, None, :]
        probs = torch.einsum("n,nabc->abc", probs, step).reshape(-1)
    cube = probs.reshape(num, num, num)
    size = path.sizes[stream]
    return cube[:size, :size, :size]


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the summed difference; mass that is missing from one of them (left on MASK) counts."""
    missing = abs(p.sum() - q.sum()).item()
    return ((p - q).abs().sum().item() + missing) / 2
