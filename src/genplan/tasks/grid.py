"""The paper's BabyAI worlds, built from stock minigrid, with an observation of the whole grid that is cheap to make.

Every random draw is in the order of the authors' environments: the same seed gives the same maze, mission and agent
(`golden/tasks.json`). Three things differ from stock minigrid: `done` is not an action, the 7×7 view is never computed
unless somebody asks for it, and rejected mazes are not announced on the terminal.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.grid import Grid
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import AfterInstr, AndInstr, GoToInstr, ObjDesc, SeqInstr
from minigrid.envs.babyai.goto import GoTo, GoToLocal
from minigrid.envs.babyai.open import OpenDoorsOrder
from minigrid.envs.babyai.other import KeyCorridor
from minigrid.envs.babyai.unlock import BlockedUnlockPickup
from numpy.typing import NDArray

from genplan.data.tokens import PlanSpec
from genplan.types import Observation

EMPTY_HANDS = (OBJECT_TO_IDX["empty"], COLOR_TO_IDX["red"])
LETTERS = "abcdefghijklmnopqrstuvwxyz, "


class WholeGrid(RoomGridLevel):
    """Mixed in before a BabyAI level: observations of the whole grid, kept up to date cell by cell.

    image           uint8 [W, H, 3], as `grid.encode()`; the agent is not drawn
    pose            int64 [3]: x, y, heading (0 right, 1 down, 2 left, 3 up)
    carrying        int64 [2]: type and colour of what is carried, as in the image; an empty cell's if nothing is
    mission         the words
    mission_tokens  int64 [32]: the words as tokens of BabyAI's fixed vocabulary
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_spec = PlanSpec.grid(self.width, self.height)
        self.action_space = spaces.Discrete(self.plan_spec.num_actions)  # `done` does nothing: not a choice
        words = self.plan_spec.max_words
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(
                    0, np.tile(np.array([10, 5, 2], np.uint8), (self.width, self.height, 1)), dtype=np.uint8
                ),
                "pose": spaces.Box(0, np.array([self.width - 1, self.height - 1, 3]), dtype=np.int64),
                "carrying": spaces.Box(0, np.array([10, 5]), dtype=np.int64),
                "mission": spaces.Text(256, charset=LETTERS),
                "mission_tokens": spaces.Box(0, len(self.plan_spec.words) - 1, (words,), dtype=np.int64),
            }
        )
        self.instrs: Any
        self.held: set[Any] = set()  # things that were carried in this episode
        self._image: NDArray[np.uint8] | None = None
        self._front = (0, 0)

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self._image = None
        self.held = set()
        # RoomGridLevel announces every rejected maze with print(); the generator's exceptions cannot be reached.
        with contextlib.redirect_stdout(io.StringIO()):
            observation, info = super().reset(**kwargs)
        return observation, info

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if not 0 <= action < self.plan_spec.num_actions:
            raise ValueError(f"the action is {action}, expected 0 to {self.plan_spec.num_actions - 1}")
        # An action changes at most the cell that the agent faces.
        x, y = self.agent_pos
        heading = self.agent_dir
        self._front = (x + (1, 0, -1, 0)[heading], y + (0, 1, 0, -1)[heading])
        result: tuple[dict[str, Any], float, bool, bool, dict[str, Any]] = super().step(action)
        if self.carrying is not None:
            self.held.add(self.carrying)
        return result

    def gen_obs(self) -> dict[str, Any]:
        """Called by minigrid after every reset and step, in place of the 7×7 view."""
        if self._image is None:
            self._image = self.grid.encode()
            self._tokens = self.plan_spec.encode_mission(self.mission)
        else:
            x, y = self._front
            cell = self.grid.get(x, y)
            self._image[x, y] = (OBJECT_TO_IDX["empty"], 0, 0) if cell is None else cell.encode()
        carried = self.carrying
        x, y = self.agent_pos
        return {
            "image": self._image.copy(),
            "pose": np.array((x, y, self.agent_dir), np.int64),
            "carrying": np.array(EMPTY_HANDS if carried is None else carried.encode()[:2], np.int64),
            "mission": self.mission,
            "mission_tokens": self._tokens.copy(),
        }

    def set_grid(self, grid: Grid) -> None:
        """Put another grid in place (editing one's cells by hand instead would leave the observation stale)."""
        self.grid = grid
        self._image = None


def observe(env: Any, observation: dict[str, Any]) -> Observation:
    """A WholeGrid observation as planners see it."""
    return tokens(env.unwrapped.plan_spec, observation)


def tokens(spec: PlanSpec, observation: Mapping[str, Any]) -> Observation:
    """The same without the environment."""
    return {
        "state": spec.state(*observation["pose"]),
        "map": observation["image"],
        "mission": observation["mission_tokens"],
        "features": observation["carrying"],
    }


