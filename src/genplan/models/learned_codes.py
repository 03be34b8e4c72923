"""Codes of what a learned encoder makes of a chunk, which a learned decoder turns into actions again.

`LearnedCodes` has residual code words between the two, as VQ-BeT has (Lee et al., 2024); `ScalarCodes` rounds each of a
few numbers (finite scalar quantization: Mentzer et al., 2024). `fit` trains them, always alike for the same data; then
they never change. So their weights are buffers: no optimizer finds them, they stay in full precision, and NaN until
they are fitted makes a planner without them fail.

Code words are learned here and not by `vector-quantize-pytorch`: its code books begin as zeros that decode in silence,
its k-means draws from the global generator, and every user of grids would install it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.models.chunk_codes import ChunkCodes
from genplan.models.residual_codes import MOST_CHUNKS, nearest, residual_tokens, residual_words, sum_of_words
from genplan.models.settings import CodecConfig
from genplan.spec import Actions

WIDTH, LATENT = 128, 16
STEPS, BATCH_SIZE, LEARNING_RATE = (300, 3000), 256, 4e-3  # steps: a tenth of the chunks, at least and at most so many
DECAY = 0.99  # of the averages that code words are
FEWEST = 0.02  # a word that fewer chunks of a batch than this choose, on average, begins anew


class EncodedCodes(ChunkCodes):
    """To be given `begin_codes`, `quantized`, `tokens_of` and `scaled`."""

    without_codes = 0.0  # of the steps, in which encoder and decoder come to be what code words are then made for
    commitment = 0.0  # weight of the distance from what the encoder says to what stands for it

    def __init__(self, actions: Actions, config: CodecConfig, num_codes: int, latent: int) -> None:
        super().__init__(actions, config, num_codes)
        self.latent = latent
        self.encoder, self.decoder = map(as_buffers, self._networks())

    def _networks(self) -> tuple[nn.Sequential, nn.Sequential]:
        return mlp(self.size, self.latent), mlp(self.latent, self.size)

    def bounded(self, latent: Tensor) -> Tensor:
        """What the encoder says, in the range that codes have."""
        return latent

    def begin_codes(self, latent: Tensor, generator: torch.Generator) -> None:
        """Codes for the latents [N, D] of an encoder that was trained without them."""

    def quantized(self, latent: Tensor, generator: torch.Generator) -> Tensor:
        """In training: what the codes of latents [B, D] stand for."""
        raise NotImplementedError

    @torch.enable_grad()
    def fit_codes(self, values: Tensor, generator: torch.Generator) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder, decoder = self._networks()
        steps = min(max(len(values) // 10, STEPS[0]), STEPS[1])
        first = int(self.without_codes * steps)
        optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], LEARNING_RATE, weight_decay=0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for step in range(steps):
            if step == first:
                some = values[torch.randperm(len(values), generator=generator)[:MOST_CHUNKS]]
                with torch.no_grad():
                    self.begin_codes(self.bounded(encoder(some)), generator)
            chunks = values[torch.randint(len(values), (BATCH_SIZE,), generator=generator)]
            latent = self.bounded(encoder(chunks))
            found = latent.detach() if step < first else self.quantized(latent.detach(), generator)
            through = latent + (found - latent).detach()  # its gradient is that of the latent
            loss = functional.l1_loss(decoder(through), chunks)
            loss = loss + self.commitment * functional.mse_loss(latent, found)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
        self.encoder.load_state_dict(encoder.state_dict())
        self.decoder.load_state_dict(decoder.state_dict())

    def decoded(self, latent: Tensor, num_levels: Tensor | None) -> Tensor:
        """Latents [..., D] as normalized chunks; 0 where no level is used."""
        self.check()
        values: Tensor = self.decoder(latent)
        return values if num_levels is None else values * (num_levels > 0)[..., None]


class LearnedCodes(EncodedCodes):
    """`levels` codes of `codes` words each, which follow the mean of the latents that choose them (van den Oord et al.,
    2017, appendix A.1), at every further level of what the levels before left over."""

    without_codes, commitment = 0.25, 0.25
    words: Tensor

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        super().__init__(actions, config, config.codes, LATENT)
        self.register_buffer("words", torch.full((config.levels, config.codes, LATENT), torch.nan))

    def begin_codes(self, latent: Tensor, generator: torch.Generator) -> None:
        self.words.copy_(residual_words(latent, self.levels, self.stream.size, generator))
        self.counts, self.sums = torch.ones(self.words.shape[:2]), self.words.clone()  # averages, while it is fitted

    @torch.no_grad()
    def quantized(self, latent: Tensor, generator: torch.Generator) -> Tensor:
        """The words then follow."""
        rest = latent
        for words, counts, sums in zip(self.words, self.counts, self.sums, strict=True):
            chosen = nearest(rest, words)
            counts.lerp_(torch.bincount(chosen, minlength=len(words)).float(), 1 - DECAY)
            sums.lerp_(torch.zeros_like(sums).index_add_(0, chosen, rest), 1 - DECAY)
            unused = counts < FEWEST
            fresh = torch.randint(len(rest), (int(unused.sum()),), generator=generator)
            sums[unused], counts[unused] = rest[fresh], 1.0
            rest = rest - words[chosen]
            words.copy_(sums / counts[:, None])
        return latent - rest

    def tokens_of(self, values: Tensor) -> Tensor:
        return residual_tokens(self.encoder(values), self.words)

    def scaled(self, tokens: Tensor, num_levels: Tensor | None = None) -> Tensor:
        return self.decoded(sum_of_words(self.words, tokens, num_levels), num_levels)


class ScalarCodes(EncodedCodes):
    """Two numbers between −1 and 1 for each of `levels` tokens, rounded to a grid of at most `codes` points that is as
    square as can be: 25 codes are 5 × 5, 32 are 5 × 6."""

    any_levels = False
    last: Tensor

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        side = math.isqrt(config.codes)
        sides = (side, config.codes // side)
        super().__init__(actions, config, math.prod(sides), len(sides) * config.levels)
        self.register_buffer("last", torch.tensor(sides) - 1, persistent=False)

    def bounded(self, latent: Tensor) -> Tensor:
        return latent.tanh()

    def _places(self, latent: Tensor) -> Tensor:
        """Latents [..., D] -> points of the grid [..., levels, 2]."""
        share = (latent.reshape(*latent.shape[:-1], self.levels, -1) + 1) / 2
        return (share * self.last).round()

    def _latent(self, places: Tensor) -> Tensor:
        return (2 * places / self.last.clamp(min=1) - 1).flatten(-2)

    def quantized(self, latent: Tensor, generator: torch.Generator) -> Tensor:
        return self._latent(self._places(latent))

    def tokens_of(self, values: Tensor) -> Tensor:
        row, column = self._places(self.bounded(self.encoder(values))).long().unbind(-1)
        return row * (self.last[1] + 1) + column

    def scaled(self, tokens: Tensor, num_levels: Tensor | None = None) -> Tensor:
        columns = self.last[1] + 1
        places = torch.stack([tokens // columns, tokens % columns], -1)
        return self.decoded(self._latent(places), num_levels)


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, outputs)
    )


def as_buffers(network: nn.Sequential) -> nn.Sequential:
    """The network without parameters: what was one is a buffer, NaN until it is filled."""
    for part in network:
        for name, parameter in list(part.named_parameters()):
            delattr(part, name)
            part.register_buffer(name, torch.full_like(parameter, torch.nan, requires_grad=False))
    return network
