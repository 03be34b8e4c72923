"""EitherOrder: of a mission that joins two in any order, what is said first need not be done first.

A demonstrator has its habits: BabyAI's bot does what is said first, though the other may be near. With the two halves
exchanged at random, the words say nothing of the order, and the way to what is near is as well demonstrated as any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import PlanSpec
from genplan.types import Batch, Observations


@dataclass(frozen=True)
class EitherOrder:
    """Exchanges what stands before and behind a word, in the missions of every other scene."""

    name: ClassVar[str] = "either_order"
    conjunction: str  # the word; missions in which it does not stand just once stay as they are

    def bind(self, windows: Windows) -> BoundEitherOrder:
        return BoundEitherOrder(windows.spec, self)


class BoundEitherOrder:
    any_order = True  # of sub-goals: what is learnt of ways may rely on it

    def __init__(self, spec: PlanSpec, transform: EitherOrder) -> None:
        if spec.words_field is None:
            raise UserError(f"the transform '{transform.name}' needs a mission, found the fields "
                            f"{', '.join(spec.fields)}; train without it")  # fmt: skip
        self.mission, vocabulary = spec.words_field, spec.fields[spec.words_field].vocabulary
        if transform.conjunction not in vocabulary:
            raise UserError(f"the conjunction '{transform.conjunction}' is not in the vocabulary of '{self.mission}'; "
                            f"known are: {' '.join(vocabulary[1:])}")  # fmt: skip
        self.conjunction = vocabulary.index(transform.conjunction)

    def __call__(self, batch: Batch, drawn: Drawn, rng: Rng) -> Batch:
        rng = rng.fold("either order")  # results depend on this label: never change it
        return self.apply(batch, rng.uniform((batch.num_scenes,)) < 0.5)

    def apply(self, batch: Batch, exchanged: Tensor) -> Batch:
        """In the scenes `exchanged`, bool [M]."""
        words = batch.scene[self.mission]  # [M, N], 0 behind the end
        joins, place = words == self.conjunction, torch.arange(words.shape[1], device=words.device)
        middle, end = joins.int().argmax(1, keepdim=True), (words != 0).sum(1, keepdim=True)
        second = end - middle - 1  # so many words come first then
        source = torch.where(place < second, place + middle + 1, place - second - 1)
        source = torch.where(place == second, middle, source)
        applies = (exchanged & (joins.sum(1) == 1))[:, None] & (place < end)
        words = torch.where(applies, words.gather(1, source.clamp(0, words.shape[1] - 1)), words)
        return replace(batch, scene=Observations({**batch.scene.fields, self.mission: words}))