class Watch:
    """Notes what an episode reaches, for the labels of demonstrations: facts of what happened, not of what was meant.

    A target is where the agent faced when a part of its instruction came true; with several matching objects, that is
    the one really reached. Things picked up are keys or blockers; a door counts when it was locked and no longer is.
    """

    def __init__(self, env: Any, spec: PlanSpec | None = None) -> None:
        self.level = env.unwrapped
        self.spec: PlanSpec = self.level.plan_spec if spec is None else spec
        self.done: set[str] = set()

    def __call__(self, before: Observation, after: Observation, success: bool) -> list[tuple[int, str]]:
        spec = self.spec
        x, y, heading = spec.pose(int(before["state"]))
        front = (x + (1, 0, -1, 0)[heading], y + (0, 1, 0, -1)[heading])
        facing = spec.cell(*front)
        reached = []
        if tuple(before["features"]) == EMPTY_HANDS and tuple(after["features"]) != EMPTY_HANDS:
            reached.append((facing, "key" if after["features"][0] == OBJECT_TO_IDX["key"] else "blocker"))
        was, now = before["map"][front], after["map"][front]
        if was[0] == OBJECT_TO_IDX["door"] and was[2] == STATE_TO_IDX["locked"] != now[2]:
            reached.append((facing, "door"))
        if hasattr(self.level, "instrs"):
            reached += [(spec.cell(*self.level.front_pos), "target")] * self._newly_done(success)
        elif success:  # stock MiniGrid: its goals are squares to stand on
            reached.append((spec.cell(*self.level.agent_pos), "target"))
        return reached

    def _newly_done(self, success: bool) -> int:
        instruction = self.level.instrs
        if isinstance(instruction, SeqInstr):
            done = {part for part in ("a_done", "b_done") if getattr(instruction, part) == "success"}
        else:
            done = {"all"} if success else set()
        new = len(done - self.done)
        self.done = done
        return new


def goals(env: Any) -> list[int]:
    """Cells of the next goals, for planners that are told: keys, what blocks doors, doors, then what is still missing.

    In the order in which the bot goes for them: of two things to do in any order, the one that is said first.
    """
    level = env.unwrapped
    spec: PlanSpec = level.plan_spec
    agent = np.array(level.agent_pos)

    def nearest(cells: Iterable[tuple[int, int]]) -> list[int]:
        ordered = sorted(cells, key=lambda cell: int(np.abs(np.array(cell) - agent).sum()))
        return [spec.cell(*ordered[0])] if ordered else []

    instruction, wanted = level.instrs, []
    if isinstance(instruction, SeqInstr):
        parts = [(instruction.instr_a, instruction.a_done), (instruction.instr_b, instruction.b_done)]
        ordered = reversed(parts) if isinstance(instruction, AfterInstr) else parts
        wanted = [part for part, done in ordered if done != "success"]
    else:
        wanted = [instruction]
    reached: list[int] = []
    for part in wanted:
        part.desc.find_matching_objs(level)
        # What is nowhere on the map is in the agent's hands.
        reached += nearest(tuple(place) for place in part.desc.obj_poss) or [spec.cell(*level.agent_pos)]
    way: list[int] = []
    everything = [(x, y, level.grid.get(x, y)) for x in range(level.width) for y in range(level.height)]
    for x, y, thing in everything:
        if thing is not None and thing.type == "door" and thing.is_locked:
            keys = {(i, j): other for i, j, other in everything if other is not None
                    and (other.type, other.color) == ("key", thing.color)}  # fmt: skip
            has = level.carrying is not None and (level.carrying.type, level.carrying.color) == ("key", thing.color)
            key = [] if has else nearest(keys)
            blocker = nearest((i, j) for i, j, other in everything if abs(i - x) + abs(j - y) == 1
                              and other is not None and other.can_pickup()
                              and spec.cell(i, j) not in (*reached, *key))  # fmt: skip
            # Who puts the key down before a blocked door wants his hands free for what is in the way.
            put_down = any(other in level.held for other in keys.values())
            way += blocker + key if put_down else key + blocker
            way.append(spec.cell(x, y))
    return way + reached


def two_goals(objects: list[Any]) -> AndInstr:
    """Go to the first and the last object placed, in any order."""
    first, last = objects[0], objects[-1]
    return AndInstr(GoToInstr(ObjDesc(first.type, first.color)), GoToInstr(ObjDesc(last.type, last.color)))


class Maze(WholeGrid, GoTo):
    pass


class TwoGoalMaze(WholeGrid, GoTo):
    def gen_mission(self) -> None:
        self.place_agent()
        self.connect_all()
        objects = self.add_distractors(num_distractors=self.num_dists, all_unique=False)
        self.check_objs_reachable()
        self._rand_elem(objects)  # drawn by the authors' code and not used; leaving it out would shift all draws
        self.instrs = two_goals(objects)
        if self.doors_open:
            self.open_all_doors()


class Room(WholeGrid, GoToLocal):
    pass


class TwoGoalRoom(WholeGrid, GoToLocal):
    def gen_mission(self) -> None:
        self.place_agent()
        objects = self.add_distractors(num_distractors=self.num_dists, all_unique=False)
        self.check_objs_reachable()
        self._rand_elem(objects)  # as above
        self.instrs = two_goals(objects)


class _RoomSize(RoomGridLevel):
    """The base level's constructor, reached past a stock class that insists on its own room size."""

    def __init__(self, **kwargs: Any) -> None:
        RoomGridLevel.__init__(self, **kwargs)


class Doors(WholeGrid, _RoomSize, OpenDoorsOrder):
    def __init__(self, num_doors: int, **kwargs: Any) -> None:
        self.num_doors = num_doors
        self.debug = False
        super().__init__(**kwargs)


class BlockedDoor(WholeGrid, _RoomSize, BlockedUnlockPickup):
    def gen_mission(self) -> None:
        super().gen_mission()
        self.instrs = GoToInstr(self.instrs.desc)


class Corridor(WholeGrid, KeyCorridor):
    def gen_mission(self) -> None:
        super().gen_mission()
        self.instrs = GoToInstr(self.instrs.desc)


class Errands(WholeGrid, LevelGen):
    pass
