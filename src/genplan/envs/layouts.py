"""Fixed layouts: a map drawn as text, two characters a cell, and a mission in BabyAI's words.

    ##  wall                 KY  key         A ball, B box likewise
    ..  nothing              DR  door, closed    OR open    LR locked
    >>  the agent, facing right; VV down, << left, ^^ up

The second character is the color: R red, G green, B blue, P purple, Y yellow, E grey.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from textwrap import dedent
from typing import Any

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall, WorldObj
from minigrid.envs.babyai.core import verifier
from minigrid.envs.babyai.core.roomgrid_level import BabyAIMissionSpace, RoomGridLevel
from minigrid.minigrid_env import MiniGridEnv
from numpy.typing import NDArray

from genplan.envs.grid import FullyObserved
from genplan.errors import LayoutError

COLOR_CODES = {"R": "red", "G": "green", "B": "blue", "P": "purple", "Y": "yellow", "E": "grey"}
CODES = {**{name: code for code, name in COLOR_CODES.items()}, "key": "K", "ball": "A", "box": "B"}
DIRECTION_CODES = (">>", "VV", "<<", "^^")
MIN_SIZE, MAX_SIZE = 3, 40
Pose = tuple[int, int, int]  # x, y and direction


class _AnySize(RoomGridLevel):
    """A level whose grid need not be made of rooms of one size."""

    def __init__(self, width: int, height: int, max_steps: int, **kwargs: Any) -> None:
        space = BabyAIMissionSpace()
        MiniGridEnv.__init__(self, mission_space=space, width=width, height=height, max_steps=max_steps, **kwargs)
        self.fixed_max_steps = True
        self.room_size, self.num_rows, self.num_cols = max(width, height), 1, 1  # read by reset

    def room_from_pos(self, x: int, y: int) -> None:
        """Rooms matter only to missions that say "on your left", which layouts do not have."""


class FixedLayout(FullyObserved, _AnySize):
    """An environment that is the same at every reset. Refuses maps in which its mission cannot be done."""

    def __init__(self, text: str, mission: str, max_steps: int = 400, **kwargs: Any) -> None:
        self._start, self._pose = _checked_layout(text, mission)
        self._mission = mission
        super().__init__(width=self._start.width, height=self._start.height, max_steps=max_steps, **kwargs)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        for x, y in np.ndindex(width, height):
            if (cell := copy(self._start.get(x, y))) is not None:  # a shallow one: objects hold nothing that changes
                cell.init_pos = cell.cur_pos = (x, y)
                self.grid.set(x, y, cell)
        self.agent_pos, self.agent_dir = self._pose[:2], self._pose[2]
        self.instrs, self.mission = parse_mission(self._mission), self._mission


@lru_cache(64)
def _checked_layout(text: str, mission: str) -> tuple[Grid, Pose]:
    """A layout that can be solved; cached, because a maze is seldom built once only, and never changed."""
    grid, pose = parse_layout(text)
    check_solvable(grid, pose, mission)
    return grid, pose


def parse_layout(text: str) -> tuple[Grid, Pose]:
    rows = [line.rstrip() for line in dedent(text.expandtabs()).splitlines() if line.strip()]
    width, height = max(((len(row) + 1) // 2 for row in rows), default=0), len(rows)
    if not (MIN_SIZE <= width <= MAX_SIZE and MIN_SIZE <= height <= MAX_SIZE):
        raise LayoutError(f"the map is {width} × {height} cells, expected {MIN_SIZE} to {MAX_SIZE} each way")
    grid = Grid(width, height)
    agents: list[Pose] = []
    for y, x in np.ndindex(height, width):
        code = rows[y][2 * x : 2 * x + 2].ljust(2)
        if code in DIRECTION_CODES:
            agents.append((x, y, DIRECTION_CODES.index(code)))
        else:
            grid.set(x, y, parse_object(code, x, y))
    if not agents:
        raise LayoutError("the map has 0 agents, expected 1: put >>, VV, << or ^^ on it")
    first, *others = agents
    if others:
        raise LayoutError(f"the map has a second agent at {others[0][:2]}, expected 1; the first is at {first[:2]}")
    for x, y in np.ndindex(width, height):
        cell = grid.get(x, y)
        if (x in (0, width - 1) or y in (0, height - 1)) and (cell is None or cell.type != "wall"):
            raise LayoutError(f"the map is open at its edge at {(x, y)}, expected a wall (##) all around")
    return grid, first


def parse_object(code: str, x: int = 0, y: int = 0) -> WorldObj | None:
    """The object that two characters stand for."""
    if code in ("..", "  "):
        return None
    if code == "##" or code[0] == "W":
        return Wall()
    letter, color = code[0], COLOR_CODES.get(code[1])
    if letter not in "KABDOL" or color is None:
        raise LayoutError(
            f"the map has '{code}' at column {x}, row {y}, expected ##, .., an agent (>> VV << ^^), or one of "
            f"K A B D O L followed by a color ({' '.join(COLOR_CODES)})"
        )
    if letter in "DOL":
        return Door(color, is_open=letter == "O", is_locked=letter == "L")
    return {"K": Key, "A": Ball, "B": Box}[letter](color)


def layout_text(image: NDArray[np.uint8], pose: Sequence[int] | NDArray[np.int64]) -> str:
    """An observation as a layout: the inverse of `parse_layout` (but for an object under the agent)."""
    grid, _ = Grid.decode(np.asarray(image))
    agent = tuple(pose[:2])

    def code(x: int, y: int) -> str:
        cell = grid.get(x, y)
        if (x, y) == agent:
            return DIRECTION_CODES[pose[2]]
        if cell is None or cell.type == "wall":
            return ".." if cell is None else "##"
        is_door = cell.type == "door"
        letter = ("O" if cell.is_open else "L" if cell.is_locked else "D") if is_door else CODES[cell.type]
        return letter + CODES[cell.color]

    return "\n".join("".join(code(x, y) for x in range(grid.width)) for y in range(grid.height))


CONJUNCTIONS = {", then ": verifier.BeforeInstr, " after you ": verifier.AfterInstr, " and ": verifier.AndInstr}
VERBS = {"go to ": verifier.GoToInstr, "open ": verifier.OpenInstr, "pick up ": verifier.PickupInstr}
_OBJECT = re.compile(r"(?:a|the) (?:(red|green|blue|purple|yellow|grey) )?(ball|box|key|door)")


def parse_mission(mission: str) -> verifier.Instr:
    """The instruction that checks success, for the simulator; a planner never sees it."""
    for conjunction, joined in CONJUNCTIONS.items():
        if conjunction in mission:
            left, right = (parse_mission(half) for half in mission.split(conjunction, 1))
            too_deep = verifier.SeqInstr if joined is verifier.AndInstr else verifier.BeforeInstr | verifier.AfterInstr
            if isinstance(left, too_deep) or isinstance(right, too_deep):
                raise LayoutError(f"the mission '{mission}' joins more parts than BabyAI's language allows")
            return joined(left, right)
    for verb, action in VERBS.items():
        if mission.startswith(verb) and (named := _OBJECT.fullmatch(mission.removeprefix(verb))):
            color, item = named.groups()
            if (action is verifier.OpenInstr) != (item == "door") and action is not verifier.GoToInstr:
                raise LayoutError(
                    f"the mission says '{mission}', expected doors to be opened and other objects picked up"
                )
            return action(verifier.ObjDesc(item, color))
    raise LayoutError(
        f"the mission '{mission}' is not understood; expected 'go to', 'open' or 'pick up' and an object such as "
        "'the red ball', two of them joined by ' and ', ', then ' or ' after you '"
    )


def check_solvable(grid: Grid, pose: Pose, mission: str) -> None:
    """Every object named must exist and be within reach, opening doors and moving objects where possible.

    Objects in the way count as movable, and doors as passable once a key of their color is within reach: what is
    refused here cannot be solved by anyone; a few maps that are too crowded to move objects about may pass.
    """
    cells = {at: cell for at in np.ndindex(grid.width, grid.height) if (cell := grid.get(*at)) is not None}
    keys: set[str] = set()
    reachable = _reach(cells, pose[:2], keys)
    while new := {cells[at].color for at in reachable & cells.keys() if cells[at].type == "key"} - keys:
        keys |= new
        reachable = _reach(cells, pose[:2], keys)
    for part in _parts(parse_mission(mission)):
        item, color = part.desc.type, part.desc.color
        named = f"{color} {item}" if color else item
        matching = [at for at, cell in cells.items() if cell.type == item and color in (None, cell.color)]
        if not matching:
            raise LayoutError(
                f"the mission '{mission}' names a {named}, but the map has 0 of them; expected at least 1"
            )
        within_reach = [cells[at] for at in matching if at in reachable]
        if not within_reach:
            raise LayoutError(
                f"the mission '{mission}' cannot be done: the {named} at {', '.join(map(str, matching))} is out of "
                f"reach of the agent at {pose[:2]}; open a wall, or add a key for a locked door"
            )
        is_locked = all(door.is_locked and door.color not in keys for door in within_reach if door.type == "door")
        if isinstance(part, verifier.OpenInstr) and is_locked:
            raise LayoutError(
                f"the mission '{mission}' cannot be done: the {named} is locked, and no key of its color is within "
                f"reach of the agent at {pose[:2]}; add one"
            )


def _reach(cells: Mapping[tuple[int, ...], Any], start: tuple[int, int], keys: set[str]) -> set[tuple[int, ...]]:
    """Positions that can be faced, walking wherever walls and doors without a key allow."""
    visited, frontier = {start}, [start]
    reachable: set[tuple[int, ...]] = set()
    while frontier:
        x, y = frontier.pop()
        for position in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            reachable.add(position)
            cell = cells.get(position)
            is_locked = cell is not None and cell.type == "door" and cell.is_locked and cell.color not in keys
            if position not in visited and not is_locked and not (cell is not None and cell.type == "wall"):
                visited.add(position)
                frontier.append(position)
    return reachable


def _parts(instruction: verifier.Instr) -> list[verifier.ActionInstr]:
    if isinstance(instruction, verifier.ActionInstr):
        return [instruction]
    return _parts(instruction.instr_a) + _parts(instruction.instr_b)
