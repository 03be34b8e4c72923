"""BabyAI's numbers and words, and what planners see of its levels; no simulator is imported for them."""

from __future__ import annotations

from genplan.spec import Actions, Field, PlanSpec, Stream

ACTION_NAMES = ("left", "right", "forward", "pickup", "drop", "toggle")
COLOR_NAMES = ("red", "green", "blue", "purple", "yellow", "grey")
CHANNEL_SIZES = (11, 6, 3)  # of a cell of the image: type, color, state
EMPTY, DOOR, KEY, BALL, BOX, AGENT = 1, 4, 5, 6, 7, 10
LOCKED = 2
NOTHING_CARRIED = (EMPTY, 0)
DIRECTIONS = 4
# The whole language of BabyAI, fixed: a vocabulary built on the fly would give unseen words untrained embeddings.
BABYAI_WORDS = (
    "<pad>", ",", "a", "after", "and", "ball", "behind", "blue", "box", "door", "front", "go", "green", "grey", "in",
    "key", "left", "next", "object", "of", "on", "open", "pick", "purple", "put", "red", "right", "the", "then", "to",
    "up", "yellow", "you", "your",
)  # fmt: skip
MISSION_FIELD = Field("words", (32,), vocabulary=BABYAI_WORDS)


def babyai_spec(width: int, height: int, num_goals: int = 1) -> PlanSpec:
    """What is observed, done and planned in a MiniGrid environment of this size.

    A state is a cell and a direction, `cell · 4 + direction`; a goal is a cell, `x + width · y`.
    """
    num_cells = width * height
    return PlanSpec(
        fields={
            "state": Field("category", sizes=(num_cells * DIRECTIONS,)),
            "grid": Field("grid", (width, height), CHANNEL_SIZES),
            "mission": MISSION_FIELD,
            "carrying": Field("category", (2,), CHANNEL_SIZES[:2]),
        },
        actions=Actions(len(ACTION_NAMES), names=ACTION_NAMES),
        streams={
            "states": Stream(num_cells * DIRECTIONS, observed="state", points_at="grid", directions=DIRECTIONS),
            "goals": Stream(num_cells, (num_goals,), points_at="grid"),
        },
    )


def cell_in_front(x: int, y: int, direction: int) -> tuple[int, int]:
    return x + (1, 0, -1, 0)[direction], y + (0, 1, 0, -1)[direction]
