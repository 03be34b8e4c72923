"""Residual codes: chunks of continuous actions as a few code words, each of which refines the sum of those before.

Code words are the centres of clusters (k-means) of the demonstrated chunks, and at every further level of what the
levels before left over. What is left over at the end is the *offset*, which a planner may predict (models/offset.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.models.chunk_codes import ChunkCodes
from genplan.models.settings import CodecConfig
from genplan.spec import Actions

ROUNDS = 30  # of k-means
MOST_CHUNKS = 40_000  # from which it learns


class ResidualCodes(ChunkCodes):
    """`levels` codes of `codes` words each for every `chunk` actions.

    Error of a chunk: what the words of all levels leave over; `fit` states the largest and the mean, and how many words
    of every level are used.
    """

    words: Tensor

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        super().__init__(actions, config, config.codes)
        self.register_buffer("words", torch.full((config.levels, config.codes, self.size), torch.nan))

    def fit_codes(self, values: Tensor, generator: torch.Generator) -> None:
        some = values[torch.randperm(len(values), generator=generator)[:MOST_CHUNKS]]
        self.words.copy_(residual_words(some, self.levels, self.stream.size, generator))

    def tokens_of(self, values: Tensor) -> Tensor:
        return residual_tokens(values, self.words)

    def scaled(self, tokens: Tensor, num_levels: Tensor | None = None) -> Tensor:
        """The sum of the code words of all levels that are used."""
        self.check()
        return sum_of_words(self.words, tokens, num_levels)


def residual_words(values: Tensor, levels: int, number: int, generator: torch.Generator) -> Tensor:
    """Words [levels, number, D] of values [N, D]."""
    words = []
    for _ in range(levels):
        words.append(k_means(values, number, generator))
        values = values - words[-1][nearest(values, words[-1])]
    return torch.stack(words)


def residual_tokens(values: Tensor, words: Tensor) -> Tensor:
    """Values [N, D] -> [N, levels]: at each of its levels, the nearest of words [levels, K, D] to what is left over."""
    tokens = []
    for level in words:
        tokens.append(nearest(values, level))
        values = values - level[tokens[-1]]
    return torch.stack(tokens, -1)


def sum_of_words(words: Tensor, tokens: Tensor, num_levels: Tensor | None) -> Tensor:
    """Of words [levels, K, D], those of tokens [..., levels], up to so many levels [...], added up: [..., D]."""
    levels = torch.arange(len(words), device=tokens.device)
    found = words[levels, tokens]  # [..., levels, D]
    return (found if num_levels is None else found * (levels < num_levels[..., None])[..., None]).sum(-2)


def nearest(values: Tensor, words: Tensor) -> Tensor:
    """The number of the nearest of words [K, D] to each of values [N, D]."""
    distance = (words**2).sum(1) - 2 * values @ words.T
    return distance.argmin(1)


def k_means(values: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Centres [number, D] of values [N, D]: each begins far from those before; those without values begin anew."""
    centres = values[torch.randint(len(values), (1,), generator=generator)]
    distance = torch.full((len(values),), torch.inf)
    for _ in range(number - 1):  # k-means++
        distance = torch.minimum(distance, ((values - centres[-1]) ** 2).sum(1))
        weights = distance if bool(distance.sum() > 0) else torch.ones_like(distance)
        centres = torch.cat([centres, values[torch.multinomial(weights, 1, generator=generator)]])
    for _ in range(ROUNDS):
        chosen = nearest(values, centres)
        counts = torch.bincount(chosen, minlength=number)
        sums = torch.zeros_like(centres).index_add_(0, chosen, values)
        empty = counts == 0
        fresh = values[torch.randint(len(values), (number,), generator=generator)]
        centres = torch.where(empty[:, None], fresh, sums / counts.clamp(min=1)[:, None])
    return centres
