"""Stitch: demonstrations that pass through the same state are parts of longer ones that nobody has recorded yet.

Who was at a place on the way to one object could have gone on from there as somebody else did, to another object. So
ways with bends arise from straight ones; and where a way goes on from the very end of another, both goals are reached,
one after the other, as a mission says that joins the two by a word. All of this happened, step by step, in one of the
demonstrations: only ways in rooms that look alike, but for the goal object, are stitched, and no step is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genplan.data.transforms.grids import require_grid
from genplan.data.windows import TARGET
from genplan.errors import UserError
from genplan.spec import PlanSpec
from genplan.types import Episode, SubGoal

MAX_SPLICES = 3  # on the way to one object
MAX_TRIES = 100  # per stitched demonstration


@dataclass(frozen=True)
class Stitch:
    """Makes longer demonstrations of those that can be stitched; the others are left alone."""

    name: ClassVar[str] = "stitch"
    num_episodes: int  # fewer are made where there is little to stitch
    conjunction: str = ""  # joins the missions to two objects; without one, every stitched way leads to one object

    def __post_init__(self) -> None:
        if not isinstance(self.num_episodes, int) or self.num_episodes < 1:
            raise UserError(f"num_episodes is {self.num_episodes}, expected a whole number of at least 1")

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        """Results depend on the order in which numbers are drawn from `rng`: never change it."""
        stitcher = Stitcher(spec, episodes, self.conjunction)
        if made := stitcher.make(self.num_episodes, rng):
            return made
        raise UserError(
            f"{self.num_episodes} episodes are to be stitched, and of the {len(episodes)} demonstrations no two pass "
            "through one state in rooms that look alike; train without the transform 'stitch'"
        )


class Timestep(NamedTuple):
    episode: int
    step: int


class Segment(NamedTuple):
    """How one object was reached: the demonstration that it ends with, and the steps."""

    last: int
    states: list[int]  # one more than actions
    actions: list[Any]


class Stitcher:
    def __init__(self, spec: PlanSpec, episodes: Sequence[Episode], conjunction: str = "") -> None:
        self.state, self.grid, self.geometry = require_grid(spec, Stitch.name)
        self.spec, self.mission = spec, spec.words_field
        vocabulary = () if self.mission is None else spec.fields[self.mission].vocabulary
        if conjunction and conjunction not in vocabulary:
            raise UserError(f"missions cannot be joined by '{conjunction}': it is not among their words")
        self.conjunction = vocabulary.index(conjunction) if conjunction else None
        self.others = [name for name in spec.fields if name not in (self.state, self.grid, self.mission)]
        self.episodes: list[Episode] = []
        self.backgrounds: list[NDArray[np.uint8]] = []  # each one's grid, without the goal object
        self.layout_keys: list[bytes] = []  # equal where nothing else differs
        self.timesteps: dict[tuple[bytes, int], list[Timestep]] = {}  # of a state, in rooms that look alike
        for episode in episodes:
            if (background := self._background(episode)) is not None:
                number = len(self.episodes)
                others = [episode.observations[name][0].tobytes() for name in self.others]
                self.episodes.append(episode)
                self.backgrounds.append(background)
                self.layout_keys.append(b"".join([background.tobytes(), *others]))
                for step, state in enumerate(episode.observations[self.state][:-1].tolist()):
                    self.timesteps.setdefault((self.layout_keys[-1], state), []).append(Timestep(number, step))

    def _background(self, episode: Episode) -> NDArray[np.uint8] | None:
        """The grid of a demonstration without the goal object; None unless that is one, and nothing ever changed."""
        if [goal.type for goal in episode.subgoals] != list(TARGET):
            return None
        columns = [episode.observations[name] for name in (self.grid, *self.others)]
        if any((column != column[0]).any() for column in columns):
            return None
        background: NDArray[np.uint8] = episode.observations[self.grid][0].copy()
        start = int(episode.observations[self.state][0]) // self.geometry.directions
        background[self.geometry.position(self._goal(episode))] = background[self.geometry.position(start)]
        return background

    def make(self, number: int, rng: np.random.Generator) -> list[Episode]:
        """So many stitched demonstrations, or fewer where there is little to stitch."""
        made: list[Episode] = []
        for index in range(number if self.episodes else 0):
            num_goals = 1 + (0 if self.conjunction is None else index % 2)
            tries = (self._propose(num_goals, rng) for _ in range(MAX_TRIES))
            if (stitched := next((one for one in tries if one is not None), None)) is not None:
                made.append(stitched)
        return made

    def _propose(self, num_goals: int, rng: np.random.Generator) -> Episode | None:
        """One that begins as a random demonstration does; None if it comes to nothing."""
        first = int(rng.integers(len(self.episodes)))
        segments = [self._segment(Timestep(first, 0), int(rng.integers(num_goals == 1, MAX_SPLICES + 1)), rng)]
        while len(segments) < num_goals:
            then = self._matching_timestep(segments[-1].last, segments[-1].states[-1], rng)
            if then is None:
                return None
            segments.append(self._segment(then, int(rng.integers(MAX_SPLICES + 1)), rng))
        if len(segments) == 1 and segments[0].last == first:  # nothing but a demonstration, or a detour of one
            return None
        goals = [self._goal(self.episodes[segment.last]) for segment in segments]
        if any(self._revisits(segment, goal) for segment, goal in zip(segments, goals, strict=True)):
            return None
        visited = {cell for segment in segments for cell in self._cells(segment)}
        if visited & set(goals) or (num_goals > 1 and self._passes_second_goal(segments, goals)):
            return None
        return self._to_episode(segments, goals, rng)

    def _segment(self, begin: Timestep, num_splices: int, rng: np.random.Generator) -> Segment:
        """On from a step of one demonstration, going over to others now and then, to the end of the last."""
        states: list[int] = []
        actions: list[Any] = []
        current, step = begin
        for _ in range(num_splices):
            episode = self.episodes[current]
            if len(episode) - step < 2:
                break
            over = int(rng.integers(step + 1, len(episode)))
            column = episode.observations[self.state]
            if (other := self._matching_timestep(current, int(column[over]), rng)) is None:
                continue
            states += column[step:over].tolist()
            actions += episode.actions[step:over].tolist()
            current, step = other
        episode = self.episodes[current]
        states += episode.observations[self.state][step:].tolist()
        return Segment(current, states, actions + episode.actions[step:].tolist())

    def _matching_timestep(self, current: int, state: int, rng: np.random.Generator) -> Timestep | None:
        """A step of some other demonstration in this state, before its end."""
        known = self.timesteps.get((self.layout_keys[current], state), [])
        matching = [timestep for timestep in known if timestep.episode != current]
        return matching[rng.integers(len(matching))] if matching else None

    def _revisits(self, segment: Segment, goal: int) -> bool:
        """Whether a way comes back to or beside itself, as no demonstrator would have gone."""
        near = self._near([*self._cells(segment), goal])
        return len(set(segment.states)) < len(segment.states) or bool(np.triu(near, 2).any())

    def _passes_second_goal(self, segments: Sequence[Segment], goals: Sequence[int]) -> bool:
        """Whether the second object may have been reached on the way to the first, or both look alike."""
        first, second = (self._goal_type(*both) for both in zip(segments, goals, strict=True))
        return first == second or bool(self._near([*self._cells(segments[0]), *goals])[-1, :-1].any())

    def _cells(self, segment: Segment) -> list[int]:
        """In turn, each as often as it was entered."""
        return [cell for cell, _ in groupby(state // self.geometry.directions for state in segment.states)]

    def _near(self, cells: Sequence[int]) -> NDArray[np.bool_]:
        """[n, n]: which are the same, or side by side."""
        x, y = np.array([self.geometry.position(cell) for cell in cells]).T
        near: NDArray[np.bool_] = np.abs(x[:, None] - x) + np.abs(y[:, None] - y) <= 1
        return near

    def _goal(self, episode: Episode) -> int:
        """The cell of the goal object."""
        goals = self.spec.goals
        return episode.subgoals[-1].token // (1 if goals is None else goals.directions)

    def _goal_type(self, segment: Segment, goal: int) -> tuple[int, ...]:
        grid = self.episodes[segment.last].observations[self.grid][0]
        return tuple(grid[self.geometry.position(goal)].tolist())

    def _to_episode(
        self, segments: Sequence[Segment], goals: Sequence[int], rng: np.random.Generator
    ) -> Episode | None:
        """As one demonstration; None if its mission has more words than can be said."""
        sources = [self.episodes[segment.last] for segment in segments]
        grid = self.backgrounds[segments[0].last].copy()
        subgoals = []
        states: list[int] = []
        actions: list[Any] = []
        for segment, source, goal in zip(segments, sources, goals, strict=True):
            place = self.geometry.position(goal)
            grid[place] = source.observations[self.grid][0][place]
            states[len(actions) :] = segment.states
            actions += segment.actions
            subgoals.append(SubGoal(len(actions) - 1, source.subgoals[-1].token, TARGET[0]))
        reverse = rng.random() < 0.5
        constant = {self.grid: grid, **{name: sources[0].observations[name][0] for name in self.others}}
        if self.mission is not None:
            mission = self._join([one.observations[self.mission][0] for one in sources[:: -1 if reverse else 1]])
            if mission is None:
                return None
            constant[self.mission] = mission
        length = len(actions)
        columns = {name: np.broadcast_to(one, (length + 1, *one.shape)) for name, one in constant.items()}
        columns[self.state] = np.array(states, np.int64)
        ended = np.arange(length) == length - 1
        return Episode(
            observations={name: columns[name] for name in self.spec.fields},
            actions=np.array(actions, self.spec.actions.dtype),
            rewards=np.full(length, np.nan),  # nobody was rewarded for this
            terminations=ended & bool(sources[-1].terminations[-1]),
            truncations=ended & bool(sources[-1].truncations[-1]),
            subgoals=tuple(subgoals),
            success=all(source.success for source in sources),
        )

    def _join(self, missions: Sequence[NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """Missions [max_words] as one; None if it is too long."""
        words = missions[0][missions[0] > 0]
        for mission in missions[1:]:
            words = np.concatenate([words, [self.conjunction], mission[mission > 0]])
        joined = np.zeros_like(missions[0])
        if len(words) > len(joined):
            return None
        joined[: len(words)] = words
        return joined
