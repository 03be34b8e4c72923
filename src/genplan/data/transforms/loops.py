"""Erase loops: demonstrations without what was walked for nothing.

A demonstrator that searches comes back to where it was. Between two visits of one cell nothing was gained if no
sub-goal was reached, nothing was picked up or put down, and nothing that was changed meanwhile is stood on or faced
later: the loop is left out, and its changes with it. Where the directions of the two visits differ, turns stand in its
place. What turns is learnt from the demonstrations: the action that was followed by it most often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genplan.data.transforms.grids import require_grid
from genplan.errors import UserError
from genplan.spec import Geometry, PlanSpec
from genplan.types import Episode

AHEAD = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
DIRECTIONS = 4


class Kept(NamedTuple):
    """A step of an episode without loops."""

    source: int  # the recorded step at which it begins
    state: int
    action: int
    is_new: bool  # stands for a loop


@dataclass(frozen=True)
class EraseLoops:
    """Puts episodes without their loops in the place of the episodes."""

    name: ClassVar[str] = "erase_loops"
    replaces: ClassVar[bool] = True

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        state, grid, geometry = require_grid(spec, self.name)
        if geometry.directions != DIRECTIONS or spec.actions.n is None:
            raise UserError(f"the transform '{self.name}' needs states of 4 directions and discrete actions, found "
                            f"{geometry.directions} directions and the actions {spec.actions}")  # fmt: skip
        turns = demonstrated_turns(state, grid, episodes)
        return [LoopEraser(one, state, grid, geometry, turns).erased() for one in episodes]


def demonstrated_turns(state: str, grid: str, episodes: Sequence[Episode]) -> dict[int, int]:
    """By how many right angles one turns -> the action that does it."""
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for episode in episodes:
        states, grids = episode.observations[state].astype(np.int64), episode.observations[grid]
        turn = np.diff(states) % DIRECTIONS
        pure = (np.diff(states // DIRECTIONS) == 0) & (turn > 0) & (grids[1:] == grids[:-1]).all((1, 2, 3))
        for by, action in zip(turn[pure].tolist(), episode.actions[pure].tolist(), strict=True):
            found[by][action] += 1
    return {by: counts.most_common(1)[0][0] for by, counts in found.items()}


class LoopEraser:
    """One episode, and what it changes when."""

    def __init__(self, episode: Episode, state: str, grid: str, geometry: Geometry, turns: Mapping[int, int]) -> None:
        self.episode, self.state, self.grid, self.turns = episode, state, grid, turns
        self.states = episode.observations[state].astype(np.int64)
        self.cells = self.states // DIRECTIONS
        places = np.stack([self.cells % geometry.width, self.cells // geometry.width], 1)
        x, y = (places + AHEAD[self.states % DIRECTIONS]).T
        self.ahead = x + geometry.width * y
        grids = episode.observations[grid]
        differs = (grids[1:] != grids[:-1]).any(-1).transpose(0, 2, 1).reshape(len(episode), -1)  # [T, cells]
        self.changed = [set(np.nonzero(row)[0].tolist()) for row in differs]
        others = [one for name, one in episode.observations.items() if name not in (state, grid)]
        gained = np.zeros(len(episode), bool)
        for one in others:
            gained |= (one[1:] != one[:-1]).reshape(len(episode), -1).any(1)
        gained[[one.step for one in episode.subgoals]] = True
        self.gains = np.nonzero(gained)[0]

    def erased(self) -> Episode:
        """The same episode if it has no loops."""
        kept: list[Kept] = []
        now = 0
        while now < len(self.episode):
            end, instead = self._loop(now)
            if end is None:
                kept.append(Kept(now, int(self.states[now]), int(self.episode.actions[now]), False))
                now += 1
            else:
                kept += [Kept(now, state, action, True) for state, action in instead]
                now = end
        return self.episode if len(kept) == len(self.episode) else self._rebuilt(kept)

    def _loop(self, now: int) -> tuple[int | None, list[tuple[int, int]]]:
        """The end of the longest loop that begins now, and the (state, action) in its place; None: there is none."""
        next_gain = self.gains[self.gains >= now]
        limit = int(next_gain[0]) if len(next_gain) else len(self.episode)
        for end in range(limit, now + 1, -1):
            if self.cells[end] != self.cells[now]:
                continue
            instead = self._turning(int(self.states[now]), int(self.states[end]))
            if instead is None or len(instead) >= end - now:
                continue
            changed = set[int]().union(*self.changed[now:end])
            used = {*self.cells[end:].tolist(), *self.ahead[end:].tolist()} if changed else set[int]()
            if not changed & used:
                return end, instead
        return None, []

    def _turning(self, state: int, wanted: int) -> list[tuple[int, int]] | None:
        """(state, action) of the fewest demonstrated turns between two states of a cell."""
        ways = [(), *((one,) for one in self.turns), *((one, two) for one in self.turns for two in self.turns)]
        way = next((way for way in ways if sum(way) % DIRECTIONS == (wanted - state) % DIRECTIONS), None)
        if way is None:
            return None
        cell, starts = state // DIRECTIONS, [state + sum(way[:number]) for number in range(len(way))]
        return [(cell * DIRECTIONS + start % DIRECTIONS, self.turns[by]) for start, by in zip(starts, way, strict=True)]

    def _rebuilt(self, kept: Sequence[Kept]) -> Episode:
        """The steps that are kept, on a grid where only these changed anything."""
        old, sources = self.episode, np.array([*(one.source for one in kept), len(self.episode)])
        observations: dict[str, NDArray[Any]] = {name: one[sources] for name, one in old.observations.items()}
        states = np.array([*(one.state for one in kept), self.states[-1]])
        observations[self.state] = states.astype(old.observations[self.state].dtype)
        grids = old.observations[self.grid]
        current, shown = grids[0].copy(), [grids[0]]
        for one in kept:
            cells = [] if one.is_new else sorted(self.changed[one.source])
            x, y = (
                np.array([(cell % current.shape[0], cell // current.shape[0]) for cell in cells], int).reshape(-1, 2).T
            )
            current[x, y] = grids[one.source + 1][x, y]
            shown.append(current.copy())
        observations[self.grid] = np.stack(shown)
        new = np.array([one.is_new for one in kept])
        steps = {one.source: number for number, one in enumerate(kept) if not one.is_new}
        return replace(
            old,
            observations=observations,
            actions=np.array([one.action for one in kept], old.actions.dtype),
            rewards=np.where(new, np.nan, old.rewards[sources[:-1]]),  # what such a step gives was not seen
            terminations=old.terminations[sources[:-1]] & ~new,
            truncations=old.truncations[sources[:-1]] & ~new,
            infos={},
            subgoals=tuple(one._replace(step=steps[one.step]) for one in old.subgoals),
        )
