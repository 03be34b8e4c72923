"""What recordings of MiniGrid mean: its numbers, its spec, and what a drawn agent hides.

The simulator's own constants are not imported: recordings are read without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genplan.errors import DataError
from genplan.spec import Actions, Field, PlanSpec, Stream

AGENT, EMPTY = 10, 1
NUM_TYPES, NUM_COLORS, NUM_DOOR_STATES, NUM_DIRECTIONS = 11, 6, 3, 4
PICKUP, DROP, DONE = 3, 4, 6
ACTION_NAMES = ("left", "right", "forward", "pickup", "drop", "toggle")
DELTA_X, DELTA_Y = np.array([1, 0, -1, 0]), np.array([0, 1, 0, -1])
MAX_WORDS = 32
WORDS = (
    "<pad>", ",", "a", "after", "and", "ball", "behind", "blue", "box", "door", "front", "go", "green", "grey", "in",
    "key", "left", "next", "object", "of", "on", "open", "pick", "purple", "put", "red", "right", "the", "then", "to",
    "up", "yellow", "you", "your",
)  # fmt: skip


def minigrid_spec(width: int, height: int) -> PlanSpec:
    """Of recorded MiniGrid or BabyAI episodes, if no task says otherwise."""
    size = width * height * NUM_DIRECTIONS
    return PlanSpec(
        {
            "state": Field("category", (), (size,)),
            "grid": Field("grid", (width, height), (NUM_TYPES, NUM_COLORS, NUM_DOOR_STATES)),
            "mission": Field("words", (MAX_WORDS,), vocabulary=WORDS),
            "carrying": Field("category", (2,), (NUM_TYPES, NUM_COLORS)),
        },
        Actions(len(ACTION_NAMES), names=ACTION_NAMES),
        {
            "states": Stream(size, (), "state", "grid", NUM_DIRECTIONS),
            "goals": Stream(width * height, (1,), points_at="grid"),
        },
    )


class AgentPoses(NamedTuple):
    """Of every image of an episode."""

    positions: NDArray[np.int64]  # [T + 1, 2]
    directions: NDArray[np.int64]  # [T + 1]

    @property
    def fronts(self) -> NDArray[np.int64]:
        """The cell that is faced: [T + 1, 2]."""
        fronts: NDArray[np.int64] = self.positions + np.stack([DELTA_X[self.directions], DELTA_Y[self.directions]], 1)
        return fronts


def find_agent(image: NDArray[Any], where: str) -> AgentPoses:
    """Where FullyObsWrapper has drawn the agent into images [T + 1, W, H, 3]."""
    is_agent = image[..., 0] == AGENT
    if not (is_agent.sum((1, 2)) == 1).all():
        found = int(is_agent[0].sum())
        raise DataError(
            f"{where}: the first image shows {found} agents, expected 1: record with minigrid's FullyObsWrapper"
        )
    _, xs, ys = np.nonzero(is_agent)
    directions = image[is_agent][:, 2].astype(np.int64)
    Field("category", (), (NUM_DIRECTIONS,)).check(directions, f"{where}: the agent's direction", (len(image),))
    return AgentPoses(np.stack([xs, ys], 1), directions)


def reveal(image: NDArray[Any], agent: AgentPoses, actions: NDArray[Any]) -> NDArray[np.int64]:
    """Puts into the images, in place, what is under the agent; returns what is carried: [T + 1, type and color].

    Both follow from earlier images: the cell as it was when the agent was elsewhere, and the object that vanished when
    it was picked up.
    """
    under = np.array([EMPTY, 0, 0], image.dtype)  # at the start nothing else is known
    carrying = np.tile(np.array([EMPTY, 0], np.int64), (len(image), 1))
    fronts = agent.fronts
    for step in range(len(image)):
        position = tuple(agent.positions[step])
        if step and position != tuple(agent.positions[step - 1]):
            under = image[step - 1][position].copy()
        image[step][position] = under
        if not step:
            continue
        carrying[step] = carrying[step - 1]
        front = tuple(fronts[step - 1])
        before, after = image[step - 1][front], image[step][front]
        if actions[step - 1] == PICKUP and before[0] != EMPTY and after[0] == EMPTY:
            carrying[step] = before[:2]
        elif actions[step - 1] == DROP and before[0] == EMPTY and after[0] != EMPTY:
            carrying[step] = (EMPTY, 0)
    return carrying
