"""Symmetry: a demonstration in a grid that is turned or reflected is a demonstration as well.

Everything is a table, so that augmenting a batch is a handful of gathers. Symmetry g = 4 · reflected + turns: first
reflect left to right, then turn by 90° clockwise `turns` times. Directions turn along; under a reflection, left and
right turns swap, and so do the words for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genplan.data.transforms.grids import permute_cells, require_grid
from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Observations


@dataclass(frozen=True)
class Symmetry:
    """Turns and reflects scenes at random: eight ways on a square grid, four on an oblong one."""

    name: ClassVar[str] = "symmetry"
    reflected_actions: tuple[int, ...]  # what each action becomes in a reflected grid
    reflected_words: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reflected_actions", tuple(map(int, self.reflected_actions)))
        object.__setattr__(self, "reflected_words", {str(a): str(b) for a, b in dict(self.reflected_words).items()})

    def bind(self, windows: Windows) -> BoundSymmetry:
        return BoundSymmetry(windows.spec, self)


class BoundSymmetry:
    """Tables [G, …] that map old tokens to new ones; `inverse_cells` maps new cells to old ones, to move grids."""

    def __init__(self, spec: PlanSpec, transform: Symmetry) -> None:
        self.state, _, (width, height, directions) = require_grid(spec, transform.name)
        num_actions, reflected = spec.actions.n or 0, transform.reflected_actions
        if directions != 4:
            raise UserError(f"the transform 'symmetry' needs states of 4 directions, found {directions}")
        if sorted(reflected) != list(range(num_actions)):
            raise UserError(
                f"the transform 'symmetry' has the reflected actions {reflected}, "
                f"expected an order of the {num_actions} actions of the task"
            )
        self.grids = [name for name, one in spec.fields.items() if one.kind == "grid"]
        if odd := [name for name in self.grids if spec.fields[name].shape != (width, height)]:
            raise UserError(f"grid '{odd[0]}' is {spec.fields[odd[0]].shape}, expected {(width, height)} as the others")
        kinds = [(r, t) for r in (False, True) for t in range(4) if width == height or t % 2 == 0]
        cells, states = zip(*(_moved(width, height, *kind) for kind in kinds), strict=True)
        self.cells, self.inverse_cells = _table(cells), _table([np.argsort(cell) for cell in cells])
        self.states = _table(states)
        self.actions = _table([reflected if reflects else range(num_actions) for reflects, _ in kinds])
        self.words: dict[str, Tensor] = {}  # per words field
        for name, one in spec.fields.items():
            if one.kind == "words":
                swapped = [transform.reflected_words.get(word, word) for word in one.vocabulary]
                if unknown := set(swapped) - set(one.vocabulary):
                    word = min(unknown)
                    raise UserError(f"the reflected word '{word}' is not in the vocabulary, expected one that is")
                words = [one.vocabulary.index(word) for word in swapped]
                self.words[name] = _table([words if reflects else range(len(words)) for reflects, _ in kinds])
        self.goals: Tensor | None = None  # goals that stand for no place stay
        if spec.goals is not None and spec.goals.points_at is not None:
            self.goals = self.cells if spec.goals.directions == 1 else self.states

    def __len__(self) -> int:
        return len(self.cells)

    def __call__(self, batch: Batch, drawn: Drawn, rng: Rng) -> Batch:
        rng = rng.fold("symmetry")  # results depend on this label: never change it
        return self.apply(batch, rng.integers(len(self), (batch.num_scenes,)))

    def apply(self, batch: Batch, symmetry: Tensor) -> Batch:
        """By number, one for each scene [M]."""
        each = symmetry.repeat_interleave(batch.windows_per_scene)[:, None]  # [B, 1]
        tokens = {**batch.tokens, "states": self.states[each, batch.tokens["states"]]}
        if self.goals is not None:
            goals = batch.tokens["goals"]
            tokens["goals"] = self.goals[each.reshape(-1, *[1] * (goals.ndim - 1)), goals]
        scene = dict(batch.scene.fields)
        for name in self.grids:
            scene[name] = permute_cells(scene[name], self.inverse_cells[symmetry])
        for name, words in self.words.items():
            scene[name] = words[symmetry[:, None], scene[name]]
        # The current state is the first of the states ahead.
        current = {**batch.current.fields, self.state: tokens["states"][:, 0]}
        return replace(
            batch,
            scene=Observations(scene),
            current=Observations(current),
            history=self._history(batch.history, symmetry, each),
            tokens=tokens,
            actions=self.actions[each, batch.actions],
        )

    def _history(self, history: History, symmetry: Tensor, each: Tensor) -> History:
        visited, counts = history.visited_states, history.action_counts
        steps = {**history.steps.fields, self.state: self.states[each, history.steps[self.state]]}
        if visited is not None:
            visited = self.states[symmetry[:, None], visited]
        if counts is not None:
            counts = torch.zeros_like(counts).scatter(1, self.actions[each.squeeze(1)], counts)
        actions = self.actions[each, history.actions]
        return history._replace(
            steps=Observations(steps), actions=actions, visited_states=visited, action_counts=counts
        )


def _table(rows: object) -> Tensor:
    return torch.from_numpy(np.array(rows, np.int64))


def _moved(width: int, height: int, reflects: bool, turns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each cell and each state goes."""
    y, x = np.divmod(np.arange(width * height), width)  # cell = x + width · y
    direction = np.arange(4)
    if reflects:
        x, direction = width - 1 - x, (2 - direction) % 4
    for _ in range(turns):
        x, y, direction = height - 1 - y, x, (direction + 1) % 4
        width, height = height, width
    cells = x + width * y
    return cells, (cells[:, None] * 4 + direction).ravel()
