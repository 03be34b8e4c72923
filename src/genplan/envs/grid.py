"""The paper's BabyAI levels, built from stock MiniGrid, with an observation of the whole grid that is cheap to make.

Every random draw is in the order of the authors' environments: the same seed gives the same maze, mission and agent
(`tests/golden/tasks.json`). Three things differ from stock MiniGrid: `done` is not an action, the 7×7 view is never
computed unless somebody asks for it, and rejected mazes are not announced on the terminal.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT
from minigrid.core.grid import Grid
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import AfterInstr, AndInstr, GoToInstr, ObjDesc, SeqInstr
from minigrid.envs.babyai.goto import GoTo, GoToLocal
from minigrid.envs.babyai.open import OpenDoorsOrder
from minigrid.envs.babyai.other import KeyCorridor
from minigrid.envs.babyai.unlock import BlockedUnlockPickup
from numpy.typing import NDArray

from genplan.envs.babyai import ACTION_NAMES, CHANNEL_SIZES, EMPTY, MISSION_FIELD, NOTHING_CARRIED, cell_in_front


class FullyObserved(RoomGridLevel):
    """Mixed in before a BabyAI level: observations of the whole grid, kept up to date cell by cell.

    image           uint8 [W, H, 3], as `grid.encode()`; the agent is not drawn
    pose            int64 [3]: x, y, direction (0 right, 1 down, 2 left, 3 up)
    carrying        int64 [2]: type and color of what is carried, as in the image; an empty cell's if nothing is
    mission         the words
    mission_tokens  int64 [32]: the words as tokens of BabyAI's fixed vocabulary
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.action_space = spaces.Discrete(len(ACTION_NAMES))  # `done` does nothing: not a choice
        top = np.array(CHANNEL_SIZES, np.uint8) - 1
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, np.tile(top, (self.width, self.height, 1)), dtype=np.uint8),
                "pose": spaces.Box(0, np.array([self.width - 1, self.height - 1, 3]), dtype=np.int64),
                "carrying": spaces.Box(0, top[:2].astype(np.int64), dtype=np.int64),
                "mission": spaces.Text(256, charset="abcdefghijklmnopqrstuvwxyz, "),
                "mission_tokens": spaces.Box(0, len(MISSION_FIELD.vocabulary) - 1, MISSION_FIELD.shape, dtype=np.int64),
            }
        )
        self.instrs: Any
        self.ever_carried: set[Any] = set()  # objects that were carried in this episode
        self._image: NDArray[np.uint8] | None = None
        self._front = (0, 0)

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self._image, self.ever_carried = None, set()
        # RoomGridLevel announces every rejected maze with print(); the generator's exceptions cannot be reached.
        with contextlib.redirect_stdout(io.StringIO()):
            observation, info = super().reset(**kwargs)
        return observation, info

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if not 0 <= action < len(ACTION_NAMES):
            raise ValueError(f"the action is {action}, expected 0 to {len(ACTION_NAMES) - 1}")
        # An action changes at most the cell that the agent faces.
        x, y = self.agent_pos
        self._front = cell_in_front(x, y, self.agent_dir)
        result: tuple[dict[str, Any], float, bool, bool, dict[str, Any]] = super().step(action)
        if self.carrying is not None:
            self.ever_carried.add(self.carrying)
        return result

    def gen_obs(self) -> dict[str, Any]:
        """Called by MiniGrid after every reset and step, in place of the 7×7 view."""
        if self._image is None:
            self._image = self.grid.encode()
            self._tokens = MISSION_FIELD.encode(self.mission)
        else:
            cell = self.grid.get(*self._front)
            self._image[self._front] = (EMPTY, 0, 0) if cell is None else cell.encode()
        carried = self.carrying
        return {
            "image": self._image.copy(),
            "pose": np.array((*self.agent_pos, self.agent_dir), np.int64),
            "carrying": np.array(NOTHING_CARRIED if carried is None else carried.encode()[:2], np.int64),
            "mission": self.mission,
            "mission_tokens": self._tokens.copy(),
        }


def carried_name(carrying: Sequence[int] | NDArray[np.int64]) -> str:
    """What is carried, in words; empty if nothing is."""
    item, color = (int(number) for number in carrying)
    return "" if (item, color) == NOTHING_CARRIED else f"{IDX_TO_COLOR[color]} {IDX_TO_OBJECT[item]}"


def render_grid(image: NDArray[np.uint8], pose: Sequence[int], tile: int = 28) -> NDArray[np.uint8]:
    """A grid with the agent in it, as MiniGrid draws it: uint8 [H · tile, W · tile, 3]."""
    x, y, direction = (int(number) for number in pose)
    return np.asarray(Grid.decode(np.asarray(image))[0].render(tile, (x, y), direction))


def pending_instructions(instruction: Any) -> list[Any]:
    """The parts of an instruction that are still to be done, in the order in which the bot does them."""
    if not isinstance(instruction, SeqInstr):
        return [instruction]
    parts = [(instruction.instr_a, instruction.a_done), (instruction.instr_b, instruction.b_done)]
    ordered = reversed(parts) if isinstance(instruction, AfterInstr) else parts
    return [pending for part, done in ordered if done != "success" for pending in pending_instructions(part)]


def completed_parts(instruction: Any, success: bool) -> set[str]:
    """Names of the parts of an instruction that are done; `success` is of the whole."""
    if isinstance(instruction, SeqInstr):
        return {part for part in ("a_done", "b_done") if getattr(instruction, part) == "success"}
    return {"all"} if success else set()


class MazeEnv(FullyObserved, GoTo): ...


class RoomEnv(FullyObserved, GoToLocal): ...


class GoToSequenceEnv(FullyObserved, LevelGen): ...


class _TwoGoals(FullyObserved):
    """Go to the first and the last object placed, in any order."""

    doors_open = False

    def gen_mission(self) -> None:
        self.place_agent()
        self.connect_all()
        objects = self.add_distractors(num_distractors=self.num_dists, all_unique=False)
        self.check_objs_reachable()
        self._rand_elem(objects)  # drawn by the authors' code and not used; leaving it out would shift all draws
        self.instrs = AndInstr(*(GoToInstr(ObjDesc(one.type, one.color)) for one in (objects[0], objects[-1])))
        if self.doors_open:
            self.open_all_doors()


class TwoGoalMazeEnv(_TwoGoals, GoTo): ...


class TwoGoalRoomEnv(_TwoGoals, GoToLocal): ...


class _RoomSize(RoomGridLevel):
    """The base level's constructor, reached past a stock class that insists on its own room size."""

    def __init__(self, **kwargs: Any) -> None:
        RoomGridLevel.__init__(self, **kwargs)


class DoorsEnv(FullyObserved, _RoomSize, OpenDoorsOrder):
    def __init__(self, num_doors: int, **kwargs: Any) -> None:
        self.num_doors = num_doors
        self.debug = False
        super().__init__(**kwargs)


class _GoToTarget(FullyObserved):
    """The level's mission is to get its object; here it is enough to go there."""

    def gen_mission(self) -> None:
        super().gen_mission()
        self.instrs = GoToInstr(self.instrs.desc)


class BlockedDoorEnv(_GoToTarget, _RoomSize, BlockedUnlockPickup): ...


class CorridorEnv(_GoToTarget, KeyCorridor): ...
