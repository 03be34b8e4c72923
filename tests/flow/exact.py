"""Exact answers on spaces small enough to enumerate, in float64."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from genplan.flow import Path, Source, transition

LENGTH = 3


def joint(size: int, seed: int = 0) -> Tensor:
    """A random, full-support law over LENGTH tokens: [size, size, size]."""
    generator = torch.Generator().manual_seed(seed)
    law = torch.rand(*[size] * LENGTH, generator=generator, dtype=torch.float64).mul(3).exp()
    return law / law.sum()


def states(num: int) -> Tensor:
    """All num^LENGTH sequences, [N, LENGTH]."""
    return torch.tensor(list(itertools.product(range(num), repeat=LENGTH)))


def posterior(path: Path, stream: str, data: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """p(x_1^k | x_t) for every sequence x_t [N, LENGTH], by Bayes' rule: [N, LENGTH, S]."""
    size = path.sizes[stream]
    clean = states(size)  # [M, L]
    likelihood = path.marginal(stream, clean, t.expand(clean.shape))  # [M, L, num_states]
    picked = likelihood[torch.arange(len(clean))[None, :, None], torch.arange(LENGTH), x_t[:, None, :]]  # [N, M, L]
    weights = picked.prod(-1) * data.reshape(-1)  # [N, M]
    one_hot = torch.nn.functional.one_hot(clean, size).double()  # [M, L, S]
    unnormalised = torch.einsum("nm,mls->nls", weights, one_hot)
    total = unnormalised.sum(-1, keepdim=True)
    # Sequences that cannot occur (they contradict the data) get any law: nothing ever reaches them.
    return torch.where(total > 0, unnormalised / total.clamp(min=1e-300), 1 / size)


def sampled_law(path: Path, stream: str, data: Tensor, steps: int, eta: float = 0.0) -> Tensor:
    """The law of the sampler's output after `steps` steps with the exact posterior, by propagating it exactly."""
    num = path.num_states(stream)
    everything = states(num)
    law = torch.zeros(len(everything), dtype=torch.float64)
    if path.source is Source.MASK:
        law[-1] = 1.0  # all MASK
    else:
        law[:] = 1 / len(law)
    for k in range(steps):
        t = torch.tensor(k / steps, dtype=torch.float64)
        t_next = torch.tensor((k + 1) / steps, dtype=torch.float64)
        probs = posterior(path, stream, data, everything, t)
        kernel = transition(path, stream, probs, everything, t.reshape(1, 1), t_next.reshape(1, 1), eta)  # [N, L, num]
        step = kernel[:, 0, :, None, None] * kernel[:, 1, None, :, None] * kernel[:, 2, None, None, :]
        law = torch.einsum("n,nabc->abc", law, step).reshape(-1)
    cube = law.reshape(num, num, num)
    size = path.sizes[stream]
    return cube[:size, :size, :size]


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the summed difference; mass that is missing from one of them (left on MASK) counts."""
    missing = abs(p.sum() - q.sum()).item()
    return ((p - q).abs().sum().item() + missing) / 2
