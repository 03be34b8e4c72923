"""Fixed layouts: a map drawn as text, two characters a cell, and a mission in BabyAI's words.

    ##  wall                 KY  key         A ball, B box likewise
    ..  nothing              DR  door, closed    OR open    LR locked
    >>  the agent, heading right; VV down, << left, ^^ up

The second character is the colour: R red, G green, B blue, P purple, Y yellow, E grey.
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

from genplan.errors import LayoutError
from genplan.tasks.grid import WholeGrid

COLOURS = {"R": "red", "G": "green", "B": "blue", "P": "purple", "Y": "yellow", "E": "grey"}
LETTERS = {name: letter for letter, name in COLOURS.items()}
HEADINGS = {">>": 0, "VV": 1, "<<": 2, "^^": 3}
SMALLEST, LARGEST = 3, 40


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


class FixedLayout(WholeGrid, _AnySize):
    """An environment that is the same at every reset. Refuses maps in which its mission cannot be done."""

    def __init__(self, text: str, mission: str, max_steps: int = 400, **kwargs: Any) -> None:
        self._place(*_possible(text, mission), mission, max_steps, **kwargs)

    @classmethod
    def of(
        cls, image: NDArray[np.uint8], pose: Sequence[int], mission: str, max_steps: int = 400, **kwargs: Any
    ) -> FixedLayout:
        """From an observation's image and pose."""
        env = cls.__new__(cls)
        x, y, heading = (int(number) for number in pose)
        grid = Grid.decode(np.asarray(image))[0]
        check_solvable(grid, (x, y, heading), parse_mission(mission), mission)
        env._place(grid, (x, y, heading), mission, max_steps, **kwargs)
        return env

    def _place(self, grid: Grid, pose: tuple[int, int, int], mission: str, max_steps: int, **kwargs: Any) -> None:
        self._start, self._pose, self._mission = grid, pose, mission
        WholeGrid.__init__(self, width=grid.width, height=grid.height, max_steps=max_steps, **kwargs)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        for x in range(width):
            for y in range(height):
                if (cell := self._start.get(x, y)) is not None:
                    cell = copy(cell)  # things hold nothing that changes; Grid.copy goes deep, at six times the cost
                    cell.init_pos = cell.cur_pos = (x, y)
                    self.grid.set(x, y, cell)
        self.agent_pos, self.agent_dir = self._pose[:2], self._pose[2]
        self.instrs = parse_mission(self._mission)
        self.mission = self._mission


@lru_cache(64)
def _possible(text: str, mission: str) -> tuple[Grid, tuple[int, int, int]]:
    """A layout, checked; kept, because a maze is seldom built once only, and never changed."""
    grid, pose = parse_layout(text)
    check_solvable(grid, pose, parse_mission(mission), mission)
    return grid, pose


