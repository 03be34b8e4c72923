"""Results by method and row, and the values of metrics in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from genplan import config, tasks
from genplan.bench.cell import DEMONSTRATIONS, Cell
from genplan.bench.stats import PairedRow
from genplan.bench.store import CellResult, ResultStore, is_current
from genplan.bench.suites import CONTROLS
from genplan.evaluate import Scores
from genplan.metrics import METRICS, Summary, path_efficiency, summarize_values
from genplan.planners import METHODS, default_settings
from genplan.render.numbers import format_number
from genplan.tasks.paper import ROWS, Row
from genplan.types import TEST_SEEDS, Metric

REFERENCE = "GenPlan-M"  # the method that all others are compared with
PRETRAINED = "pretrained"  # the column of planners that come with genplan
COMPARED = tuple(METRICS[name] for name in ("success", "spl", "spl_shortest"))  # in rows of the paper
PATH_METRICS = {"spl": "expert", "spl_shortest": "shortest"}  # weighted by path length: the length of whose path
LABELS = {"GenPlan-M-without-surprise": "GenPlan-M without outcome memory"}  # of results under older names
ResultPair = tuple[CellResult, CellResult]


def label(method: str) -> str:
    """The paper's name of a method, where it has one."""
    return (METHODS[method].label if method in METHODS else LABELS.get(method, "")) or method


def column_title(metric: Metric) -> str:
    return (metric.label or metric.name) + (" (%)" if metric.format.endswith("%") else "")


def value_texts(
    value: Callable[[str], float | None], metrics: Sequence[Metric] = COMPARED, empty: str = "–"
) -> list[str]:
    """What a table shows, whether a result or a claim says it."""
    return [format_number(value(metric.name), metric.format, empty) for metric in metrics]


def ordered(methods: Iterable[str]) -> list[str]:
    """Those of METHODS, the pretrained planners, any others, then the controls."""
    present, known = set(methods), (*METHODS, PRETRAINED)
    return [one for one in (*known, *sorted(present - {*known, *CONTROLS}), *CONTROLS) if one in present]


def privileged_methods() -> set[str]:
    return {name for name in METHODS if config.get(default_settings(name), "privileged_goals", False)}


