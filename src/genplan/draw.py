"""A plan in the terminal: the maze with the plan over it, and the denoising as the paper's appendix prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from genplan.data.tokens import PlanSpec

if TYPE_CHECKING:
    from genplan.flow import Trace

COLOURS = ("red", "green", "blue", "magenta", "yellow", "bright_black")
THINGS = {5: "⚷", 6: "●", 7: "▣", 8: "◈", 9: "~"}
HEADINGS = "▶▼◀▲"
STEPS = "→↓←↑"
ACTIONS = "lrfpdt"  # left, right, forward, pick up, drop, toggle
WALL, DOOR = 2, 4


def maze(
    spec: PlanSpec, image: NDArray[np.uint8], state: int, states: Sequence[int], goals: NDArray[np.int64] | None
) -> Text:
    """The map, the agent, the planned path (arrows) and the goal it is heading for (a star)."""
    assert spec.map_shape is not None
    width, height = spec.map_shape
    path = {spec.pose(int(token))[:2]: spec.pose(int(token))[2] for token in states[::-1]}
    stars = set() if goals is None else {spec.position(int(token)) for token in goals[0]}
    x_0, y_0, heading = spec.pose(state)
    text = Text()
    for y in range(height):
        for x in range(width):
            kind, colour, status = (int(number) for number in image[x, y])
            style = COLOURS[colour]
            if (x, y) == (x_0, y_0):
                text.append(f"{HEADINGS[heading]} ", "bold bright_red")
            elif (x, y) in stars:
                text.append("★ ", f"bold {style}")
            elif kind == WALL:
                text.append("██", "bright_black")
            elif kind == DOOR and status:
                text.append("╬ " if status == 2 else "┼ ", style)
            elif kind in THINGS:
                text.append(f"{THINGS[kind]} ", style)
            elif (x, y) in path:
                text.append(f"{STEPS[path[x, y]]} ", "bold cyan")
            elif kind == DOOR:
                text.append("╎ ", style)
            else:
                text.append("· ", "dim")
        text.append("\n")
    return text


def denoising(trace: Trace, row: int = 0, stream: str = "actions", mask: int | None = None) -> Table:
    """One line per iteration, one column per step of the plan; what changed is coloured."""
    tokens = trace.tokens[stream][:, row].numpy()
    if tokens.ndim > 2:
        tokens = tokens[..., 0]
    table = Table(box=SIMPLE, title=stream, padding=(0, 1, 0, 0))
    table.add_column("t", justify="right", style="dim")
    for step in range(tokens.shape[1]):
        table.add_column(f"k{step + 1}", justify="right")
    for number, line in enumerate(tokens):
        cells = []
        for step, token in enumerate(line):
            shown = (
                "·"
                if mask is not None and token == mask
                else ACTIONS[token]
                if stream == "actions" and token < len(ACTIONS)
                else str(token)
            )
            changed = number > 0 and tokens[number - 1, step] != token
            settled = mask is None or token != mask
            cells.append(Text(shown, "bold green" if changed else "" if settled else "red"))
        table.add_row(f"{float(trace.t[number]):.2f}", *cells)
    return table
