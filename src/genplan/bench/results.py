"""The file of cells."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from genplan import checkpoint
from genplan.bench.cell import Cell
from genplan.errors import UserError

KEYS = {  # of a line
    "method", "row", "seed", "demonstrations", "preset", "config_hash", "config", "commit", "when", "training",
    "seconds", "planner_seconds", "plans", "first_seed", "success", "steps", "stalled",
}  # fmt: skip
KINDS = {"config": dict, "training": dict, "success": list, "steps": list, "stalled": list}


class Results:
    """The file of cells: one line of JSON each, never changed, only added to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def read(self) -> None:
        """What is there now; a last line that was broken off by a kill does not count."""
        self.lines: list[dict[str, Any]] = []
        try:
            text = self.path.read_text() if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.path} cannot be read ({error}); expected a file of benchmark cells") from error
        whole, _, self._broken = text.rpartition("\n")
        for number, line in enumerate(whole.splitlines(), 1):
            self.lines.append(self._checked(number, line))
        self._known = {line["config_hash"]: line for line in self.lines}

    def _checked(self, number: int, line: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UserError(f"{self.path}, line {number} is not JSON ({error}); mend or remove it") from error
        if (what := _wrong(found)) is not None:
            raise UserError(f"{self.path}, line {number} is no benchmark cell ({what}); mend or remove it")
        return dict(found)

    def mend(self) -> None:
        """Read again, and drop a broken end. Only for who holds the lock: nobody else may be writing."""
        self.read()
        if self._broken:
            checkpoint.write_atomically(self.path, "".join(f"{json.dumps(line)}\n" for line in self.lines).encode())

    def find(self, cell: Cell) -> dict[str, Any] | None:
        """What was measured for a cell with the very same settings."""
        return self._known.get(cell.config_hash)

    def add(self, line: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)
        self._known[line["config_hash"]] = line


def _wrong(found: Any) -> str | None:
    """What keeps it from being the line of a cell."""
    if not isinstance(found, dict):
        return "it is no object"
    if missing := sorted(KEYS - set(found)):
        return f"it has no '{missing[0]}'"
    if other := [name for name, kind in KINDS.items() if not isinstance(found[name], kind)]:
        return f"its '{other[0]}' is {json.dumps(found[other[0]])[:40]}"
    lengths = [len(found[name]) for name in ("success", "steps", "stalled")]
    return None if min(lengths) == max(lengths) > 0 else f"it has {lengths} successes, steps and stalled steps"
