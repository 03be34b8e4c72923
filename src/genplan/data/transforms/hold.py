"""HoldLast: recordings end when their task is done; what to do then is to stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genplan.errors import UserError
from genplan.spec import PlanSpec
from genplan.types import Episode


@dataclass(frozen=True)
class HoldLast:
    """Goes on for some steps in which the last action is repeated, and what was observed last stays.

    For actions that are targets: whoever has reached one stays there.
    """

    name: ClassVar[str] = "hold_last"
    replaces: ClassVar[bool] = True  # the episodes that are held take the place of the others
    steps: int

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or not 1 <= self.steps <= 10**4:
            raise UserError(f"the transform '{self.name}' has steps {self.steps!r}, expected 1 to 10000")

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        if spec.actions.n is not None:
            raise UserError(f"the transform '{self.name}' needs continuous actions; train without it")
        return [self._held(episode) for episode in episodes]

    def _held(self, episode: Episode) -> Episode:
        def held(column: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([column, np.repeat(column[-1:], self.steps, 0)])

        return replace(
            episode,
            observations={name: held(column) for name, column in episode.observations.items()},
            actions=held(episode.actions),
            rewards=held(episode.rewards),
            terminations=held(episode.terminations),
            truncations=held(episode.truncations),
            infos={name: held(column) for name, column in episode.infos.items()},
        )
