"""Results of cells, and the file that holds them: one line of JSON each, appended and never changed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genplan import migrations
from genplan.bench.cell import Cell
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.types import Metric

VERSION = 2
ANY = object()  # whatever it is today, it changed nothing where it did not exist
# Settings that older lines lack, and what they must be today for nothing to have changed.
ADDED: Mapping[str, Any] = {
    "codec": ANY, "chain": ANY, "prefix_prob": ANY, "step_model": ANY, "word_attention": False, "frame_stack": False,
    "goal_temperature": None, "used_levels": None, "chunk": ANY, "levels": ANY, "codes": ANY,
}  # fmt: skip
Values = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class CellResult:
    """What was measured for a cell: the value of every metric in every episode, seed by seed."""

    cell: Cell
    settings: Mapping[str, Any]  # all that decides the result, as `Cell.settings` gave it then
    first_seed: int
    episodes: Values  # metric -> a value per seed; `success` and `steps` are always among them
    weights: Values = field(default_factory=dict)  # of metrics that are not plain means over episodes
    columns: Mapping[str, Any] = field(default_factory=dict)  # the task's metrics, headline first: how they are shown
    references: Mapping[str, Sequence[int | None]] = field(default_factory=dict)  # steps of `expert` and `shortest`
    training: Mapping[str, Any] = field(default_factory=dict)  # hash, cpu_minutes, steps, dataset, commit
    privileged: bool = False
    seconds: float = 0.0  # of all episodes, by the clock
    planner_seconds: float = 0.0
    cpu_seconds: float = 0.0
    num_plans: int = 0
    commit: str = ""
    when: str = ""

    @property
    def num_episodes(self) -> int:
        return len(self.episodes["success"])

    @property
    def metrics(self) -> list[Metric]:
        """Those of the task, as it declared them then: to show results, no task is made and no file is run."""
        try:
            return [Metric(name, lambda _: None, **column) for name, column in self.columns.items()]
        except TypeError as error:
            raise ValueError(f"its 'columns' are not those of metrics: {error}") from error

    @property
    def seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.num_episodes)

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        return {"version": VERSION, "cell": data.pop("cell"), "metrics": data.pop("episodes"), **data}

    @staticmethod
    def from_json(line: Any) -> CellResult:
        """A result from a line of any version; a ValueError says what is wrong with it."""
        if not isinstance(line, dict):
            raise ValueError("it is not an object")
        try:
            data = dict(line if line.get("version") == VERSION else migrations.migrate_cell(line))
            data.pop("version")
            result = CellResult(cell=Cell(**data.pop("cell")), episodes=data.pop("metrics"), **data)
        except KeyError as error:
            raise ValueError(f"it has no {error}") from error
        except (TypeError, AttributeError, UserError) as error:
            raise ValueError(str(error)) from error
        _check(result)
        return result


def _check(result: CellResult) -> None:
    for name in ("settings", "episodes", "weights", "columns", "references", "training", "first_seed"):
        if not isinstance(value := getattr(result, name), int if name == "first_seed" else dict):
            raise ValueError(f"its '{name}' is {json.dumps(value)[:40]}")
    for required in ("success", "steps"):
        if required not in result.episodes:
            raise ValueError(f"it has no metric '{required}'")
    for metric in result.metrics:
        if not all(isinstance(one, str) for one in (metric.label, metric.format, metric.interval)):
            raise ValueError(f"its column '{metric.name}' is {metric}")
        format(0.0, metric.format)
    lists = {**result.episodes, **{f"weight of {name}": one for name, one in result.weights.items()}}
    for name, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(one, int | float) for one in values):
            raise ValueError(f"its '{name}' is {json.dumps(values)[:40]}")
        if not all(map(math.isfinite, values)):
            raise ValueError(f"its '{name}' is not finite")
    lengths = {name: len(values) for name, values in {**lists, **result.references}.items()}
    if len(set(lengths.values())) > 1 or not result.num_episodes:
        raise ValueError(f"its numbers of episodes are {lengths}")


def is_current(result: CellResult) -> bool:
    """Whether the cell would be measured with the same settings by this version of genplan.

    A file that is named in a result is never run here, only its digest is compared.
    """
    recorded, cell = result.settings, result.cell
    try:
        if (digest := recorded.get("digest")) is not None or cell.is_from_file:
            if cell.digest() is None:  # a task or planner of somebody's own, which is not at hand
                return True
            if digest not in (cell.digest(), cell.digest_v1()):
                return False
            if cell.is_from_file:
                return ".py:" in cell.row or bool(recorded.get("oracle_version", 1) == cell.task.oracle_version)
        return _equal_settings(recorded, cell.settings())
    except (UserError, OSError):  # a row, method or setting that no longer exists
        return False


def _equal_settings(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether the settings are the same; digests are compared elsewhere."""
    parts = (set(recorded) | set(current)) - {"digest"}
    return all(name in recorded and name in current and _equal(recorded[name], current[name]) for name in parts)


def _equal(recorded: Any, current: Any) -> bool:
    """Equal plain data; ADDED settings did not exist then."""
    if isinstance(recorded, Mapping) and isinstance(current, Mapping):
        if set(recorded) - set(current) or set(current) - set(recorded) - set(ADDED):
            return False
        added = {name: ADDED[name] for name in set(current) - set(recorded)}
        unchanged = all(one is ANY or _equal(one, current[name]) for name, one in added.items())
        return unchanged and all(_equal(one, current[name]) for name, one in recorded.items())
    if isinstance(recorded, list) and isinstance(current, list):
        both = (sorted(one, key=_transform_name) for one in (recorded, current))
        return len(recorded) == len(current) and all(map(_equal, *both))
    return bool(recorded == current)


def _transform_name(value: Any) -> str:
    """Of a data transform, whose order does not matter; the same for anything else."""
    return str(value.get("name", "")) if isinstance(value, Mapping) else ""


class ResultStore:
    """The file of results, and what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def read(self) -> None:
        """Read what is there now; a last line that was cut off by a kill is ignored."""
        try:
            text = self.path.read_text() if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.path} cannot be read ({error}); expected a file of benchmark cells") from error
        self._whole, newline, self._broken = text.rpartition("\n")
        self._whole += newline
        self.results = [self._parse(number, line) for number, line in enumerate(self._whole.splitlines(), 1)]

    def _parse(self, number: int, line: str) -> CellResult:
        try:
            return CellResult.from_json(json.loads(line))
        except ValueError as error:
            what = "JSON" if isinstance(error, json.JSONDecodeError) else "a benchmark cell"
            raise UserError(f"{self.path}, line {number} is not {what} ({error}); correct or remove it") from error

    def repair(self) -> None:
        """Read again, and remove a cut-off last line. Only for the holder of the lock: nobody else may be writing."""
        self.read()
        if self._broken:
            write_atomically(self.path, self._whole.encode())

    def find(self, cell: Cell) -> CellResult | None:
        """What was measured last for a cell, with the settings that it has now."""
        found = (one for one in reversed(self.results) if one.cell == cell and is_current(one))
        if cell.is_from_file:  # it was named by the user, and may be run to learn its settings
            found = (one for one in found if _equal_settings(one.settings, cell.settings()))
        return next(found, None)

    def add(self, result: CellResult) -> None:
        """Append a result; a ValueError says what is wrong with it."""
        _check(result)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(result.to_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.results.append(result)
