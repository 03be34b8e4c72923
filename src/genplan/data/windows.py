"""Episode -> Window -> PlanBatch: training batches straight from contiguous tensors, with no Python per item.

A window is `horizon` steps of one episode, from any of its time steps on, with `context` steps of its past. Positions
behind the end are padding: `valid` is False there, and no token stands for it. Windows are drawn from all time steps of
all episodes, uniformly or in haste: the more often, the sooner the demonstrator got from there to the next goal. Where
two ways were demonstrated, the shorter one then counts more. Several windows can share one map (`per_map`), so that an
encoder runs once for all: a step is drawn, and its companions in the same way among the steps that see the very same
map and mission, which leaves every window's own chance as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genplan.data.clutter import Clutter
from genplan.data.symmetry import Painter, Symmetries
from genplan.data.tokens import PlanSpec
from genplan.errors import DataError
from genplan.flow import Rng
from genplan.types import Episode

TARGET = ("target",)


class Past(NamedTuple):
    """What lies behind B windows over M maps: their last C steps; and their trail, the set of states visited before,
    with what was tried before in this one.

    A set and not a sequence: nobody who knows it can do as before merely because it was done before, and standing still
    or going to and fro adds nothing to it.
    """

    states: Tensor  # [B, C], the nearest last
    actions: Tensor  # [B, C]
    valid: Tensor  # bool [B, C]: False before the episode's first step
    same_map: Tensor | None = None  # bool [B, C]: whether the map looked then as it does now; known in training
    same_goals: Tensor | None = None  # bool [B, C]: whether the same goals were ahead as are now; known in training
    trail: Tensor | None = (
        None  # [M, L]: states visited by the episode that a map is from; None if nobody asks, or L = 0
    )
    visited: Tensor | None = None  # bool [B, L]: which of them lie behind a window (its own first state is left out)
    tried: Tensor | None = None  # [B, actions]: how often done in this state before, since map and features changed


@dataclass(frozen=True)
class PlanBatch:
    """B windows over M maps, in tokens."""

    sizes: dict[str, int]  # the vocabulary of each stream
    x_1: dict[str, Tensor]  # states [B, H], goals [B, H, G], actions [B, H]
    valid: dict[str, Tensor]  # bool, shaped as x_1
    given: dict[str, Tensor]  # bool: the current state
    map_row: Tensor  # [B], which map a window is in
    map: Tensor | None  # uint8 [M, W, H, C]
    mission: Tensor | None  # int64 [M, L]
    features: Tensor | None  # int64 [B, F]
    past: Past

    def __len__(self) -> int:
        return len(self.map_row)

    @property
    def num_maps(self) -> int:
        """M: windows stand in the order of their maps."""
        return int(self.map_row[-1]) + 1


class Windows:
    """All windows of a set of episodes, ready to be drawn."""

    def __init__(
        self,
        spec: PlanSpec,
        episodes: Sequence[Episode],
        horizon: int,
        context: int = 0,
        goal_kinds: Sequence[str] = TARGET,
        trail: bool = False,
        haste: float = 0.0,
    ) -> None:
        """haste  draw a window n steps before the next goal in proportion to n ** −haste"""
        if horizon < 1:
            raise ValueError(f"horizon is {horizon}, expected at least 1")
        if context < 0:
            raise ValueError(f"context is {context}, expected at least 0")
        if not episodes:
            raise DataError("windows of 0 episodes, expected at least 1")
        self.spec, self.horizon, self.context = spec, horizon, context
        self.symmetries = Symmetries.of(spec)
        self.painter = None if spec.palette is None or spec.map_shape is None else Painter(spec, spec.palette)
        lengths = np.array([len(episode) + 1 for episode in episodes])  # rows: one per state
        ends = np.cumsum(lengths)
        self.first = torch.from_numpy(np.repeat(ends - lengths, lengths))  # [N] first and last row of a row's episode
        self.last = torch.from_numpy(np.repeat(ends - 1, lengths))
        self.states = torch.from_numpy(np.concatenate([episode.states for episode in episodes]))
        self.actions = torch.from_numpy(np.concatenate([np.r_[episode.actions, 0] for episode in episodes]))
        goals, known = zip(*(goal_tokens(episode, spec, goal_kinds) for episode in episodes), strict=True)
        self.goals, self.goals_known = torch.from_numpy(np.concatenate(goals)), torch.from_numpy(np.concatenate(known))
        self.features = None
        if spec.features:
            self.features = torch.from_numpy(
                np.concatenate([np.asarray(e.features) for e in episodes]).astype(np.int64)
            )
        self.starts = torch.nonzero(torch.arange(len(self.states)) < self.last).squeeze(-1)  # rows with an action
        self.map_of = self._index_maps(episodes)
        self._sort_starts(steps_left(episodes, goal_kinds)[self.starts].double() ** -haste)
        self.trails = Trails(self.states, self.first) if trail else None
        self.tried = self._tried() if trail else None

    def _index_maps(self, episodes: Sequence[Episode]) -> Tensor:
        """Number the distinct (map, mission) pairs: [N], which of them each row sees."""
        maps: list[NDArray[np.uint8]] = []
        missions: list[NDArray[np.int64]] = []
        rows: list[int] = []
        for episode in episodes:
            tokens = self.spec.encode_mission(episode.mission if self.spec.words else "")
            seen: dict[bytes, int] = {}
            for step in range(len(episode) + 1):
                picture = b"" if episode.maps is None else episode.maps[step].tobytes()
                if picture not in seen:
                    seen[picture] = len(missions)
                    missions.append(tokens)
                    if episode.maps is not None:
                        maps.append(episode.maps[step])
                rows.append(seen[picture])
        self.maps = torch.from_numpy(np.stack(maps)) if maps else None  # [K, W, H, C]
        self.missions = torch.from_numpy(np.stack(missions)) if self.spec.words else None  # [K, L]
        return torch.tensor(rows)

    def _sort_starts(self, weights: Tensor) -> None:
        """By the map that they see, so that windows of one map can be drawn together; with their chances."""
        order = torch.argsort(self.map_of[self.starts], stable=True)
        self.by_map = self.starts[order]
        size = torch.bincount(self.map_of[self.starts], minlength=int(self.map_of.max()) + 1)
        self.group_end = size.cumsum(0)
        self.group_start = self.group_end - size
        self.chance = torch.cat([weights.new_zeros(1), weights[order].cumsum(0)])  # [starts + 1], cumulative

    def choose(self, number: int, per_map: int, rng: Rng) -> Tensor:
        """Rows at which windows start, [number, per_map]: by their weights, those of a line in one map."""
        among = torch.zeros(number, 1, dtype=torch.int64), torch.full((number, 1), len(self.by_map))
        rows = self._draw(rng.fold("windows").uniform((number, 1), torch.float64), *among)
        if per_map == 1:
            return rows
        kinds = self.map_of[rows]
        u = rng.fold("companions").uniform((number, per_map - 1), torch.float64)
        return torch.cat([rows, self._draw(u, self.group_start[kinds], self.group_end[kinds])], 1)

    def _draw(self, u: Tensor, first: Tensor, end: Tensor) -> Tensor:
        """For each uniform number one row, by weight, of those from `first` to before `end` in `by_map`."""
        low, high = self.chance[first], self.chance[end]
        place = torch.searchsorted(self.chance, low + u * (high - low), right=True) - 1
        return self.by_map[torch.minimum(place, end - 1)]  # rounding may reach the end

    def _tried(self) -> Tensor:
        """[N, actions]: how often each had been done before in a row's state, since the map or the features changed."""
        tried = np.zeros((len(self.states), self.spec.num_actions), np.int64)
        features = [[]] * len(self.states) if self.features is None else self.features.tolist()
        before: dict[int, NDArray[np.int64]] = {}
        around = None
        rows = zip(self.map_of.tolist(), features, self.states.tolist(), self.actions.tolist(), strict=True)
        for row, (*now, state, action) in enumerate(rows):
            if now != around:  # a map belongs to one episode: another episode is another map
                around, before = now, {}
            done = before.setdefault(state, np.zeros(self.spec.num_actions, np.int64))
            tried[row] = done
            done[action] += 1
        return torch.from_numpy(tried)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def clutter(self) -> Clutter:
        assert self.maps is not None
        _, episode = torch.unique(self.first, return_inverse=True)  # [N]
        ways = torch.zeros(int(episode[-1]) + 1, self.spec.num_cells, dtype=torch.bool)
        aims = torch.zeros_like(ways)
        ways[episode, self.states // self.spec.num_headings] = True
        if self.spec.num_goals:
            row, place = self.goals_known.nonzero(as_tuple=True)
            aims[episode[row], self.goals[row, place]] = True
        of_map = torch.zeros(len(self.maps), dtype=torch.int64).scatter(0, self.map_of, episode)
        sizes, width = self.spec.map_channels, self.maps.shape[1]
        return Clutter(cells_of(self.maps), of_map, ways, aims, sizes, width)

    def draw(
        self,
        size: int,
        rng: Rng,
        per_map: int = 1,
        augment: bool = True,
        recolour: bool = False,
        clutter: int = 0,
    ) -> PlanBatch:
        """A batch of `size` windows, `per_map` in each map; `rng` has no batch axes.

        augment   turn and reflect maps at random
        recolour  paint maps, and what missions say of them, in other colours
        clutter   put up to so many things of other maps, and walls, off the way, and strange things anywhere
        """
        if size < 1 or per_map < 1 or size % per_map:
            raise ValueError(f"a batch of {size} with {per_map} per map, expected a positive multiple of {per_map}")
        number = size // per_map
        rows = self.choose(number, per_map, rng)
        symmetry = None
        if augment and len(self.symmetries) > 1:
            symmetry = rng.fold("symmetry").integers(len(self.symmetries), (number,))
        map_row = torch.arange(number).repeat_interleave(per_map)
        kinds = self.map_of[rows[:, 0]]
        maps = None if self.maps is None else self.maps[kinds]
        if maps is not None and clutter:
            put = self.clutter.put(cells_of(maps), kinds, clutter, rng.fold("clutter"))
            maps = as_maps(put, maps.shape)
        batch = self.batch(rows.reshape(-1), kinds, map_row, symmetry, maps)
        if not recolour or self.painter is None:
            return batch
        order = self.painter.orders(number, rng.fold("colours"))
        return replace(
            batch,
            map=None if batch.map is None else self.painter.maps(batch.map, order),
            mission=None if batch.mission is None else self.painter.missions(batch.mission, order),
            features=None if batch.features is None else self.painter.features(batch.features, order[batch.map_row]),
        )

    def batch(
        self,
        rows: Tensor,
        kinds: Tensor,
        map_row: Tensor,
        symmetry: Tensor | None = None,
        maps: Tensor | None = None,
    ) -> PlanBatch:
        """The windows that start at `rows` [B], in the maps `kinds` [M], turned by `symmetry` [M].

        maps  what to show instead of those of `kinds`
        """
        ahead = rows[:, None] + torch.arange(self.horizon)
        last, first = self.last[rows, None], self.first[rows, None]
        inside, acting = ahead <= last, ahead < last
        ahead = torch.minimum(ahead, last)
        behind = rows[:, None] + torch.arange(-self.context, 0)
        past_valid = behind >= first
        behind = torch.maximum(behind, first)
        x_1 = {"states": self.states[ahead], "actions": self.actions[ahead]}
        valid = {"states": inside, "actions": acting}
        if self.spec.num_goals:
            x_1["goals"] = self.goals[ahead]
            valid["goals"] = inside[..., None] & self.goals_known[ahead]
        same_map = self.map_of[behind] == self.map_of[rows, None]
        past = Past(self.states[behind], self.actions[behind], past_valid, same_map)
        if self.spec.num_goals:
            past = past._replace(same_goals=(self.goals[behind] == self.goals[rows, None]).all(-1))
        if self.trails is not None and self.tried is not None:
            past = past._replace(**self.trails.behind(rows, len(kinds)), tried=self.tried[rows])
        if maps is None and self.maps is not None:
            maps = self.maps[kinds]
        missions = None if self.missions is None else self.missions[kinds]
        if symmetry is not None:
            turn = symmetry[map_row]  # [B]
            tables = self.symmetries
            x_1["states"] = tables.states[turn[:, None], x_1["states"]]
            x_1["actions"] = tables.actions[turn[:, None], x_1["actions"]]
            past = past._replace(
                states=tables.states[turn[:, None], past.states],
                actions=tables.actions[turn[:, None], past.actions],
                trail=None if past.trail is None else tables.states[symmetry[:, None], past.trail],
            )
            if past.tried is not None:
                turned = torch.zeros_like(past.tried).scatter(1, tables.actions[turn], past.tried)
                past = past._replace(tried=turned)
            if self.spec.num_goals:
                x_1["goals"] = tables.cells[turn[:, None, None], x_1["goals"]]
            if maps is not None:
                maps = turn_maps(maps, tables.sources[symmetry])
            if missions is not None:
                missions = tables.words[symmetry[:, None], missions]
        given = torch.zeros_like(inside)
        given[:, 0] = True
        return PlanBatch(
            sizes=self.spec.sizes,
            x_1=x_1,
            valid=valid,
            given={"states": given},
            map_row=map_row,
            map=maps,
            mission=missions,
            features=None if self.features is None else self.features[rows],
            past=past,
        )


class Mixture:
    """Windows of several worlds: every batch is from one of them, each as often as any other."""

    def __init__(self, worlds: Sequence[Windows]) -> None:
        self.worlds = worlds

    def draw(self, size: int, rng: Rng, per_map: int = 1, **how: Any) -> PlanBatch:
        """As by `Windows.draw`, in one of the worlds."""
        world = int(rng.fold("world").integers(len(self.worlds)))
        return self.worlds[world].draw(size, rng, per_map, **how)


class Trails:
    """The distinct states of every episode in the order of first visits: a window's trail is a beginning of it."""

    def __init__(self, states: Tensor, first: Tensor) -> None:
        """states [N] of all episodes' rows; first [N], the first row of a row's episode."""
        self.states, self.first = states, first
        seen: dict[tuple[int, int], int] = {}
        for row, visit in enumerate(zip(first.tolist(), states.tolist(), strict=True)):
            seen.setdefault(visit, row)
        self.visits = torch.tensor(sorted(seen.values()))  # rows at which a state is first visited, in turn
        self.before = torch.searchsorted(self.visits, torch.arange(len(states)))  # [N]: visits in earlier rows

    def behind(self, rows: Tensor, number: int) -> dict[str, Tensor]:
        """The trails of windows that start at `rows` [B]: equally many for each of `number` maps, in turn."""
        begin = self.before[self.first[rows.reshape(number, -1)[:, 0]]]  # [M]: a map belongs to one episode
        passed = self.before[rows] - begin.repeat_interleave(len(rows) // number)  # [B]
        length = int(passed.max())
        if not length:
            return {}
        index = begin[:, None] + torch.arange(length)
        trail = self.states[self.visits[index.clamp(max=len(self.visits) - 1)]]
        visited = torch.arange(length) < passed[:, None]
        visited &= trail.repeat_interleave(len(rows) // number, 0) != self.states[rows, None]
        return {"trail": trail, "visited": visited}


def turn_maps(maps: Tensor, sources: Tensor) -> Tensor:
    """Move the cells of maps [M, W, H, C]; `sources` [M, cells] tells which old cell each new one shows."""
    moved = cells_of(maps).gather(1, sources[..., None].expand(-1, -1, maps.shape[-1]))
    return as_maps(moved, maps.shape)


def cells_of(maps: Tensor) -> Tensor:
    """Maps [M, W, H, C] as lists in the order of cells, [M, W · H, C]."""
    return maps.transpose(1, 2).flatten(1, 2)


def as_maps(cells: Tensor, shape: torch.Size) -> Tensor:
    """The reverse of `cells_of`."""
    number, width, height, channels = shape
    return cells.reshape(number, height, width, channels).transpose(1, 2)


def steps_left(episodes: Sequence[Episode], kinds: Sequence[str] = TARGET) -> Tensor:
    """Per row of all episodes, the steps to the next sub-goal, or to the end; at least 1, [N]."""
    parts = []
    for episode in episodes:
        reached = np.array(sorted(goal.step + 1 for goal in episode.subgoals if goal.kind in kinds), np.int64)
        ends = np.r_[reached, len(episode)]
        rows = np.arange(len(episode) + 1)
        parts.append(np.maximum(ends[np.minimum(np.searchsorted(ends, rows, side="right"), len(ends) - 1)] - rows, 1))
    return torch.from_numpy(np.concatenate(parts))


def goal_tokens(
    episode: Episode, spec: PlanSpec, kinds: Sequence[str] = TARGET
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Per state, the next `num_goals` sub-goals still to be reached, in order: tokens and whether known, [T + 1, G].

    Where fewer are left, the last one stands again: it is where the rest of the plan leads.
    """
    rows = len(episode) + 1
    tokens = np.zeros((rows, spec.num_goals), np.int64)
    known = np.zeros((rows, spec.num_goals), bool)
    wanted = [goal for goal in episode.subgoals if goal.kind in kinds]
    for row in range(rows if wanted else 0):
        left = [goal.token for goal in wanted if goal.step >= row] or [wanted[-1].token]
        for place in range(spec.num_goals):
            tokens[row, place] = left[min(place, len(left) - 1)]
        known[row] = True
    return tokens, known


def held_out(episodes: Sequence[Episode], share: float = 0.05) -> tuple[list[Episode], list[Episode]]:
    """Training and validation episodes, split by their order: the same for the same dataset."""
    every = max(round(1 / share), 2)
    train = [episode for number, episode in enumerate(episodes) if number % every]
    return (train or list(episodes)), list(episodes[::every])
