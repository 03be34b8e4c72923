"""Residual codes: chunks of continuous actions as a few code words, each of which refines the sum of those before.

Code words are the centres of clusters (k-means) of the demonstrated chunks, and at every further level of what the
levels before left over. What is left over at the end is the *offset*, which a planner may predict (models/offset.py).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.models.codecs import ActionCodec
from genplan.models.settings import CodecConfig
from genplan.spec import Actions, Stream

ROUNDS = 30  # of k-means
MOST_CHUNKS = 40_000  # from which it learns
SMALLEST = 1e-6  # deviation of a dimension that is taken to change


class ResidualCodes(ActionCodec):
    """`levels` codes of `codes` words each for every `chunk` actions.

    Error of a chunk: what no code word of the last level is nearer to; `fit` states the largest and the mean. Dimensions
    are scaled by their deviation; one that never changes has one value.
    """

    has_offset = True
    mean: Tensor
    scale: Tensor
    words: Tensor
    low: Tensor
    high: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        nn.Module.__init__(self)
        if actions.n is not None:
            raise UserError("the codec 'residual' is for continuous actions, found discrete ones; use 'identity'")
        self.chunk, self.levels, size = config.chunk, config.levels, len(actions.low)
        self.stream = Stream(config.codes, (config.levels,))
        for name, shape in (
            ("mean", (self.chunk, size)), ("scale", (size,)), ("low", (size,)), ("high", (size,)),
            ("words", (self.levels, config.codes, self.chunk * size)),
        ):  # fmt: skip
            self.register_buffer(name, torch.full(shape, torch.nan))  # not fitted: nothing can be decoded by chance
        self.register_buffer("least", torch.tensor(actions.low), persistent=False)
        self.register_buffer("most", torch.tensor(actions.high), persistent=False)

    @torch.no_grad()
    def fit(self, actions: Tensor) -> dict[str, float]:
        """From chunks [N, chunk, A]."""
        flat = actions.flatten(0, 1)
        self.low.copy_(flat.amin(0))
        self.high.copy_(flat.amax(0))
        self.mean.copy_(actions.mean(0))
        std = (actions - self.mean).flatten(0, 1).std(0, correction=0)
        self.scale.copy_(torch.where(std > SMALLEST, std, 1.0))
        generator = torch.Generator().manual_seed(0)
        rest = ((actions - self.mean) / self.scale).flatten(1)
        chosen = torch.randperm(len(rest), generator=generator)[:MOST_CHUNKS]
        learnt_from = rest[chosen]
        for level in range(self.levels):
            self.words[level] = k_means(learnt_from, self.stream.size, generator)
            learnt_from = learnt_from - self.words[level][nearest(learnt_from, self.words[level])]
        tokens = self._tokens(actions[:, None])
        error = (self._values(tokens)[:, 0] - actions).abs()
        found = {"mean_error": float(error.mean()), "max_error": float(error.max())}
        for level, column in enumerate(tokens.flatten(0, 1).T):
            used = torch.bincount(column, minlength=self.stream.size).double()
            share = used / used.sum()
            found[f"codes_used_{level + 1}"] = float((used > 0).double().mean())
            found[f"perplexity_{level + 1}"] = float(torch.exp(-(share * share.clamp(min=1e-12).log()).sum()))
        return found

    def _check(self) -> None:
        if not bool(torch.isfinite(self.words).all() & torch.isfinite(self.mean).all()):
            raise UserError("the action codec has no statistics; expected a planner that was trained, or loaded whole")

    def _tokens(self, chunks: Tensor) -> Tensor:
        """Chunks [..., chunk, A] -> [..., levels]."""
        self._check()
        rest = ((chunks - self.mean) / self.scale).flatten(-2)
        shape, rest = rest.shape[:-1], rest.flatten(0, -2)
        tokens = []
        for words in self.words:
            tokens.append(nearest(rest, words))
            rest = rest - words[tokens[-1]]
        return torch.stack(tokens, -1).reshape(*shape, self.levels)

    def scaled(self, tokens: Tensor, num_levels: Tensor | int | None = None) -> Tensor:
        """The sum of the code words of tokens [..., levels], in units of the deviation: [..., chunk · A].

        num_levels  how many of the levels are added up, for all or for each [...]; all by default
        """
        self._check()
        levels = torch.arange(self.levels, device=tokens.device)
        words = self.words[levels, tokens]  # [..., levels, chunk · A]
        if num_levels is not None:
            counted = levels < (num_levels[..., None] if isinstance(num_levels, Tensor) else num_levels)
            words = words * counted[..., None]
        return words.sum(-2)

    def offset(self, actions: Tensor, origin: Tensor | None, scaled: Tensor) -> Tensor:
        """What is missing in the decoded chunks `scaled` [B, H / chunk, chunk · A], in the same units."""
        values = (self._relative(actions, origin) - self.mean) / self.scale
        return values.flatten(-2) - scaled

    def _values(self, tokens: Tensor, offset: Tensor | None = None, num_levels: int | None = None) -> Tensor:
        scaled = self.scaled(tokens, num_levels)
        scaled = scaled if offset is None else scaled + offset
        return scaled.unflatten(-1, self.mean.shape) * self.scale + self.mean

    def _relative(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        """Actions [B, H, A] as chunks [B, H / chunk, chunk, A], relative to their origin."""
        values = actions if origin is None else actions - origin[:, None]
        return values.unflatten(1, (-1, self.chunk))

    def encode(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        return self._tokens(self._relative(actions, origin))

    def is_clipped(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        values = actions if origin is None else actions - origin[:, None]
        return ((values < self.low) | (values > self.high)).any(-1)

    def decode(
        self, tokens: Tensor, origin: Tensor | None, offset: Tensor | None = None, num_levels: int | None = None
    ) -> Tensor:
        """Tokens [B, H / chunk, levels] and offsets [B, H / chunk, chunk · A] -> actions [B, H, A]."""
        values = self._values(tokens, offset, num_levels).flatten(1, 2)
        values = torch.maximum(torch.minimum(values, self.high), self.low)  # an offset stays within what was shown
        values = values if origin is None else values + origin[:, None]
        return torch.maximum(torch.minimum(values, self.most), self.least)


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
