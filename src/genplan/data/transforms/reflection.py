"""Reflection: what is seen of a plane and done there, reflected across a diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genplan.errors import UserError
from genplan.spec import PlanSpec
from genplan.types import Episode


@dataclass(frozen=True)
class Reflection:
    """Adds every episode once more, reflected across the line x + y = `size`: (x, y) becomes (size − y, size − x).

    For tasks that are their own mirror image. A vector field holds points of a body, then further points; actions are
    points as well.

    body  where its points are in its own frame. It is symmetric about the axis x = 0, its points need not be: those of
          the reflected body follow from them.
    """

    name: ClassVar[str] = "reflection"
    field: str
    body: tuple[tuple[float, float], ...]
    size: float

    def __post_init__(self) -> None:
        try:
            body = np.asarray(self.body, np.float64)
            fits = body.ndim == 2 and body.shape[1] == 2 and np.linalg.matrix_rank(body - body[0]) == 2
        except (TypeError, ValueError, IndexError):
            fits = False
        if not fits or not np.isfinite(body).all():
            raise UserError(
                f"the transform '{self.name}' has body {self.body!r:.80}, expected points (x, y), not all on one line"
            )
        if isinstance(self.size, bool) or not isinstance(self.size, int | float) or not np.isfinite(self.size):
            raise UserError(f"the transform '{self.name}' has size {self.size!r}, expected a number")
        object.__setattr__(self, "body", tuple(tuple(map(float, point)) for point in body))

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """[N, N]: each point of the reflected body as a sum of the points; rows add up to 1."""
        points = np.c_[np.array(self.body), np.ones(len(self.body))].T
        reflected = points * [[-1], [1], [1]]
        weights: NDArray[np.float64] = (np.linalg.pinv(points) @ reflected).T
        return weights

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        field = spec.fields.get(self.field)
        size = field.shape[0] if field is not None and field.kind == "vector" else 0
        if size < 2 * len(self.body) or size % 2 or spec.actions.shape != (2,):
            raise UserError(
                f"the transform '{self.name}' needs a vector field '{self.field}' of at least {2 * len(self.body)} "
                "numbers, points (x, y), and actions of two; train without it"
            )
        return [self._reflected(episode) for episode in episodes]

    def _reflected(self, episode: Episode) -> Episode:
        seen = episode.observations[self.field]
        points = seen.reshape(len(seen), -1, 2).astype(np.float64)
        points[:, : len(self.body)] = self.weights @ points[:, : len(self.body)]
        observations = {**episode.observations, self.field: self._across(points).reshape(seen.shape).astype(seen.dtype)}
        actions = self._across(episode.actions.astype(np.float64)).astype(episode.actions.dtype)
        return replace(episode, observations=observations, actions=actions)

    def _across(self, points: NDArray[Any]) -> NDArray[Any]:
        return self.size - points[..., ::-1]
