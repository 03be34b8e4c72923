"""A plan as text for a terminal: the grid with the plan over it, and the denoising as in the paper's appendix.

Everything is lines of segments, a text and its style in rich's notation, which `genplan.console` prints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genplan.envs.babyai import CHANNEL_SIZES
from genplan.errors import UserError
from genplan.flow import Trace
from genplan.spec import Observation, PlanSpec
from genplan.types import OpenLoop

Segment = tuple[str, str]  # text and style

# By MiniGrid's numbers of colors, cell types and door states.
COLORS = ("red", "green", "blue", "magenta", "yellow", "bright_black")
WALL, DOOR = 2, 4
OBJECTS = {5: "⚷", 6: "●", 7: "▣", 8: "◈", 9: "~"}  # key, ball, box, goal, lava
DOORS = ("╎", "┼", "╬")  # open, closed, locked
AGENTS = "▶▼◀▲"  # by direction
ARROWS, EXECUTED_ARROWS = "→↓←↑", "⇒⇓⇐⇑"
PLANNED, BEHIND, EXECUTED = "bold cyan", "bright_black", "bold bright_magenta"  # styles


def grid_lines(
    spec: PlanSpec, observation: Observation, states: Sequence[int] = (), goals: NDArray[np.int64] | None = None,
    executed: OpenLoop | None = None,
) -> list[list[Segment]]:  # fmt: skip
    """The grid, the agent, the planned states (arrows) and the goals [H, G] of the next step (stars); and, where
    `executed` says so, what the actions do apart from the planned states, and what is behind the arrival."""
    geometry, grid_field, state_field = spec.geometry, spec.grid_field, spec.state_field
    if geometry is None or grid_field is None or state_field is None or geometry.directions != 4:
        raise UserError("there is no grid to draw, expected states that point at a grid, with 4 directions")
    path: dict[tuple[int, int], Segment] = {}
    for style, arrows, shown in reversed(_paths(states, executed)):
        path |= {(x, y): (arrows[direction], style) for x, y, direction in map(geometry.pose, reversed(shown))}
    per_cell = spec.goals.directions if spec.goals is not None and spec.goals.points_at == grid_field else 0
    stars = {geometry.position(int(goal) // per_cell) for goal in goals[0]} if goals is not None and per_cell else set()
    x_0, y_0, direction = geometry.pose(int(observation[state_field]))
    show_cell = _minigrid_cell if spec.fields[grid_field].sizes == CHANNEL_SIZES else _other_cell
    lines = []
    for y in range(geometry.height):
        line: list[Segment] = []
        for x in range(geometry.width):
            text, style = show_cell(observation[grid_field][x, y].tolist(), path.get((x, y)))
            if (x, y) == (x_0, y_0):
                text, style = AGENTS[direction], "bold bright_red"
            elif (x, y) in stars:
                text, style = "★", f"{style} bold not dim"
            line.append((f"{text:<2}", style))
        lines.append(line)
    return lines


def _paths(states: Sequence[int], executed: OpenLoop | None) -> list[tuple[str, str, Sequence[int]]]:
    """What is drawn with which style and arrows; what is drawn over the rest comes first."""
    if executed is None:
        return [(PLANNED, ARROWS, states)]
    end = len(states) if executed.arrival is None else executed.arrival + 1
    apart = executed.came[executed.came != executed.planned].tolist()
    return [(EXECUTED, EXECUTED_ARROWS, apart), (PLANNED, ARROWS, states[:end]), (BEHIND, ARROWS, states[end:])]


def legend(executed: OpenLoop) -> list[list[Segment]]:
    """What marks mean that not every plan has."""
    lines: list[list[Segment]] = []
    if (executed.came != executed.planned).any():
        lines.append([("⇒", EXECUTED), (" what the actions do, where that is not what was planned", "")])
    if executed.arrival is not None and executed.arrival < executed.horizon:
        lines.append([("→", BEHIND), (f" behind the arrival, which is after {executed.arrival} actions", "")])
    return lines


def _minigrid_cell(symbols: Sequence[int], arrow: Segment | None) -> Segment:
    """What stands in the way of a plan is shown rather than its arrow."""
    cell_type, color, state = symbols
    if cell_type == WALL:
        return "██", "bright_black"
    if cell_type == DOOR and (state or arrow is None):
        return DOORS[state], COLORS[color]
    if cell_type in OBJECTS:
        return OBJECTS[cell_type], COLORS[color]
    return ("·", "dim") if arrow is None else arrow


def _other_cell(symbols: Sequence[int], arrow: Segment | None) -> Segment:
    """Symbols of the task's own: the first number of the cell."""
    return (str(symbols[0]), "dim") if arrow is None else arrow


def denoising_rows(spec: PlanSpec, trace: Trace, mask: int | None, arrival: int | None = None) -> list[list[Segment]]:
    """One row per network call: its time, and the action tokens; those that changed since the call before stand out.

    mask     the token that stands for masked, if the noise is masks
    arrival  after how many actions the episode succeeds: those behind are grey in the last row
    """
    tokens = trace.tokens["actions"][:, 0].cpu().numpy()
    tokens = tokens.reshape(*tokens.shape[:2], -1)[..., 0]  # of several tokens per step, the first
    names = [spec.actions.name(action) for action in range(spec.actions.n or 0)]
    if len({name[0] for name in names}) == len(names):
        names = [name[0] for name in names]  # initials are enough
    rows = []
    for call, line in enumerate(tokens):
        row = [(f"{float(trace.t[call]):.2f}", "dim")]
        for step, token in enumerate(line):
            text = "·" if token == mask else names[token] if token < len(names) else str(token)
            changed = call > 0 and tokens[call - 1, step] != token
            behind = arrival is not None and step >= arrival and call + 1 == len(tokens)
            row.append((text, BEHIND if behind else "bold green" if changed else "red" if token == mask else ""))
        rows.append(row)
    return rows
