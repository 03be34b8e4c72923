"""PlanSpec: the streams of a plan and what a planner is told, with their sizes; words and their tokens."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genplan.errors import DataError

PAD = "<pad>"
# The whole language of BabyAI, fixed: a vocabulary built on the fly would give unseen words untrained embeddings.
BABYAI_WORDS: tuple[str, ...] = (
    PAD, ",", "a", "after", "and", "ball", "behind", "blue", "box", "door", "front", "go", "green", "grey", "in", "key",
    "left", "next", "object", "of", "on", "open", "pick", "purple", "put", "red", "right", "the", "then", "to", "up",
    "yellow", "you", "your",
)  # fmt: skip


@dataclass(frozen=True)
class Palette:
    """Colours that could as well be others: exchanged everywhere at once, nothing changes but names."""

    words: tuple[str, ...]  # words[i] names colour i
    channel: int  # of the map, where colours stand
    feature: int | None = None  # where the colour of what is carried stands
    kinds: tuple[int, ...] = ()  # values of the first channel (and the feature before) that the colours belong to

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "kinds", tuple(self.kinds))


@dataclass(frozen=True)
class PlanSpec:
    """What a plan is made of, and what a planner is told when it makes one.

    A plan has a state, an action and `num_goals` goals per step. On a map, a state is a cell and a heading,
    `cell · num_headings + heading`, and a goal is a cell, where `cell = x + width · y`. Without a map, states and goals
    are plain numbers.
    """

    num_actions: int
    num_states: int
    num_goals: int = 0  # goal tokens per step
    goal_size: int = 0  # vocabulary of a goal token
    map_shape: tuple[int, int] | None = None  # (width, height)
    map_channels: tuple[int, ...] = ()  # vocabulary of each channel of a cell
    num_headings: int = 1
    features: tuple[int, ...] = ()  # vocabularies of further numbers, such as what is carried
    words: tuple[str, ...] = ()  # vocabulary of missions; the first is padding
    max_words: int = 0
    # How actions, by number, change under a reflection of the map (left and right turns swap); none: no symmetries.
    mirrored_actions: tuple[int, ...] = ()
    mirrored_words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    palette: Palette | None = dataclasses.field(default=None, compare=False)  # for training; no weights depend on it

    def __post_init__(self) -> None:
        for name in ("map_shape", "map_channels", "features", "words", "mirrored_actions"):
            value = getattr(self, name)
            object.__setattr__(self, name, value if value is None else tuple(value))
        if isinstance(self.palette, Mapping):  # from JSON
            object.__setattr__(self, "palette", Palette(**self.palette))
        for name, least in (("num_actions", 2), ("num_states", 2), ("num_goals", 0), ("num_headings", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"PlanSpec: {name} is {getattr(self, name)}, expected at least {least}")
        if self.num_goals and self.goal_size < 2:
            raise ValueError(f"PlanSpec: goal_size is {self.goal_size}, expected at least 2 for {self.num_goals} goals")
        if self.map_shape is not None:
            expected = self.num_cells * self.num_headings
            if self.num_states != expected:
                raise ValueError(
                    f"PlanSpec: num_states is {self.num_states}, expected {expected}: "
                    f"{self.num_cells} cells × {self.num_headings} headings"
                )
            if not self.map_channels:
                raise ValueError("PlanSpec: a map has 0 channels, expected at least 1 in map_channels")
        if self.words and self.max_words < 1:
            raise ValueError(f"PlanSpec: max_words is {self.max_words}, expected at least 1 as there are words")
        if self.mirrored_actions and sorted(self.mirrored_actions) != list(range(self.num_actions)):
            last = self.num_actions - 1
            raise ValueError(f"PlanSpec: mirrored_actions is {self.mirrored_actions}, expected an order of 0 to {last}")

    @staticmethod
    def grid(width: int, height: int, num_goals: int = 1) -> PlanSpec:
        """The spec of a MiniGrid world of this size."""
        cells = width * height
        return PlanSpec(
            num_actions=6,
            num_states=cells * 4,
            num_goals=num_goals,
            goal_size=cells,
            map_shape=(width, height),
            map_channels=(11, 6, 3),
            num_headings=4,
            features=(11, 6),
            words=BABYAI_WORDS,
            max_words=32,
            mirrored_actions=(1, 0, 2, 3, 4, 5),
            mirrored_words={"left": "right", "right": "left"},
            # Walls are always grey and floors have no colour: doors, keys, balls and boxes do.
            palette=Palette(("red", "green", "blue", "purple", "yellow", "grey"), 1, 1, (4, 5, 6, 7)),
        )

    @property
    def num_cells(self) -> int:
        return 0 if self.map_shape is None else self.map_shape[0] * self.map_shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        """Stream -> vocabulary, as the flow wants it."""
        goals = {"goals": self.goal_size} if self.num_goals else {}
        return {"states": self.num_states, **goals, "actions": self.num_actions}

    def shapes(self, horizon: int) -> dict[str, tuple[int, ...]]:
        """Stream -> the shape of its tokens in one plan."""
        goals = {"goals": (horizon, self.num_goals)} if self.num_goals else {}
        return {"states": (horizon,), **goals, "actions": (horizon,)}

    def cell(self, x: int, y: int) -> int:
        assert self.map_shape is not None
        return int(x) + self.map_shape[0] * int(y)

    def position(self, cell: int) -> tuple[int, int]:
        assert self.map_shape is not None
        return cell % self.map_shape[0], cell // self.map_shape[0]

    def state(self, x: int, y: int, heading: int) -> int:
        return self.cell(x, y) * self.num_headings + int(heading)

    def pose(self, state: int) -> tuple[int, int, int]:
        return (*self.position(state // self.num_headings), state % self.num_headings)

    def encode_mission(self, mission: str) -> NDArray[np.int64]:
        """Words as tokens [max_words], padded with 0."""
        tokens = np.zeros(self.max_words, np.int64)
        words = split_words(mission)
        if len(words) > self.max_words:
            raise DataError(f"the mission '{mission}' has {len(words)} words, expected at most {self.max_words}")
        numbers = {word: number for number, word in enumerate(self.words)}
        for place, word in enumerate(words):
            if word not in numbers:
                near = difflib.get_close_matches(word, self.words[1:], n=1)
                hint = f"; did you mean '{near[0]}'?" if near else f"; known are: {' '.join(self.words[1:])}"
                raise DataError(f"the mission '{mission}' has the unknown word '{word}'{hint}")
            tokens[place] = numbers[word]
        return tokens

    def decode_mission(self, tokens: Sequence[int] | NDArray[np.int64]) -> str:
        return " ".join(self.words[token] for token in tokens if token).replace(" ,", ",")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PlanSpec:
        return PlanSpec(**data)


def split_words(mission: str) -> list[str]:
    return re.findall(r"[^\s,]+|,", mission.lower())
