"""A plan as text for a terminal: the grid with the plan over it, and the denoising as in the paper's appendix.

Everything is lines of segments, a text and its style in rich's notation, which `genplan.console` prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genplan.envs.grid import CHANNEL_SIZES
from genplan.errors import UserError
from genplan.flow import Trace
from genplan.spec import Actions, Observation, PlanSpec

Segment = tuple[str, str]  # text and style

# By MiniGrid's numbers of colors, cell types and door states.
COLORS = ("red", "green", "blue", "magenta", "yellow", "bright_black")
WALL, DOOR = 2, 4
OBJECTS = {5: "⚷", 6: "●", 7: "▣", 8: "◈", 9: "~"}  # key, ball, box, goal, lava
DOORS = ("╎", "┼", "╬")  # open, closed, locked
AGENTS = "▶▼◀▲"  # by direction
ARROWS = "→↓←↑"


def grid_lines(
    spec: PlanSpec, observation: Observation, states: Sequence[int] = (), goals: NDArray[np.int64] | None = None
) -> list[list[Segment]]:
    """The grid, the agent, the planned states (arrows) and the goals [H, G] of the next step (stars)."""
    geometry, grid_field, state_field = spec.geometry, spec.grid_field, spec.state_field
    if geometry is None or grid_field is None or state_field is None or geometry.directions != 4:
        raise UserError("there is no grid to draw, expected states that point at a grid, with 4 directions")
    path = {geometry.pose(int(state))[:2]: geometry.pose(int(state))[2] for state in states[::-1]}
    stars = set() if goals is None else {geometry.position(int(goal)) for goal in goals[0]}
    x_0, y_0, direction = geometry.pose(int(observation[state_field]))
    is_minigrid = spec.fields[grid_field].sizes == CHANNEL_SIZES
    lines = []
    for y in range(geometry.height):
        line: list[Segment] = []
        for x in range(geometry.width):
            symbols = [int(number) for number in observation[grid_field][x, y]]
            color = COLORS[symbols[1]] if is_minigrid else ""
            if (x, y) == (x_0, y_0):
                line.append((f"{AGENTS[direction]} ", "bold bright_red"))
            elif (x, y) in stars:
                line.append(("★ ", f"bold {color}".strip()))
            elif is_minigrid:
                line.append(_cell(symbols, color, path.get((x, y))))
            else:  # symbols of the task's own: the first number of the cell
                planned = path.get((x, y))
                line.append((f"{symbols[0]:<2}", "dim") if planned is None else (f"{ARROWS[planned]} ", "bold cyan"))
        lines.append(line)
    return lines


def _cell(symbols: Sequence[int], color: str, planned: int | None) -> Segment:
    cell_type, state = symbols[0], symbols[-1]
    if cell_type == WALL:
        return "██", "bright_black"
    if cell_type == DOOR and 0 < state < len(DOORS):
        return f"{DOORS[state]} ", color
    if cell_type in OBJECTS:
        return f"{OBJECTS[cell_type]} ", color
    if planned is not None:
        return f"{ARROWS[planned]} ", "bold cyan"
    return (f"{DOORS[0]} ", color) if cell_type == DOOR else ("· ", "dim")


@dataclass(frozen=True)
class DenoisingTable:
    """One row per network call, one column per step of the plan, after a column of times."""

    title: str
    columns: list[str]
    rows: list[list[Segment]]


def denoising_table(
    spec: PlanSpec, trace: Trace, *, row: int = 0, stream: str = "actions", mask: int | None = None
) -> DenoisingTable:
    """The tokens of one stream; those that changed since the call before stand out.

    row   which of the trace's rows, one per candidate
    mask  the token that stands for masked, if the noise is masks
    """
    tokens = trace.tokens[stream][:, row].cpu().numpy()
    if tokens.ndim > 2:  # of several tokens per step, the first
        tokens = tokens.reshape(*tokens.shape[:2], -1)[..., 0]
    names = _short_names(spec.actions) if stream == "actions" else ()
    rows: list[list[Segment]] = []
    for call, line in enumerate(tokens):
        cells = [(f"{float(trace.t[call]):.2f}", "dim")]
        for step, token in enumerate(line):
            text = "·" if token == mask else names[token] if token < len(names) else str(token)
            changed = call > 0 and tokens[call - 1, step] != token
            cells.append((text, "bold green" if changed else "red" if token == mask else ""))
        rows.append(cells)
    return DenoisingTable(stream, ["t", *(f"k{step + 1}" for step in range(tokens.shape[1]))], rows)


def _short_names(actions: Actions) -> tuple[str, ...]:
    """Initials of the actions, if no two are alike."""
    names = tuple(actions.name(action) for action in range(actions.n or 0))
    initials = tuple(name[0] for name in names)
    return initials if len(set(initials)) == len(names) else names
