"""Exact answers on spaces small enough to enumerate, in float64."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from genplan.flow import ProbPath, Source, transition

LENGTH = 3


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
    likelihood = path.marginal(stream, clean, t.expand(clean.shape))  # [M, L, num_states]
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
