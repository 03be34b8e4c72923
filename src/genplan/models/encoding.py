"""What encoders are made of and answer with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Encoding(NamedTuple):
    """Encoded scenes, of which there are M."""

    condition: Tensor  # [M, D]: what the words say; a learnt constant without any
    grids: Mapping[str, Tensor]  # [M, cells, D] per grid field

    def rows(self, ids: Tensor) -> Encoding:
        return Encoding(self.condition[ids], {name: grid[ids] for name, grid in self.grids.items()})


@dataclass(frozen=True)
class EncoderSizes:
    hidden_size: int
    iterations: int = 24  # of the grid encoder's convolution
    position_embedding: bool = False  # codes of a cell's position beside what the grid shows there
