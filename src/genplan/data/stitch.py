"""Stitching: demonstrations that pass through the same state are parts of longer ones that nobody has walked yet.

Who was at a place on the way to one thing could have gone on from there as somebody else did, to another thing. So
ways with bends arise from straight ones; and where a way goes on from the very end of another, both errands are done,
one after the other, as a mission says that joins the two by a word. All of this happened, step by step, in one of the
demonstrations: only ways in rooms that look alike, but for what was wanted there, are stitched, and no step is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genplan.data.tokens import PlanSpec, split_words
from genplan.data.windows import TARGET
from genplan.errors import UserError
from genplan.types import Episode, SubGoal

BENDS = 3  # at most, on the way to one thing
PATIENCE = 100  # tries per stitched demonstration


class Visit(NamedTuple):
    """A moment of a demonstration."""

    episode: int
    step: int


class Way(NamedTuple):
    """How one thing was reached: the demonstration that it ends with, and the steps."""

    last: int
    states: list[int]  # one more than actions
    actions: list[int]


class Stitcher:
    """Makes longer demonstrations of those that can be stitched; the others are left alone."""

    def __init__(self, spec: PlanSpec, episodes: Sequence[Episode], word: str = "") -> None:
        """word  joins the missions to two things; without one, every stitched way leads to one thing"""
        if word and word not in spec.words:
            raise UserError(f"missions cannot be joined by '{word}': it is not among their words")
        self.spec, self.word = spec, word
        self.episodes: list[Episode] = []
        self.grounds: list[NDArray[np.uint8]] = []  # each one's map, without the thing that was wanted
        self.rooms: list[bytes] = []  # equal where nothing else differs
        self.visits: dict[tuple[bytes, int], list[Visit]] = {}  # of a state, in rooms that look alike
        for episode in episodes:
            if (ground := _ground(spec, episode)) is not None:
                number, carried = len(self.episodes), b"" if episode.features is None else episode.features[0].tobytes()
                self.episodes.append(episode)
                self.grounds.append(ground)
                self.rooms.append(ground.tobytes() + carried)
                for step, state in enumerate(episode.states[:-1].tolist()):
                    self.visits.setdefault((self.rooms[-1], state), []).append(Visit(number, step))

    def make(self, number: int, rng: np.random.Generator) -> list[Episode]:
        """So many stitched demonstrations, or fewer where there is little to stitch."""
        made: list[Episode] = []
        for which in range(number if self.episodes else 0):
            errands = 1 + (which % 2 if self.word else 0)
            tries = (self._try(errands, rng) for _ in range(PATIENCE))
            if (stitched := next((one for one in tries if one is not None), None)) is not None:
                made.append(stitched)
        return made

    def _try(self, errands: int, rng: np.random.Generator) -> Episode | None:
        """One that begins as a random demonstration does; None if it comes to nothing."""
        first = int(rng.integers(len(self.episodes)))
        ways = [self._way(Visit(first, 0), int(rng.integers(errands == 1, BENDS + 1)), rng)]
        while len(ways) < errands:
            then = self._elsewhere(ways[-1].last, ways[-1].states[-1], rng)
            if then is None:
                return None
            ways.append(self._way(then, int(rng.integers(BENDS + 1)), rng))
        if len(ways) == 1 and ways[0].last == first:  # nothing but a demonstration, or a detour of one
            return None
        things = [_thing(self.episodes[way.last]) for way in ways]
        if any(self._turns_back(way, thing) for way, thing in zip(ways, things, strict=True)):
            return None
        walked = {cell for way in ways for cell in self._cells(way)}
        if walked & set(things) or (errands > 1 and self._in_passing(ways, things)):
            return None
        return self._told(ways, things, rng)

    def _way(self, begin: Visit, bends: int, rng: np.random.Generator) -> Way:
        """On from a moment of one demonstration, going over to others now and then, to the end of the last."""
        (current, step), states, actions = begin, [], []
        for _ in range(bends):
            episode = self.episodes[current]
            if len(episode) - step < 2:
                break
            over = int(rng.integers(step + 1, len(episode)))
            if (other := self._elsewhere(current, int(episode.states[over]), rng)) is None:
                continue
            states += episode.states[step:over].tolist()
            actions += episode.actions[step:over].tolist()
            current, step = other
        episode = self.episodes[current]
        return Way(current, states + episode.states[step:].tolist(), actions + episode.actions[step:].tolist())

    def _elsewhere(self, current: int, state: int, rng: np.random.Generator) -> Visit | None:
        """A moment of some other demonstration in this state, before its end."""
        visits = [visit for visit in self.visits.get((self.rooms[current], state), []) if visit.episode != current]
        return visits[rng.integers(len(visits))] if visits else None

    def _turns_back(self, way: Way, thing: int) -> bool:
        """Whether a way comes back to or beside itself: nobody in his senses would have gone so."""
        near = self._near([*self._cells(way), thing])
        return len(set(way.states)) < len(way.states) or bool(np.triu(near, 2).any())

    def _in_passing(self, ways: Sequence[Way], things: Sequence[int]) -> bool:
        """Whether the second thing may have been reached on the way to the first, or both look alike."""
        first, second = (self._look(way, thing) for way, thing in zip(ways, things, strict=True))
        return first == second or bool(self._near([*self._cells(ways[0]), *things])[-1, :-1].any())

    def _cells(self, way: Way) -> list[int]:
        """In turn, each as often as it was entered."""
        return [cell for cell, _ in groupby(state // self.spec.num_headings for state in way.states)]

    def _near(self, cells: Sequence[int]) -> NDArray[np.bool_]:
        """[n, n]: which are the same, or side by side."""
        x, y = np.array([self.spec.position(cell) for cell in cells]).T
        near: NDArray[np.bool_] = np.abs(x[:, None] - x) + np.abs(y[:, None] - y) <= 1
        return near

    def _look(self, way: Way, thing: int) -> tuple[int, ...]:
        return tuple(self._map(way.last)[self.spec.position(thing)].tolist())

    def _map(self, number: int) -> NDArray[np.uint8]:
        maps = self.episodes[number].maps
        assert maps is not None
        picture: NDArray[np.uint8] = maps[0]
        return picture

    def _told(self, ways: Sequence[Way], things: Sequence[int], rng: np.random.Generator) -> Episode | None:
        """As one demonstration; None if its mission has more words than can be said."""
        picture = self.grounds[ways[0].last].copy()
        goals, missions = [], []
        states: list[int] = []
        actions: list[int] = []
        for way, thing in zip(ways, things, strict=True):
            picture[self.spec.position(thing)] = self._map(way.last)[self.spec.position(thing)]
            states[len(actions) :] = way.states
            actions += way.actions
            goals.append(SubGoal(len(actions) - 1, thing, TARGET[0]))
            missions.append(self.episodes[way.last].mission)
        if rng.random() < 0.5:
            missions.reverse()
        mission = f" {self.word} ".join(missions)
        if self.spec.words and len(split_words(mission)) > self.spec.max_words:
            return None
        features = self.episodes[ways[0].last].features
        return Episode(
            states=np.array(states, np.int64),
            actions=np.array(actions, np.int64),
            maps=np.broadcast_to(picture, (len(states), *picture.shape)),
            features=None if features is None else np.broadcast_to(features[0], (len(states), *features.shape[1:])),
            mission=mission,
            subgoals=tuple(goals),
        )


def _thing(episode: Episode) -> int:
    """The cell of what was wanted."""
    return episode.subgoals[-1].token


def _ground(spec: PlanSpec, episode: Episode) -> NDArray[np.uint8] | None:
    """The map of a demonstration without what was wanted; None unless that is one thing, and nothing ever changed."""
    if episode.maps is None or [goal.kind for goal in episode.subgoals] != list(TARGET):
        return None
    if (episode.maps != episode.maps[0]).any():
        return None
    if episode.features is not None and (episode.features != episode.features[0]).any():
        return None
    ground: NDArray[np.uint8] = episode.maps[0].copy()
    ground[spec.position(_thing(episode))] = ground[spec.position(int(episode.states[0]) // spec.num_headings)]
    return ground
