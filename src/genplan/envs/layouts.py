"""Fixed layouts: a map drawn as text, two characters a cell, and a mission in BabyAI's words.

    ##  wall                 KY  key         A ball, B box likewise
    ..  nothing              DR  door, closed    OR open    LR locked
    >>  the agent, facing right; VV down, << left, ^^ up

The second character is the color: R red, G green, B blue, P purple, Y yellow, E grey.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import BabyAIMissionSpace, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    ActionInstr,
    AfterInstr,
    AndInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    SeqInstr,
)
from minigrid.minigrid_env import MiniGridEnv
from numpy.typing import NDArray

from genplan.envs.grid import FullyObserved
from genplan.errors import LayoutError

COLOR_CODES = {"R": "red", "G": "green", "B": "blue", "P": "purple", "Y": "yellow", "E": "grey"}
_CODE_OF_COLOR = {name: code for code, name in COLOR_CODES.items()}
DIRECTION_CODES = {">>": 0, "VV": 1, "<<": 2, "^^": 3}
MIN_SIZE, MAX_SIZE = 3, 40


class _AnySize(RoomGridLevel):
    """A level whose grid need not be made of rooms of one size."""

    def __init__(self, width: int, height: int, max_steps: int, **kwargs: Any) -> None:
        MiniGridEnv.__init__(
            self, mission_space=BabyAIMissionSpace(), width=width, height=height, max_steps=max_steps, **kwargs
        )
        self.fixed_max_steps = True
        self.room_size, self.num_rows, self.num_cols = max(width, height), 1, 1  # read by reset

    def room_from_pos(self, x: int, y: int) -> None:
        """Rooms matter only to missions that say "on your left", which layouts do not have."""


class FixedLayout(FullyObserved, _AnySize):
    """An environment that is the same at every reset. Refuses maps in which its mission cannot be done."""

    def __init__(self, text: str, mission: str, max_steps: int = 400, **kwargs: Any) -> None:
        self._set_up(*_checked_layout(text, mission), mission, max_steps, **kwargs)

    @classmethod
    def of(
        cls, image: NDArray[np.uint8], pose: Sequence[int], mission: str, max_steps: int = 400, **kwargs: Any
    ) -> FixedLayout:
        """From an observation's image and pose."""
        env = cls.__new__(cls)
        x, y, direction = (int(number) for number in pose)
        grid = Grid.decode(np.asarray(image))[0]
        check_solvable(grid, (x, y, direction), parse_mission(mission), mission)
        env._set_up(grid, (x, y, direction), mission, max_steps, **kwargs)
        return env

    def _set_up(self, grid: Grid, pose: tuple[int, int, int], mission: str, max_steps: int, **kwargs: Any) -> None:
        self._start, self._pose, self._mission = grid, pose, mission
        FullyObserved.__init__(self, width=grid.width, height=grid.height, max_steps=max_steps, **kwargs)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        for x in range(width):
            for y in range(height):
                if (cell := self._start.get(x, y)) is not None:
                    cell = copy(cell)  # objects hold nothing that changes; Grid.copy goes deep, at six times the cost
                    cell.init_pos = cell.cur_pos = (x, y)
                    self.grid.set(x, y, cell)
        self.agent_pos, self.agent_dir = self._pose[:2], self._pose[2]
        self.instrs = parse_mission(self._mission)
        self.mission = self._mission


@lru_cache(64)
def _checked_layout(text: str, mission: str) -> tuple[Grid, tuple[int, int, int]]:
    """A layout that can be solved; cached, because a maze is seldom built once only, and never changed."""
    grid, pose = parse_layout(text)
    check_solvable(grid, pose, parse_mission(mission), mission)
    return grid, pose


