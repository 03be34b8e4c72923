"""What the lines of cells say, by method and row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genplan.bench.cell import Cell
from genplan.bench.comparison import efficiencies, score
from genplan.bench.results import Results
from genplan.bench.suites import CONTROLS
from genplan.config import METHODS
from genplan.errors import UserError
from genplan.evaluate import Score
from genplan.tasks.table import ROWS, Row

ORDER = (*METHODS, "pretrained")
SHOWN = {"DT-noGC": "DT⊖GC", "LEAP-noGC": "LEAP⊖GC", "LEAP-H": "LEAP⊕H", "pretrained": "shipped"}
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


class Board:
    """Lines of cells, found by method and row."""

    def __init__(self, results: Results) -> None:
        self.lines = results.lines
        # The line that stands for a cell: whole rather than a short look, of today's settings if possible, the newest.
        by_worth = sorted(results.lines, key=lambda line: (len(line["success"]), _of_today(line)))
        self.newest = {self._key(line): line for line in by_worth}
        self.old = {key for key, line in self.newest.items() if not _of_today(line)}
        # Whom the simulator tells where the goals are; lines of one's own planners say so themselves.
        self.told = {name for name, settings in METHODS.items() if getattr(settings, "goals", False)}
        self.told |= {line["method"] for line in results.lines if line.get("told") and line["method"] not in CONTROLS}

    @staticmethod
    def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
        return (
            _kind(line["method"], line["row"]),
            line["row"],
            line["seed"],
            line["demonstrations"] or 1000,
            line["preset"] or "default",
        )

    def name(self, method: str) -> str:
        return SHOWN.get(method, method) + (" ◆" if method in self.told else "")

    def line(
        self, method: str, row: str, seed: int = 0, demonstrations: int = 1000, preset: str = "default"
    ) -> Mapping[str, Any] | None:
        return self.newest.get((method, row, seed, demonstrations, preset))

    def has(self, cell: Cell) -> bool:
        """Whether it was measured whole, with today's settings."""
        key = (_kind(cell.method, cell.row), cell.row, cell.seed, cell.demonstrations, cell.preset)
        return key in self.newest and key not in self.old and len(self.newest[key]["success"]) >= cell.episodes

    def mark(self, line: Mapping[str, Any]) -> str:
        return " †" if self._key(line) in self.old else ""

    def score(self, line: Mapping[str, Any]) -> Score:
        return score(line, self.line("bot", line["row"]))

    def efficiencies(self, line: Mapping[str, Any]) -> list[float]:
        """What each episode adds to SPL; nothing where the bot has not been run."""
        return efficiencies(line, self.line("bot", line["row"])) or []

    def pairs(self, method: str, rows: Sequence[Row]) -> list[Pair]:
        """GenPlan-M and a method, in the rows that both have, with today's settings, on equal seeds."""
        found = [(self.line("GenPlan-M", row.name), self.line(method, row.name)) for row in rows]
        return [
            (own, other)
            for own, other in found
            if own and other and not self.mark(own) and not self.mark(other)
            if (own["first_seed"], len(own["steps"])) == (other["first_seed"], len(other["steps"]))
        ]

    def methods(self, rows: Sequence[Row]) -> list[str]:
        """Those with a cell in one of the rows; one's own come last."""
        names = {row.name for row in rows}
        there = {key[0] for key in self.newest if key[1] in names and key[3:] == (1000, "default")}
        own = sorted(there - {*ORDER, *CONTROLS})
        return [method for method in ORDER if method in there] + own


def _kind(method: str, row: str) -> str:
    """The column of a planner: those shipped for a row share one."""
    known = row in ROWS and method == f"pretrained:{ROWS[row].trained_on}"
    return "pretrained" if known else method


def _of_today(line: Mapping[str, Any]) -> bool:
    """Whether a cell would be measured in the same way now."""
    try:
        cell = Cell(**line["config"]["cell"])
        gone = "content" in line["config"] and cell.content() is None  # somebody's own planner, out of sight
        return gone or bool(cell.config_hash == line["config_hash"])
    except (TypeError, KeyError, UserError):  # a kind of cell that there is no more
        return False