def parse_layout(text: str) -> tuple[Grid, tuple[int, int, int]]:
    """The grid, and the agent's x, y and heading."""
    rows = [line for line in text.expandtabs().splitlines() if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in rows), default=0)
    rows = [line[indent:].rstrip() for line in rows]
    width, height = max((len(row) + 1) // 2 for row in rows) if rows else 0, len(rows)
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise LayoutError(f"the map is {width} × {height} cells, expected {SMALLEST} to {LARGEST} each way")
    grid = Grid(width, height)
    pose: tuple[int, int, int] | None = None
    for y, row in enumerate(rows):
        for x in range(width):
            code = row[2 * x : 2 * x + 2].ljust(2)
            if code in HEADINGS:
                if pose is not None:
                    raise LayoutError(f"the map has a second agent at {(x, y)}, expected 1; the first is at {pose[:2]}")
                pose = (x, y, HEADINGS[code])
            else:
                grid.set(x, y, thing(code, x, y))
    if pose is None:
        raise LayoutError("the map has 0 agents, expected 1: put >>, VV, << or ^^ on it")
    _check_walls(grid)
    return grid, pose


def thing(code: str, x: int = 0, y: int = 0) -> WorldObj | None:
    """What two characters stand for."""
    if code in ("..", "  "):
        return None
    if code == "##" or code[0] == "W":
        return Wall()
    kind, colour = code[0], COLOURS.get(code[1])
    if kind not in "KABDOL" or colour is None:
        raise LayoutError(
            f"the map has '{code}' at column {x}, row {y}, expected ##, .., an agent (>> VV << ^^), or one of "
            f"K A B D O L followed by a colour ({' '.join(COLOURS)})"
        )
    if kind in "DOL":
        return Door(colour, is_open=kind == "O", is_locked=kind == "L")
    return {"K": Key, "A": Ball, "B": Box}[kind](colour)


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
                codes.append(next(code for code, heading in HEADINGS.items() if heading == pose[2]))
            elif cell is None:
                codes.append("..")
            elif cell.type == "wall":
                codes.append("##")
            elif cell.type == "door":
                codes.append(("O" if cell.is_open else "L" if cell.is_locked else "D") + LETTERS[cell.color])
            else:
                codes.append({"key": "K", "ball": "A", "box": "B"}[cell.type] + LETTERS[cell.color])
        lines.append("".join(codes))
    return "\n".join(lines)


_THING = re.compile(r"(?:a|the) (?:(red|green|blue|purple|yellow|grey) )?(ball|box|key|door)")


def parse_mission(mission: str) -> Instr:
    """The instruction that checks success, for the simulator; a planner never sees it."""
    for joint, both in ((", then ", BeforeInstr), (" after you ", AfterInstr), (" and ", AndInstr)):
        if joint in mission:
            left, right = (parse_mission(half) for half in mission.split(joint, 1))
            deepest = SeqInstr if both is AndInstr else BeforeInstr | AfterInstr
            if isinstance(left, deepest) or isinstance(right, deepest):
                raise LayoutError(f"the mission '{mission}' joins more things than BabyAI's language allows")
            return both(left, right)
    for verb, action in (("go to ", GoToInstr), ("open ", OpenInstr), ("pick up ", PickupInstr)):
        if mission.startswith(verb) and (named := _THING.fullmatch(mission.removeprefix(verb))):
            colour, kind = named.groups()
            if (action is OpenInstr) != (kind == "door") and action is not GoToInstr:
                raise LayoutError(
                    f"the mission says '{mission}', expected doors to be opened and other things picked up"
                )
            return action(ObjDesc(kind, colour))
    raise LayoutError(
        f"the mission '{mission}' is not understood; expected 'go to', 'open' or 'pick up' and a thing such as "
        "'the red ball', two of them joined by ' and ', ', then ' or ' after you '"
    )


def check_solvable(grid: Grid, pose: tuple[int, int, int], instruction: Instr, mission: str) -> None:
    """Every thing named must exist and be within reach, opening doors and moving things where possible.

    Objects in the way count as movable, and doors as passable once a key of their colour is within reach: what is
    refused here cannot be solved by anyone; a few maps that are too crowded to move things about may pass.
    """
    if grid.get(*pose[:2]) is not None:
        raise LayoutError(f"the agent starts at {pose[:2]} inside a {grid.get(*pose[:2]).type}, expected an empty cell")
    keys: set[str] = set()
    while True:
        touched = _reach(grid, pose[:2], keys)
        found = {cell.color for x, y in touched if (cell := grid.get(x, y)) is not None and cell.type == "key"}
        if found <= keys:
            break
        keys |= found
    for task in _tasks(instruction):
        desc = task.desc
        matching = [
            (x, y)
            for x in range(grid.width)
            for y in range(grid.height)
            if (cell := grid.get(x, y)) is not None and cell.type == desc.type and desc.color in (None, cell.color)
        ]
        what = " ".join(word for word in (desc.color, desc.type) if word)
        if not matching:
            raise LayoutError(f"the mission '{mission}' names a {what}, but the map has 0 of them; expected at least 1")
        if not any(place in touched for place in matching):
            where = ", ".join(str(place) for place in matching)
            raise LayoutError(
                f"the mission '{mission}' cannot be done: the {what} at {where} is out of reach of the agent at "
                f"{pose[:2]}; open a wall, or add a key for a locked door"
            )
        if isinstance(task, OpenInstr) and not any(
            place in touched and (not grid.get(*place).is_locked or grid.get(*place).color in keys)
            for place in matching
        ):
            raise LayoutError(
                f"the mission '{mission}' cannot be done: the {what} is locked, and no key of its colour is within "
                f"reach of the agent at {pose[:2]}; add one"
            )


def _reach(grid: Grid, start: tuple[int, int], keys: set[str]) -> set[tuple[int, int]]:
    """Cells that can be faced, walking wherever walls and doors without a key allow."""
    inside, touched, edge = {start}, set(), [start]
    while edge:
        x, y = edge.pop()
        for place in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            cell = grid.get(*place)
            touched.add(place)
            wall = cell is not None and cell.type == "wall"
            locked = cell is not None and cell.type == "door" and cell.is_locked and cell.color not in keys
            if place not in inside and not wall and not locked:
                inside.add(place)
                edge.append(place)
    return touched


def _tasks(instruction: Instr) -> list[ActionInstr]:
    if isinstance(instruction, ActionInstr):
        return [instruction]
    return _tasks(instruction.instr_a) + _tasks(instruction.instr_b)
