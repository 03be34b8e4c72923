"""Tables of one chapter: success beside the paper's numbers, means, and differences on equal seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any

from genplan.bench.board import SHOWN, Board, Pair
from genplan.bench.cell import UNTRAINED
from genplan.bench.comparison import Difference, chance, paired
from genplan.page import table
from genplan.tasks.table import TEST_SEEDS, WALKS, Row

EPISODES = len(TEST_SEEDS)
ONCE = "Each method was trained once: what another training would change is not in this."


def shown_name(board: Board, method: str) -> str:
    return escape(board.name(method))


def success(board: Board, rows: Sequence[Row]) -> str:
    methods = board.methods(rows)
    if not methods:
        return "<p>No cell of these rows has been run yet.</p>"
    lines = []
    for row in rows:
        found = {method: line for method in methods if (line := board.line(method, row.name))}
        best = max((board.score(line).success for line in found.values() if not board.mark(line)), default=0.0)
        cells = [
            success_cell(board, found.get(method), best) + _paper(row.paper.get(SHOWN.get(method, method)))
            for method in methods
        ]
        walks = [board.score(line).success for kind in WALKS if (line := board.line(f"walk:{kind}", row.name))]
        cells.append(f"{100 * max(walks):.1f}" if walks else "–")
        for control in (f"{UNTRAINED}GenPlan-M", "bot"):
            line = board.line(control, row.name)
            cells.append("–" if line is None else f"{100 * board.score(line).success:.1f}{board.mark(line)}")
        lines.append((escape(row.name), *cells))
    return table(("", *(shown_name(board, method) for method in methods), "walk", "untrained", "bot"), lines)


def success_cell(board: Board, line: Mapping[str, Any] | None, best: float = math.inf) -> str:
    if line is None:
        return "–"
    found = board.score(line)
    low, high = found.success_interval
    value = f"{100 * found.success:.1f}"
    shown = f"<b>{value}</b>" if found.success == best and not board.mark(line) else value
    spl = "" if found.spl is None else f"<br>{found.spl:.3f}"
    few = "" if found.episodes == EPISODES else f"<br>{found.episodes} episodes"
    return f'{shown}{board.mark(line)}<br><span class="soft">{100 * low:.0f}–{100 * high:.0f}{spl}{few}</span>'


def _paper(value: float | None) -> str:
    return "" if value is None else f"<br><i>{value:g}</i>"


def means(board: Board, rows: Sequence[Row]) -> str:
    """Over the rows that a method shares with GenPlan-M, so that nobody gains by what was not run."""
    lines = []
    standing: dict[str, dict[str, list[str]]] = {"success": {}, "SPL": {}}
    for method in board.methods(rows):
        pairs = board.pairs(method, rows)
        if not pairs:
            continue
        scores = [board.score(other) for _, other in pairs]
        ahead, further = _success_ahead(pairs), _efficiency_ahead(board, pairs)
        lines.append((
            shown_name(board, method),
            str(len(pairs)),
            f"{100 * fmean(found.success for found in scores):.1f}",
            "" if method == "GenPlan-M" else _points(ahead, chance(*pairs) <= 0.05),
            "–" if further is None else f"{fmean(found.spl or 0.0 for found in scores):.3f}",
            "" if method == "GenPlan-M" or further is None else _parts(further),
        ))  # fmt: skip
        if method not in ("GenPlan-M", "pretrained"):  # the latter has a budget of its own
            standing["success"].setdefault(_standing(ahead, chance(*pairs) <= 0.05), []).append(
                shown_name(board, method)
            )
            if further is not None:
                standing["SPL"].setdefault(_standing(further, further.is_clear), []).append(shown_name(board, method))
    if not lines:
        return ""
    head = ("", "rows", "mean success", "GenPlan-M ahead by", "mean SPL", "GenPlan-M ahead by")
    told = [
        f"In mean {what} GenPlan-M is {', '.join(f'{how} {_and(who)}' for how, who in sorted(found.items()))}."
        for what, found in standing.items()
        if found
    ]
    return f"<h3>Means over rows that both have</h3>{table(head, lines)}<p>{' '.join([*told, ONCE])}</p>"


def _success_ahead(pairs: Sequence[Pair]) -> Difference:
    return paired(*((own["success"], other["success"]) for own, other in pairs))


def _efficiency_ahead(board: Board, pairs: Sequence[Pair]) -> Difference | None:
    found = [(board.efficiencies(own), board.efficiencies(other)) for own, other in pairs]
    return paired(*found) if all(one and other for one, other in found) else None


def _standing(found: Difference, clear: bool) -> str:
    if not clear:
        return "level with"
    return "ahead of" if found.mean > 0 else "behind"


def _and(names: Sequence[str]) -> str:
    return " and ".join(", ".join(names).rsplit(", ", 1))


def differences(board: Board, rows: Sequence[Row]) -> str:
    methods = [method for method in board.methods(rows) if method != "GenPlan-M"]
    lines = []
    for row in rows:
        if board.line("GenPlan-M", row.name):
            lines.append((escape(row.name), *(_difference(board, board.pairs(method, [row])) for method in methods)))
    if not lines or not methods:
        return ""
    return (
        "<h3>GenPlan-M ahead by, on equal seeds</h3>"
        f"{table(('', *(shown_name(board, method) for method in methods)), lines)}"
        '<p class="soft">Points of success, and SPL, with 95 % intervals of the paired differences; ▲ GenPlan-M is '
        "ahead, ▼ it is behind, where chance in the drawing of seeds would do so less than once in twenty times "
        "(success: McNemar’s exact test, over several rows with what a seed does in all of them exchanged together; "
        f"SPL: by the interval), and “level” otherwise. {ONCE}</p>"
    )


def _difference(board: Board, pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "–"
    further = _efficiency_ahead(board, pairs)
    success = _points(_success_ahead(pairs), chance(*pairs) <= 0.05)
    return success + ("" if further is None else f"<br>{_parts(further)}")


def _points(found: Difference, clear: bool) -> str:
    shown = f"{100 * found.mean:+.1f}{_mark(found, clear)}{_soft(f'{100 * found.low:+.1f} … {100 * found.high:+.1f}')}"
    return shown.replace("-", "−").replace("+0.0", "0.0").replace("−0.0", "0.0")


def _parts(found: Difference) -> str:
    shown = f"{found.mean:+.3f}{_mark(found, found.is_clear)}{_soft(f'{found.low:+.3f} … {found.high:+.3f}')}"
    return shown.replace("-", "−")


def _mark(found: Difference, clear: bool) -> str:
    return "" if not clear else " ▲" if found.mean > 0 else " ▼"


def _soft(text: str) -> str:
    return f'<br><span class="soft">{text}</span>'