class ResultTable:
    """Results of a store, found by method and row."""

    def __init__(self, store: ResultStore) -> None:
        self.results = store.results
        current = {id(result): is_current(result) for result in self.results}
        # What stands for a cell: a full set of episodes before a short one, current settings before others, the newest.
        by_priority = sorted(self.results, key=lambda result: (result.num_episodes, current[id(result)]))
        self.by_key = {_key(result.cell): result for result in by_priority}
        self.stale = {key for key, result in self.by_key.items() if not current[id(result)]}
        # Methods that receive goals from the simulator; results of planners from files say so themselves.
        found = {one.cell.method for one in self.results if one.privileged}
        self.privileged = privileged_methods() | found - set(CONTROLS)

    def find(self, method: str, row: str, **options: Any) -> CellResult | None:
        """The result of a cell; `options` are those of `Cell`, such as `seed`."""
        return self.by_key.get(_key(Cell(method, row, **options)))

    def find_current(self, method: str, row: str, **options: Any) -> CellResult | None:
        result = self.find(method, row, **options)
        return None if result is None or self.is_stale(result) else result

    def is_stale(self, result: CellResult) -> bool:
        """Whether it was measured with other settings than this version has."""
        return _key(result.cell) in self.stale

    def has(self, cell: Cell) -> bool:
        """Whether a cell was measured with current settings, in all its episodes."""
        result = self.by_key.get(_key(cell))
        return result is not None and not self.is_stale(result) and result.num_episodes >= cell.episodes

    def methods(self, rows: Sequence[Row]) -> list[str]:
        """Methods with a result in one of the rows, without controls."""
        names = {row.name for row in rows}
        usual = [key[0] for key in self.by_key if key[1] in names and key[3:] == (DEMONSTRATIONS, "default", "")]
        return [method for method in ordered(usual) if method not in CONTROLS]

    def own_rows(self) -> dict[str, list[Metric]]:
        """Rows that are not the paper's, with the metrics of their tasks, as the newest result has them."""
        return {one.cell.row: one.metrics for one in self.results if one.columns and one.cell.row not in ROWS}

    def scores(self, row: str) -> Scores:
        """All that was measured in such a row; names say what tells results of a method apart, and have its marks."""
        found = [(key, self.by_key[key]) for key in sorted(self.by_key) if key[1] == row]
        scores = {}
        for method in ordered(key[0] for key, _ in found):
            for one in (one for key, one in found if key[0] == method):
                name = " · ".join([self.marked(method), *one.cell.extra]) + " †" * self.is_stale(one)
                scores[name] = {metric.name: self.summary(one, metric.name) for metric in one.metrics}
        return scores

    def marked(self, method: str) -> str:
        """The label of a method, with a mark if it receives goals from the simulator."""
        return label(method) + " ◆" * (method in self.privileged)

    def pairs(self, method: str, rows: Sequence[Row]) -> list[ResultPair]:
        """Current results of the reference method and of another on equal seeds, in the rows that have both."""
        found = [(self.find_current(REFERENCE, row.name), self.find_current(method, row.name)) for row in rows]
        return [
            (one, other) for one, other in found
            if one and other and one.seeds == other.seeds and one.first_seed == TEST_SEEDS[0]
        ]  # fmt: skip

    def paired_rows(self, pairs: Sequence[ResultPair], metric: str) -> list[PairedRow] | None:
        """Values of a metric per seed, pair by pair; None if one of the results has none."""
        rows = [(self.values(one, metric), self.values(other, metric)) for one, other in pairs]
        complete: list[PairedRow] = [(one, other) for one, other in rows if one is not None and other is not None]
        return complete if len(complete) == len(rows) else None

    def values(self, result: CellResult, metric: str) -> list[float] | None:
        """A metric per seed, before it is divided by its weight; None if it was not measured or has no reference."""
        if metric in result.episodes:
            return list(result.episodes[metric])
        steps = self._reference_steps(result, PATH_METRICS[metric]) if metric in PATH_METRICS else None
        if steps is None:
            return None
        episodes = zip(result.episodes["success"], result.episodes["steps"], steps, strict=True)
        return [path_efficiency(bool(success), int(num_steps), best) for success, num_steps, best in episodes]

    def summary(self, result: CellResult, metric: str) -> Summary | None:
        """A metric over all episodes, with its 95 % interval."""
        if (values := self.values(result, metric)) is None:
            return None
        known = METRICS | {one.name: one for one in result.metrics}
        return summarize_values(known[metric], values, result.weights.get(metric))

    def value(self, result: CellResult | None, metric: str) -> float | None:
        """A metric over all episodes."""
        if result is None or (values := self.values(result, metric)) is None:
            return None
        return sum(values) / (sum(result.weights.get(metric, [1] * len(values))) or 1)

    def texts(self, result: CellResult | None, metrics: Sequence[Metric] = COMPARED, empty: str = "–") -> list[str]:
        """Metrics as text, and a mark if the settings were other ones."""
        mark = "†" if result is not None and self.is_stale(result) else ""
        return [*value_texts(partial(self.value, result), metrics, empty), mark]

    def mean(self, found: Sequence[CellResult | None], metric: str) -> float | None:
        """The mean of a metric over results; None unless all are there and have it."""
        values = [value for one in found if (value := self.value(one, metric)) is not None]
        return fmean(values) if values and len(values) == len(found) else None

    def _reference_steps(self, result: CellResult, name: str) -> list[int] | None:
        """Steps of a reference path on the seeds of a result; None unless all are known."""
        steps: Sequence[int | float | None] = result.references.get(name, ())
        if not steps and name == "expert":
            expert = self.find("expert", result.cell.row)
            if expert is not None and expert.first_seed == result.first_seed:
                steps = expert.episodes["steps"][: result.num_episodes]
        elif not steps and result.cell.row in ROWS:
            reference = tasks.get(ROWS[result.cell.row].task).references.get(name)
            steps = [] if reference is None else [reference(seed) for seed in result.seeds]
        known = [int(one) for one in steps if one is not None]
        return known if len(known) == result.num_episodes else None


def _key(cell: Cell) -> tuple[Any, ...]:
    """Cells with equal keys are shown in one place; the pretrained planners of all rows share a column."""
    pretrained = cell.row in ROWS and cell.method == f"pretrained:{ROWS[cell.row].train_task}"
    method = PRETRAINED if pretrained else cell.method
    return (method, cell.row, cell.seed, cell.demonstrations, cell.preset, cell.data or "")
