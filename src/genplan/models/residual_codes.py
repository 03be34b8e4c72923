"""Residual codes: chunks of continuous actions as a few code words, each of which refines the sum of those before.

Code words are the centres of clusters (k-means) of the demonstrated chunks, and at every further level of what the
levels before left over. What is left over at the end is the *offset*, which a planner may predict (models/offset.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.models.chunk_scale import ChunkScale
from genplan.models.settings import CodecConfig
from genplan.spec import Actions, Stream

ROUNDS = 30  # of k-means
MOST_CHUNKS = 40_000  # from which it learns


class ResidualCodes(ChunkScale):
    """`levels` codes of `codes` words each for every `chunk` actions.

    Error of a chunk: what the words of all levels leave over; `fit` states the largest and the mean, and how many words
    of every level are used.
    """

    has_offset = True
    words: Tensor

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        super().__init__(actions, config.chunk)
        self.levels = config.levels
        self.stream = Stream(config.codes, (config.levels,))
        self.register_buffer("words", torch.full((config.levels, config.codes, self.size), torch.nan))

    @torch.no_grad()
    def fit(self, actions: Tensor) -> dict[str, float]:
        super().fit(actions)
        generator = torch.Generator().manual_seed(0)
        actions = actions.reshape(-1, *self.mean.shape)
        values = ((actions - self.mean) / self.scale).flatten(1)
        rest = values[torch.randperm(len(values), generator=generator)[:MOST_CHUNKS]]
        for level in range(self.levels):
            self.words[level] = k_means(rest, self.stream.size, generator)
            rest = rest - self.words[level][nearest(rest, self.words[level])]
        tokens = self._tokens(values)
        error = (self.restored(self.scaled(tokens)[:, None], None) - actions).abs()
        found = {"mean_error": float(error.mean()), "max_error": float(error.max())}
        for level, column in enumerate(tokens.T):
            used = torch.bincount(column, minlength=self.stream.size).double()
            share = used / used.sum()
            found[f"codes_used_{level + 1}"] = float((used > 0).double().mean())
            found[f"perplexity_{level + 1}"] = float(torch.exp(-(share * share.clamp(min=1e-12).log()).sum()))
        return found

    def _tokens(self, values: Tensor) -> Tensor:
        """Normalized chunks [N, chunk · A] -> [N, levels]."""
        tokens = []
        for words in self.words:
            tokens.append(nearest(values, words))
            values = values - words[tokens[-1]]
        return torch.stack(tokens, -1)

    def encode(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        values = self.normalized(actions, origin)
        return self._tokens(values.flatten(0, 1)).reshape(*values.shape[:2], self.levels)

    def scaled(self, tokens: Tensor, num_levels: Tensor | None = None) -> Tensor:
        """The sum of the code words of tokens [..., levels], as normalized chunks [..., chunk · A].

        num_levels  how many of the levels are added up [...]; all by default
        """
        self.check()
        levels = torch.arange(self.levels, device=tokens.device)
        words = self.words[levels, tokens]  # [..., levels, chunk · A]
        return (words if num_levels is None else words * (levels < num_levels[..., None])[..., None]).sum(-2)

    def decode(self, tokens: Tensor, origin: Tensor | None) -> Tensor:
        return self.restored(self.scaled(tokens), origin)


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
