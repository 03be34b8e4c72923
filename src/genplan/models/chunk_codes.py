"""Chunks of continuous actions as a few tokens each: what all such codecs offer to planners and to the offset head."""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.errors import UserError
from genplan.models.chunk_scale import ChunkScale
from genplan.models.settings import CodecConfig
from genplan.spec import Actions, Stream


class ChunkCodes(ChunkScale):
    """`levels` tokens of `num_codes` codes each for every `chunk` actions. To be given `fit_codes`, `tokens_of` and
    `scaled`.

    Error of a chunk: what the codes of all levels leave over. It is the *offset*, which a planner may predict.
    """

    has_offset = True
    any_levels = True  # any number of levels can be used, for each refines those before; otherwise all or none

    def __init__(self, actions: Actions, config: CodecConfig, num_codes: int) -> None:
        super().__init__(actions, config.chunk)
        self.levels = config.levels
        self.stream = Stream(num_codes, (config.levels,))

    @torch.no_grad()
    def fit(self, actions: Tensor) -> dict[str, float]:
        """The mean and the largest error of a round trip; of every level, which share of its codes is used, and how
        many codes that are equally frequent would say as much."""
        super().fit(actions)
        actions = actions.reshape(-1, *self.mean.shape)
        values = ((actions - self.mean) / self.scale).flatten(1)
        self.fit_codes(values, torch.Generator().manual_seed(0))
        tokens = self.tokens_of(values)
        error = (self.relative(self.scaled(tokens)[:, None]) - actions).abs()
        found = {"mean_error": float(error.mean()), "max_error": float(error.max())}
        for level, column in enumerate(tokens.T):
            used = torch.bincount(column, minlength=self.stream.size).double()
            share = used / used.sum()
            found[f"codes_used_{level + 1}"] = float((used > 0).double().mean())
            found[f"perplexity_{level + 1}"] = float(torch.exp(-(share * share.clamp(min=1e-12).log()).sum()))
        return found

    def fit_codes(self, values: Tensor, generator: torch.Generator) -> None:
        """From normalized chunks [N, chunk · A]; without gradients."""
        raise NotImplementedError

    def tokens_of(self, values: Tensor) -> Tensor:
        """Normalized chunks [N, chunk · A] -> [N, levels]."""
        raise NotImplementedError

    def scaled(self, tokens: Tensor, num_levels: Tensor | None = None) -> Tensor:
        """The normalized chunks [..., chunk · A] that tokens [..., levels] stand for.

        num_levels  how many of the levels are used [...]; all by default; with none, 0 everywhere: the mean chunk
        """
        raise NotImplementedError

    def num_used(self, wanted: int | None) -> int:
        """How many levels are used when planning; None: all."""
        used = self.levels if wanted is None else wanted
        if not self.any_levels and 0 < used < self.levels:
            raise UserError(f"used_levels is {used}, expected 0 or all {self.levels}: no token of this codec refines "
                            "those before")  # fmt: skip
        return used

    @property
    def level_choices(self) -> tuple[int, ...]:
        """How many levels can be used: training shows all of these numbers."""
        return tuple(range(self.levels + 1)) if self.any_levels else (0, self.levels)

    def encode(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        values = self.normalized(actions, origin)
        return self.tokens_of(values.flatten(0, 1)).reshape(*values.shape[:2], self.levels)

    def decode(self, tokens: Tensor, origin: Tensor | None) -> Tensor:
        return self.restored(self.scaled(tokens), origin)