def parse_layout(text: str) -> tuple[Grid, tuple[int, int, int]]:
    """The grid, and the agent's x, y and direction."""
    rows = [line for line in text.expandtabs().splitlines() if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in rows), default=0)
    rows = [line[indent:].rstrip() for line in rows]
    width, height = max((len(row) + 1) // 2 for row in rows) if rows else 0, len(rows)
    if not (MIN_SIZE <= width <= MAX_SIZE and MIN_SIZE <= height <= MAX_SIZE):
        raise LayoutError(f"the map is {width} × {height} cells, expected {MIN_SIZE} to {MAX_SIZE} each way")
    grid = Grid(width, height)
    pose: tuple[int, int, int] | None = None
    for y, row in enumerate(rows):
        for x in range(width):
            code = row[2 * x : 2 * x + 2].ljust(2)
            if code in DIRECTION_CODES:
                if pose is not None:
                    raise LayoutError(f"the map has a second agent at {(x, y)}, expected 1; the first is at {pose[:2]}")
                pose = (x, y, DIRECTION_CODES[code])
            else:
                grid.set(x, y, parse_object(code, x, y))
    if pose is None:
        raise LayoutError("the map has 0 agents, expected 1: put >>, VV, << or ^^ on it")
    _check_walls(grid)
    return grid, pose


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


def _check_walls(grid: Grid) -> None:
    for x in range(grid.width):
        for y in range(grid.height):
            on_edge = x in (0, grid.width - 1) or y in (0, grid.height - 1)
            cell = grid.get(x, y)
            if on_edge and (cell is None or cell.type != "wall"):
                raise LayoutError(f"the map is open at its edge at {(x, y)}, expected a wall (##) all around")


def layout_text(image: NDArray[np.uint8], pose: tuple[int, int, int] | NDArray[np.int64]) -> str:
    """An observation as a layout: the inverse of `parse_layout` (but for an object under the agent)."""
    grid, _ = Grid.decode(np.asarray(image))
    lines = []
    for y in range(grid.height):
        codes = []
        for x in range(grid.width):
            cell = grid.get(x, y)
            if (x, y) == (pose[0], pose[1]):
                codes.append(next(code for code, direction in DIRECTION_CODES.items() if direction == pose[2]))
            elif cell is None:
                codes.append("..")
            elif cell.type == "wall":
                codes.append("##")
            elif cell.type == "door":
                codes.append(("O" if cell.is_open else "L" if cell.is_locked else "D") + _CODE_OF_COLOR[cell.color])
            else:
                codes.append({"key": "K", "ball": "A", "box": "B"}[cell.type] + _CODE_OF_COLOR[cell.color])
        lines.append("".join(codes))
    return "\n".join(lines)


_OBJECT = re.compile(r"(?:a|the) (?:(red|green|blue|purple|yellow|grey) )?(ball|box|key|door)")


def parse_mission(mission: str) -> Instr:
    """The instruction that checks success, for the simulator; a planner never sees it."""
    for conjunction, joined in ((", then ", BeforeInstr), (" after you ", AfterInstr), (" and ", AndInstr)):
        if conjunction in mission:
            left, right = (parse_mission(half) for half in mission.split(conjunction, 1))
            too_deep = SeqInstr if joined is AndInstr else BeforeInstr | AfterInstr
            if isinstance(left, too_deep) or isinstance(right, too_deep):
                raise LayoutError(f"the mission '{mission}' joins more parts than BabyAI's language allows")
            return joined(left, right)
    for verb, action in (("go to ", GoToInstr), ("open ", OpenInstr), ("pick up ", PickupInstr)):
        if mission.startswith(verb) and (named := _OBJECT.fullmatch(mission.removeprefix(verb))):
            color, item = named.groups()
            if (action is OpenInstr) != (item == "door") and action is not GoToInstr:
                raise LayoutError(
                    f"the mission says '{mission}', expected doors to be opened and other objects picked up"
                )
            return action(ObjDesc(item, color))
    raise LayoutError(
        f"the mission '{mission}' is not understood; expected 'go to', 'open' or 'pick up' and an object such as "
        "'the red ball', two of them joined by ' and ', ', then ' or ' after you '"
    )


def check_solvable(grid: Grid, pose: tuple[int, int, int], instruction: Instr, mission: str) -> None:
    """Every object named must exist and be within reach, opening doors and moving objects where possible.

    Objects in the way count as movable, and doors as passable once a key of their color is within reach: what is
    refused here cannot be solved by anyone; a few maps that are too crowded to move objects about may pass.
    """
    if grid.get(*pose[:2]) is not None:
        raise LayoutError(f"the agent starts at {pose[:2]} inside a {grid.get(*pose[:2]).type}, expected an empty cell")
    keys: set[str] = set()
    while True:
        reachable = _reach(grid, pose[:2], keys)
        new_keys = {cell.color for x, y in reachable if (cell := grid.get(x, y)) is not None and cell.type == "key"}
        if new_keys <= keys:
            break
        keys |= new_keys
    for part in _parts(instruction):
        desc = part.desc
        matching = [
            (x, y)
            for x in range(grid.width)
            for y in range(grid.height)
            if (cell := grid.get(x, y)) is not None and cell.type == desc.type and desc.color in (None, cell.color)
        ]
        named = " ".join(word for word in (desc.color, desc.type) if word)
        if not matching:
            raise LayoutError(
                f"the mission '{mission}' names a {named}, but the map has 0 of them; expected at least 1"
            )
        if not any(position in reachable for position in matching):
            positions = ", ".join(str(position) for position in matching)
            raise LayoutError(
                f"the mission '{mission}' cannot be done: the {named} at {positions} is out of reach of the agent at "
                f"{pose[:2]}; open a wall, or add a key for a locked door"
            )
        if isinstance(part, OpenInstr) and not any(
            position in reachable and (not grid.get(*position).is_locked or grid.get(*position).color in keys)
            for position in matching
        ):
            raise LayoutError(
                f"the mission '{mission}' cannot be done: the {named} is locked, and no key of its color is within "
                f"reach of the agent at {pose[:2]}; add one"
            )


def _reach(grid: Grid, start: tuple[int, int], keys: set[str]) -> set[tuple[int, int]]:
    """Cells that can be faced, walking wherever walls and doors without a key allow."""
    visited, reachable, frontier = {start}, set(), [start]
    while frontier:
        x, y = frontier.pop()
        for position in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            cell = grid.get(*position)
            reachable.add(position)
            wall = cell is not None and cell.type == "wall"
            locked = cell is not None and cell.type == "door" and cell.is_locked and cell.color not in keys
            if position not in visited and not wall and not locked:
                visited.add(position)
                frontier.append(position)
    return reachable


def _parts(instruction: Instr) -> list[ActionInstr]:
    if isinstance(instruction, ActionInstr):
        return [instruction]
    return _parts(instruction.instr_a) + _parts(instruction.instr_b)
