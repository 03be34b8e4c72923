"""What a planner observes, what it can do, and what a plan is made of: plain data that checks itself."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from genplan.errors import DataError, UserError

Kind = Literal["grid", "words", "category", "vector"]
SCENE_KINDS = ("grid", "words")  # encoded once and cached while equal; the other kinds belong to a single step
Observation = Mapping[str, Any]
"""One step as `Task.observe` gives it: an array (or number) per field. Nothing of the goal or instruction is in it."""


MAX_SIZE = 2**24  # of a vocabulary, a grid, a step of a plan: what a file says must not become memory of any size


def _require_whole(what: str, numbers: Sequence[Any]) -> None:
    """Whole numbers whose product is bounded; how small they may be is said elsewhere."""
    odd = [one for one in numbers if isinstance(one, bool) or not isinstance(one, int | np.integer)]
    if odd or prod(max(abs(int(one)), 1) for one in numbers) > MAX_SIZE:
        raise ValueError(f"{what} {tuple(numbers)}, expected whole numbers, of which the product is at most {MAX_SIZE}")


def _require_texts(what: str, texts: Sequence[Any]) -> None:
    if odd := [one for one in texts if not isinstance(one, str)]:
        raise ValueError(f"{what} {odd[0]!r}, expected a text")


@dataclass(frozen=True)
class Field:
    """One named part of an observation: its kind, shape and vocabularies, declared by a task and never guessed.

    kind       shape            array
    grid       (width, height)  uint8 [W, H, channels]: symbols, `sizes` holds the vocabulary of each channel
    words      (max_words,)     int64 [max_words]: tokens of `vocabulary`, padded with 0
    category   () or (n,)       int64, `sizes` holds the vocabulary of each number
    vector     (n,)             float32 [n]
    """

    kind: Kind
    shape: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("shape", "sizes", "vocabulary"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.kind not in get_args(Kind):
            raise ValueError(f"a field has the kind '{self.kind}', expected one of {', '.join(get_args(Kind))}")
        _require_whole(f"a {self.kind} field has the shape", self.shape)
        for size in self.sizes:
            _require_whole(f"a {self.kind} field has the sizes", (size,))
        _require_texts(f"a {self.kind} field has the word", self.vocabulary)
        axes, numbers = {"grid": 2, "words": 1, "vector": 1}.get(self.kind, min(len(self.shape), 1)), prod(self.shape)
        if len(self.shape) != axes or min(self.shape, default=1) < 1:
            raise ValueError(f"a {self.kind} field has the shape {self.shape}, expected {axes} positive numbers")
        if self.kind in ("grid", "category") and min(self.sizes, default=0) < 1:
            raise ValueError(f"a {self.kind} field has the sizes {self.sizes}, expected vocabularies of at least 1")
        if self.kind == "category" and len(self.sizes) != numbers:
            raise ValueError(f"a category field of {numbers} numbers has {len(self.sizes)} sizes, expected {numbers}")
        if self.kind == "words" and len(self.vocabulary) < 2:
            raise ValueError(f"a words field has {len(self.vocabulary)} words, expected padding and at least 1 more")

    @property
    def array_shape(self) -> tuple[int, ...]:
        return (*self.shape, len(self.sizes)) if self.kind == "grid" else self.shape

    @property
    def dtype(self) -> type[np.generic]:
        kinds: dict[str, type[np.generic]] = {"grid": np.uint8, "vector": np.float32}
        return kinds.get(self.kind, np.int64)

    def check(self, array: Any, what: str, batch: tuple[int, ...] = ()) -> NDArray[Any]:
        """The array in the field's own dtype; anything that does not fit is refused with both numbers."""
        array, expected = np.asarray(array), (*batch, *self.array_shape)
        if array.shape != expected:
            raise DataError(f"{what} has shape {array.shape}, expected {expected}")
        if self.kind == "vector":
            if not np.issubdtype(array.dtype, np.number):
                raise DataError(f"{what} has dtype {array.dtype}, expected numbers")
            if not np.isfinite(array).all():
                raise DataError(f"{what} holds {array[~np.isfinite(array)].flat[0]}, expected finite numbers")
            return np.asarray(array, np.float32)
        sizes = len(self.vocabulary) if self.kind == "words" else self.sizes if self.shape else self.sizes[0]
        largest = np.array(sizes) - 1  # per entry of the last axis, or of all
        wanted = ", ".join(map(str, np.atleast_1d(largest)))
        if not np.issubdtype(array.dtype, np.integer):
            bad = array[~np.isfinite(array)] if np.issubdtype(array.dtype, np.floating) else array[:0]
            found = f"; one is {bad.flat[0]}" if bad.size else ""
            raise DataError(f"{what} has dtype {array.dtype}{found}, expected whole numbers from 0 to {wanted}")
        outside = (array < 0) | (array > largest)
        if outside.any():
            raise DataError(f"{what} holds {array[outside].flat[0]}, expected 0 to {wanted}")
        return np.asarray(array, self.dtype)

    def space(self) -> gymnasium.Space[Any]:
        """The Gymnasium space of its arrays; words are stored as text."""
        if self.kind == "words":
            return spaces.Text(64 * self.shape[0], charset="abcdefghijklmnopqrstuvwxyz0123456789,.;:'-_<> ")
        if self.kind == "vector":
            return spaces.Box(-np.inf, np.inf, self.shape, np.float32)
        if not self.shape:
            return spaces.Discrete(self.sizes[0])
        high = np.broadcast_to(np.array(self.sizes) - 1, self.array_shape)
        return spaces.Box(0, high.astype(self.dtype), dtype=self.dtype)

    def encode(self, text: str) -> NDArray[np.int64]:
        """Words as tokens [max_words], padded with 0."""
        words = re.findall(r"[^\s,]+|,", text.lower())
        if len(words) > self.shape[0]:
            raise DataError(f"the mission '{text}' has {len(words)} words, expected at most {self.shape[0]}")
        numbers = {word: number for number, word in enumerate(self.vocabulary)}
        if unknown := [word for word in words if word not in numbers]:
            close = difflib.get_close_matches(unknown[0], self.vocabulary[1:], n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are: {' '.join(self.vocabulary[1:])}"
            raise DataError(f"the mission '{text}' has the unknown word '{unknown[0]}'; {hint}")
        return np.array([numbers[word] for word in words] + [0] * (self.shape[0] - len(words)), np.int64)

    def decode(self, tokens: Sequence[int] | NDArray[np.int64]) -> str:
        return " ".join(self.vocabulary[token] for token in tokens if token).replace(" ,", ",")


@dataclass(frozen=True)
class Actions:
    """The environment's own action space, as data."""

    n: int | None = None  # discrete actions 0 … n − 1; None: numbers between `low` and `high`
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    origin: tuple[str, int] | None = None  # codes are relative to this vector field, from this entry on; None: absolute
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("low", "high", "names"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.origin is not None:
            name, first = self.origin
            _require_texts("actions are relative to the field", (name,))
            _require_whole("actions are relative to the entry", (first,))
            object.__setattr__(self, "origin", (name, int(first)))
        _require_whole("the number of actions is", () if self.n is None else (self.n,))
        _require_texts("an action has the name", self.names)
        if self.n is not None and self.n < 2:
            raise ValueError(f"there are {self.n} actions, expected at least 2")
        if self.n is None and (not self.low or len(self.low) != len(self.high)):
            raise ValueError(f"actions lie between {self.low} and {self.high}, expected as many lower bounds as upper")
        numbers = [*self.low, *self.high]
        if odd := [one for one in numbers if isinstance(one, bool) or not isinstance(one, int | float | np.number)]:
            raise ValueError(f"a bound of the actions is {odd[0]!r}, expected a number")
        if not np.isfinite(numbers).all() or (np.array(self.low) > np.array(self.high)).any():
            raise ValueError(f"actions lie between {self.low} and {self.high}, expected finite, rising bounds")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one action."""
        return () if self.n is not None else (len(self.low),)

    @property
    def dtype(self) -> type[np.generic]:
        return np.float32 if self.n is None else np.int64

    def name(self, action: int) -> str:
        return self.names[action] if action < len(self.names) else str(action)

    @staticmethod
    def from_space(space: gymnasium.Space[Any]) -> Actions:
        if isinstance(space, spaces.Discrete):
            if space.start != 0:
                raise DataError(f"actions are numbered from {space.start} on, expected from 0 on")
            return Actions(int(space.n))
        if isinstance(space, spaces.Box) and len(space.shape) == 1:
            return Actions(low=tuple(map(float, space.low)), high=tuple(map(float, space.high)))
        raise DataError(f"the actions are {space}, expected Discrete actions or a Box of one axis")

    def space(self) -> gymnasium.Space[Any]:
        if self.n is not None:
            return spaces.Discrete(self.n)
        return spaces.Box(np.array(self.low, np.float32), np.array(self.high, np.float32))

    def check(self, actions: Any, what: str) -> NDArray[Any]:
        """Actions [..., *A] of an episode or a plan; anything outside the space is refused with both numbers."""
        actions, shape = np.asarray(actions), self.shape
        if actions.ndim < 1 + len(shape) or actions.shape[actions.ndim - len(shape) :] != shape:
            raise DataError(f"{what} have shape {actions.shape}, expected (steps{''.join(f', {n}' for n in shape)})")
        if self.n is not None:
            if not np.issubdtype(actions.dtype, np.integer):
                raise DataError(f"{what} have dtype {actions.dtype}, expected whole numbers from 0 to {self.n - 1}")
            if actions.size and not 0 <= actions.min() <= actions.max() < self.n:
                found = actions.min() if actions.min() < 0 else actions.max()
                raise DataError(f"{what} hold {found}, expected 0 to {self.n - 1}")
            return np.asarray(actions, np.int64)
        if not np.issubdtype(actions.dtype, np.number) or not np.isfinite(actions).all():
            raise DataError(f"{what} have dtype {actions.dtype} or are not finite, expected finite numbers")
        low, high = np.array(self.low), np.array(self.high)
        slack = 1e-5 * np.maximum(high - low, 1e-6)  # of rounding to float32
        outside = (actions < low - slack) | (actions > high + slack)
        if outside.any():
            raise DataError(f"{what} hold {actions[outside].flat[0]:g}, expected {self.low} to {self.high}")
        return np.asarray(np.clip(actions, low, high), np.float32)


@dataclass(frozen=True)
class Stream:
    """One kind of token of a plan: its vocabulary, and what its tokens stand for."""

    size: int
    shape: tuple[int, ...] = ()  # tokens per step of the plan
    observed: str | None = None  # the category field that shows the current value
    points_at: str | None = None  # the grid field whose cells the tokens stand for
    directions: int = 1  # tokens per cell: token = cell · directions + direction
    names: tuple[str, ...] = field(default=(), compare=False)  # of the tokens, if they have any

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "names", tuple(self.names))
        _require_texts("a token has the name", self.names)
        _require_whole("a stream has the size, directions and shape", (self.size, self.directions, *self.shape))
        _require_texts("a stream names the field", [one for one in (self.observed, self.points_at) if one is not None])
        if min(self.directions, *self.shape, 1) < 1:
            raise ValueError(
                f"a stream has {self.directions} directions and the shape {self.shape}, expected at least 1"
            )
        if self.size < 2:
            raise ValueError(f"a stream has {self.size} tokens, expected at least 2")


class Geometry(NamedTuple):
    """Cells, states and poses of a grid: cell = x + width · y, state = cell · directions + direction."""

    width: int
    height: int
    directions: int

    @property
    def num_cells(self) -> int:
        return self.width * self.height

    def cell(self, x: int, y: int) -> int:
        return int(x) + self.width * int(y)

    def position(self, cell: int) -> tuple[int, int]:
        return cell % self.width, cell // self.width

    def state(self, x: int, y: int, direction: int) -> int:
        return self.cell(x, y) * self.directions + int(direction)

    def pose(self, state: int) -> tuple[int, int, int]:
        return (*self.position(state // self.directions), state % self.directions)


@dataclass(frozen=True)
class PlanSpec:
    """What a planner observes, what it can do, and which streams a plan has beside its actions."""

    fields: Mapping[str, Field]
    actions: Actions
    streams: Mapping[str, Stream] = field(default_factory=dict)  # `states` and `goals`, in this order, or some of them

    def __post_init__(self) -> None:
        _require_texts("a field is named", list(self.fields))
        if list(self.streams) != [name for name in ("states", "goals") if name in self.streams]:
            raise ValueError(f"the streams are {list(self.streams)}, expected states, goals or both, in this order")
        if not self.fields:
            raise ValueError("a PlanSpec has 0 fields, expected at least 1")
        for name, stream in self.streams.items():
            seen, grid = self.fields.get(stream.observed or ""), self.fields.get(stream.points_at or "")
            shown = None if seen is None else (seen.kind, seen.shape, seen.sizes)
            if stream.observed is not None and shown != ("category", (), (stream.size,)):
                raise ValueError(f"stream '{name}' is observed as '{stream.observed}', expected a category field of "
                                 f"one number with {stream.size} values, found {seen}")  # fmt: skip
            if stream.points_at is not None:
                if grid is None or grid.kind != "grid":
                    raise ValueError(f"stream '{name}' points at '{stream.points_at}', expected a grid field")
                if stream.size != (tokens := prod(grid.shape) * stream.directions):
                    raise ValueError(f"stream '{name}' has {stream.size} tokens, expected {tokens}: one per cell and "
                                     "direction")  # fmt: skip
        if self.actions.origin is not None:
            name, first = self.actions.origin
            seen = self.fields.get(name)
            if first < 0 or seen is None or seen.kind != "vector" or first + len(self.actions.low) > seen.shape[0]:
                raise ValueError(f"actions are relative to {self.actions.origin}, expected part of a vector field")

    @property
    def states(self) -> Stream | None:
        return self.streams.get("states")

    @property
    def goals(self) -> Stream | None:
        return self.streams.get("goals")

    @property
    def num_goals(self) -> int:
        return 0 if self.goals is None else prod(self.goals.shape)

    @property
    def state_field(self) -> str | None:
        return None if self.states is None else self.states.observed

    @property
    def grid_field(self) -> str | None:
        """The grid that states point at."""
        return None if self.states is None else self.states.points_at

    @property
    def geometry(self) -> Geometry | None:
        if self.states is None or self.grid_field is None:
            return None
        width, height = self.fields[self.grid_field].shape
        return Geometry(width, height, self.states.directions)

    @property
    def words_field(self) -> str | None:
        return next((name for name, one in self.fields.items() if one.kind == "words"), None)

    @property
    def scene_fields(self) -> tuple[str, ...]:
        return tuple(name for name, one in self.fields.items() if one.kind in SCENE_KINDS)

    @property
    def step_fields(self) -> tuple[str, ...]:
        return tuple(name for name, one in self.fields.items() if one.kind not in SCENE_KINDS)

    def mission(self, observation: Observation) -> str:
        """The instruction of an observation as text; empty if the task has none."""
        return "" if (name := self.words_field) is None else self.fields[name].decode(observation[name])

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def without_goals(self) -> PlanSpec:
        streams = {name: stream for name, stream in self.streams.items() if name != "goals"}
        return dataclasses.replace(self, streams=streams)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PlanSpec:
        try:
            fields = {name: Field(**one) for name, one in data["fields"].items()}
            streams = {name: Stream(**one) for name, one in data.get("streams", {}).items()}
            return PlanSpec(fields, Actions(**data["actions"]), streams)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise UserError(f"a PlanSpec cannot be read: {error}; expected fields, actions and streams") from error
