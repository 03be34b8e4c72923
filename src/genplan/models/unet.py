"""A U-Net over the steps of a chunk, modulated by what is observed (FiLM): the network of DP-C."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUPS, KERNEL = 8, 5


class FilmBlock(nn.Module):
    """Two convolutions; between them every channel is scaled and shifted by the condition."""

    def __init__(self, before: int, after: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(before, after, KERNEL, padding=KERNEL // 2), nn.GroupNorm(GROUPS, after), nn.Mish()
        )
        self.second = nn.Sequential(
            nn.Conv1d(after, after, KERNEL, padding=KERNEL // 2), nn.GroupNorm(GROUPS, after), nn.Mish()
        )
        self.film = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * after))
        self.skip: nn.Module = nn.Conv1d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """x [B, C, T], condition [B, D]."""
        scale, shift = self.film(condition)[..., None].chunk(2, 1)
        answer: Tensor = self.second(self.first(x) * (1 + scale) + shift) + self.skip(x)
        return answer


class ConditionalUnet(nn.Module):
    """Noisy actions [B, T, A] and a condition [B, D] -> [B, T, A]; T is made even by repeating its end."""

    def __init__(self, size: int, condition: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        sizes = [size, *channels]
        self.down = nn.ModuleList(FilmBlock(a, b, condition) for a, b in pairwise(sizes))
        halved = channels[:-1]
        self.halve = nn.ModuleList(nn.Conv1d(one, one, 3, stride=2, padding=1) for one in halved)
        self.middle = FilmBlock(channels[-1], channels[-1], condition)
        self.widen = nn.ModuleList(nn.ConvTranspose1d(b, a, 4, stride=2, padding=1)
                                    for a, b in pairwise(channels))  # fmt: skip
        self.up = nn.ModuleList(FilmBlock(2 * one, one, condition) for one in halved)
        self.out = nn.Conv1d(channels[0], size, 1)
        self.multiple = 2 ** len(halved)

    def forward(self, actions: Tensor, condition: Tensor) -> Tensor:
        length = actions.shape[1]
        x = functional.pad(actions.transpose(1, 2), (0, -length % self.multiple), mode="replicate")
        kept = []
        for number, block in enumerate(self.down):
            x = block(x, condition)
            if number < len(self.halve):
                kept.append(x)
                x = self.halve[number](x)
        x = self.middle(x, condition)
        for number in reversed(range(len(self.up))):
            x = torch.cat([self.widen[number](x), kept[number]], 1)
            x = self.up[number](x, condition)
        answer: Tensor = self.out(x).transpose(1, 2)[:, :length]
        return answer
