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
from genplan.spec import Field, PlanSpec
from genplan.types import Batch, History, Observations

LABEL = "symmetry"  # of the random draw, which results depend on: never change it


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
        return BoundSymmetry(windows.spec, self.tables(windows.spec))

    def tables(self, spec: PlanSpec) -> SymmetryTables:
        _, _, geometry = require_grid(spec, self.name)
        width, height, directions = geometry
        num_actions, reflected = spec.actions.n or 0, self.reflected_actions
        if directions != 4:
            raise UserError(f"the transform 'symmetry' needs states of 4 directions, found {directions}")
        if sorted(reflected) != list(range(num_actions)):
            raise UserError(
                f"the transform 'symmetry' has the reflected actions {reflected}, "
                f"expected an order of the {num_actions} actions of the task"
            )
        if odd := [name for name, one in spec.fields.items() if one.kind == "grid" and one.shape != (width, height)]:
            raise UserError(f"grid '{odd[0]}' is {spec.fields[odd[0]].shape}, expected {(width, height)} as the others")
        kinds = [(r, t) for r in (False, True) for t in range(4) if width == height or t % 2 == 0]
        cells, states = zip(*(_moved(width, height, *kind) for kind in kinds), strict=True)
        actions = [reflected if reflects else range(num_actions) for reflects, _ in kinds]
        words = {name: _table([self._words(one, reflects) for reflects, _ in kinds])
                 for name, one in spec.fields.items() if one.kind == "words"}  # fmt: skip
        inverse_cells = [np.argsort(cell) for cell in cells]
        return SymmetryTables(_table(cells), _table(inverse_cells), _table(states), _table(actions), words)

    def _words(self, words: Field, reflects: bool) -> list[int]:
        swapped = [self.reflected_words.get(word, word) if reflects else word for word in words.vocabulary]
        if unknown := set(swapped) - set(words.vocabulary):
            raise UserError(f"the reflected word '{min(unknown)}' is not in the vocabulary, expected one that is")
        return [words.vocabulary.index(word) for word in swapped]


@dataclass(frozen=True)
class SymmetryTables:
    """Tables [G, …] that map old tokens to new ones; `inverse_cells` maps new cells to old ones, to move grids."""

    cells: Tensor  # [G, cells]
    inverse_cells: Tensor  # [G, cells]
    states: Tensor  # [G, states]
    actions: Tensor  # [G, actions]
    words: Mapping[str, Tensor]  # [G, vocabulary] per words field

    def __len__(self) -> int:
        return len(self.cells)


def _table(rows: object) -> Tensor:
    return torch.from_numpy(np.array(rows, np.int64))


def _moved(width: int, height: int, reflects: bool, turns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each cell and each state goes."""
    xs, ys = np.meshgrid(np.arange(width), np.arange(height), indexing="xy")
    x, y = xs.ravel(), ys.ravel()  # in the order of cells: x + width · y
    direction = np.arange(4)
    if reflects:
        x, direction = width - 1 - x, (2 - direction) % 4
    for _ in range(turns):
        x, y, direction = height - 1 - y, x, (direction + 1) % 4
        width, height = height, width
    cells = x + width * y
    return cells, (cells[:, None] * 4 + direction).ravel()


class BoundSymmetry:
    def __init__(self, spec: PlanSpec, tables: SymmetryTables) -> None:
        self.tables, self.state = tables, spec.state_field
        self.grids = [name for name, one in spec.fields.items() if one.kind == "grid"]
        goals = spec.goals
        self.goals = None  # goals that stand for no place stay
        if goals is not None and goals.points_at is not None:
            self.goals = tables.cells if goals.directions == 1 else tables.states

    def __call__(self, batch: Batch, drawn: Drawn, rng: Rng) -> Batch:
        return self.apply(batch, rng.fold(LABEL).integers(len(self.tables), (batch.num_scenes,)))

    def apply(self, batch: Batch, symmetry: Tensor) -> Batch:
        """By number, one for each scene [M]."""
        assert self.state is not None
        tables, each = self.tables, symmetry.repeat_interleave(batch.windows_per_scene)[:, None]  # [B, 1]
        tokens = {**batch.tokens, "states": tables.states[each, batch.tokens["states"]]}
        if self.goals is not None:
            goals = batch.tokens["goals"]
            tokens["goals"] = self.goals[each.reshape(-1, *[1] * (goals.ndim - 1)), goals]
        scene = dict(batch.scene.fields)
        for name in self.grids:
            scene[name] = permute_cells(scene[name], tables.inverse_cells[symmetry])
        for name, words in tables.words.items():
            scene[name] = words[symmetry[:, None], scene[name]]
        # The current state is the first of the states ahead.
        current = {**batch.current.fields, self.state: tokens["states"][:, 0]}
        return replace(
            batch,
            scene=Observations(scene),
            current=Observations(current),
            history=self._history(batch.history, symmetry, each),
            tokens=tokens,
            actions=tables.actions[each, batch.actions],
        )

    def _history(self, history: History, symmetry: Tensor, each: Tensor) -> History:
        assert self.state is not None
        tables, visited, counts = self.tables, history.visited_states, history.action_counts
        steps = {**history.steps.fields, self.state: tables.states[each, history.steps[self.state]]}
        actions = tables.actions[each, history.actions]
        if visited is not None:
            visited = tables.states[symmetry[:, None], visited]
        if counts is not None:
            counts = torch.zeros_like(counts).scatter(1, tables.actions[each.squeeze(1)], counts)
        return history._replace(
            steps=Observations(steps), actions=actions, visited_states=visited, action_counts=counts
        )
