"""Stitch: two demonstrations that share a state can be spliced there.

The first part of one demonstration and the last part of another form a path to the second one's goal, with turns that
neither has. Spliced at the end of the first, the path reaches both goals in turn, and its mission joins theirs by a
word. Only demonstrations whose grids are equal but for the goal objects are spliced, so every step of the result was
recorded in one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
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
        if not isinstance(self.num_episodes, int) or not 1 <= self.num_episodes <= 10**5:
            raise UserError(f"num_episodes is {self.num_episodes}, expected a whole number from 1 to {10**5}")

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
        """Results depend on the order in which numbers are drawn from `rng`: never change it."""
        if made := Stitcher(spec, episodes, self.conjunction).make(self.num_episodes, rng):
            return made
        raise UserError(
            f"{self.num_episodes} episodes are to be stitched, and of the {len(episodes)} demonstrations no two pass "
            "through one state in rooms that look alike; train without the transform 'stitch'"
        )


class Demo(NamedTuple):
    """A demonstration that leads to one object, in a room where nothing ever changes."""

    episode: Episode
    states: list[int]
    goal: int  # the cell of the goal object
    background: NDArray[np.uint8]  # the grid without that object
    layout: bytes  # equal in rooms that look alike


class Segment(NamedTuple):
    """How one object was reached: the demonstration that it ends with, and the steps."""

    last: Demo
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
        self.demos = [demo for episode in episodes if (demo := self._demo(episode)) is not None]
        self.timesteps: dict[tuple[bytes, int], list[tuple[Demo, int]]] = {}  # by layout and state, but for last ones
        for demo in self.demos:
            for step, state in enumerate(demo.states[:-1]):
                self.timesteps.setdefault((demo.layout, state), []).append((demo, step))

    def _demo(self, episode: Episode) -> Demo | None:
        """None unless it leads to one object, and nothing ever changed."""
        constant = [episode.observations[name] for name in (self.grid, *self.others)]
        if [goal.type for goal in episode.subgoals] != list(TARGET) or any((one != one[0]).any() for one in constant):
            return None
        states = episode.observations[self.state].tolist()
        goal = episode.subgoals[-1].token // (1 if self.spec.goals is None else self.spec.goals.directions)
        background = constant[0][0].copy()
        start = self.geometry.position(states[0] // self.geometry.directions)
        background[self.geometry.position(goal)] = background[start]
        layout = b"".join([background.tobytes(), *(one[0].tobytes() for one in constant[1:])])
        return Demo(episode, states, goal, background, layout)

    def make(self, number: int, rng: np.random.Generator) -> list[Episode]:
        """So many stitched demonstrations, or fewer where there is little to stitch."""
        made: list[Episode] = []
        for index in range(number if self.demos else 0):
            num_goals = 1 + (0 if self.conjunction is None else index % 2)
            tries = (self._propose(num_goals, rng) for _ in range(MAX_TRIES))
            if (stitched := next((one for one in tries if one is not None), None)) is not None:
                made.append(stitched)
        return made

    def _propose(self, num_goals: int, rng: np.random.Generator) -> Episode | None:
        """One that begins as a random demonstration does; None if it comes to nothing."""
        first = self.demos[rng.integers(len(self.demos))]
        segments = [self._segment(first, 0, int(rng.integers(num_goals == 1, MAX_SPLICES + 1)), rng)]
        while len(segments) < num_goals:
            then = self._matching_timestep(segments[-1].last, segments[-1].states[-1], rng)
            if then is None:
                return None
            segments.append(self._segment(*then, int(rng.integers(MAX_SPLICES + 1)), rng))
        if num_goals == 1 and segments[0].last is first:  # nothing but a demonstration, or a detour of one
            return None
        return self._to_episode(segments, rng) if self._is_plausible(segments) else None

    def _segment(self, current: Demo, step: int, num_splices: int, rng: np.random.Generator) -> Segment:
        """On from a step of one demonstration, going over to others now and then, to the end of the last."""
        states: list[int] = []
        actions: list[Any] = []
        for _ in range(num_splices):
            if len(current.episode) - step < 2:
                break
            over = int(rng.integers(step + 1, len(current.episode)))
            if (other := self._matching_timestep(current, current.states[over], rng)) is None:
                continue
            states += current.states[step:over]
            actions += current.episode.actions[step:over].tolist()
            current, step = other
        return Segment(current, states + current.states[step:], actions + current.episode.actions[step:].tolist())

    def _matching_timestep(self, current: Demo, state: int, rng: np.random.Generator) -> tuple[Demo, int] | None:
        """A step of some other demonstration in this state, before its end."""
        matching = [one for one in self.timesteps.get((current.layout, state), []) if one[0] is not current]
        return matching[rng.integers(len(matching))] if matching else None

    def _is_plausible(self, segments: Sequence[Segment]) -> bool:
        goals = [segment.last.goal for segment in segments]
        ways = [  # cells in turn, each as often as it was entered
            [cell for cell, _ in groupby(state // self.geometry.directions for state in segment.states)]
            for segment in segments
        ]
        for segment, way, goal in zip(segments, ways, goals, strict=True):
            # A way comes back to or beside itself, as no demonstrator would have gone.
            if len(set(segment.states)) < len(segment.states) or np.triu(self._near([*way, goal]), 2).any():
                return False
        if not set(goals).isdisjoint(chain(*ways)):
            return False
        if len(segments) == 1:
            return True
        # The second object must not have been reached on the way to the first, nor look like it.
        first, second = (self._goal_object(segment.last) for segment in segments)
        return bool((first != second).any() and not self._near([*ways[0], *goals])[-1, :-1].any())

    def _near(self, cells: Sequence[int]) -> NDArray[np.bool_]:
        """[n, n]: which are the same, or side by side."""
        y, x = np.divmod(np.array(cells), self.geometry.width)
        near: NDArray[np.bool_] = np.abs(x[:, None] - x) + np.abs(y[:, None] - y) <= 1
        return near

    def _goal_object(self, demo: Demo) -> NDArray[np.uint8]:
        return np.asarray(demo.episode.observations[self.grid][0][self.geometry.position(demo.goal)])

    def _to_episode(self, segments: Sequence[Segment], rng: np.random.Generator) -> Episode | None:
        """As one demonstration; None if its mission has more words than can be said."""
        sources = [segment.last.episode for segment in segments]
        grid = segments[0].last.background.copy()
        subgoals = []
        states: list[int] = []
        actions: list[Any] = []
        for segment, source in zip(segments, sources, strict=True):
            grid[self.geometry.position(segment.last.goal)] = self._goal_object(segment.last)
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
        padding = len(missions[0]) - len(words)
        return None if padding < 0 else np.pad(words, (0, padding))
