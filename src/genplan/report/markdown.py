"""The tables of docs/results.md, rendered from cells, cards and studies, and put into the blocks that are marked there.

A block lies between the lines `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from genplan import checkpoint, migrations
from genplan.bench.cell import UNTRAINED
from genplan.bench.store import ResultStore
from genplan.bench.suites import RANDOM_CONTROLS, suites
from genplan.bench.table import REFERENCE, ResultTable
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.report.tables import LABELS, format_value, method_label
from genplan.tasks.paper import ROWS, Row

BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
VARIANTS = {"trail": "visit memory"}  # names of variants in older lines of studies


def render_results(store: ResultStore) -> dict[str, str]:
    """Tables by name. Cards of all tasks together, controls and studies are read from the folder of the store."""
    results, folder = ResultTable(store), store.path.parent
    cards = {name: _read_card(path / "card.json") for name, path in checkpoint.pretrained().items()}
    tables = {
        "pretrained": _pretrained(results, cards, _read_lines(folder / "controls.jsonl")),
        "adaptive": _adaptive(results),
        "methods": _methods(results, ("TP", "IC")),
        "methods-adaptive": _methods(results, ("AP",)),
        "demonstrations": _demonstrations(results),
    }
    if (folder / "all-card.json").exists():
        tables["all"] = _all_tasks(_read_card(folder / "all-card.json"), cards)
    studies = _read_lines(folder / "ablations.jsonl")
    return tables | {f"study-{name}": _study(studies, name) for name in ("memory", "subgoals")}


def fill_blocks(text: str, tables: Mapping[str, str]) -> str:
    """The text with a table in each of its marked blocks."""

    def fill(block: re.Match[str]) -> str:
        begin, name, _, end = block.groups()
        if name not in tables:
            raise UserError(f"there is no table '{name}'; known are {', '.join(tables)}")
        return f"{begin}\n{tables[name]}\n{end}"

    return BLOCK.sub(fill, text)


def fill_docs(path: Path, store: ResultStore) -> int:
    """Render the tables again in a file, which must have marked blocks; how many it has."""
    text = path.read_text()
    number = len(BLOCK.findall(text))
    if not number:
        raise UserError(f"{path} has no blocks for tables, expected <!-- table: NAME --> … <!-- end -->")
    write_atomically(path, fill_blocks(text, render_results(store)).encode())
    return number


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], f"|{'---|' * len(head)}\n", *lines[1:]])


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _read_card(path: Path) -> dict[str, Any]:
    return migrations.migrate_card(json.loads(path.read_text()))


def _metric(record: Mapping[str, Any], metric: str) -> float | None:
    """A metric in the record of an evaluation."""
    summary = record["metrics"].get(metric)
    return None if summary is None else float(summary["value"])


def _success(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def _recorded_success(record: Mapping[str, Any]) -> str:
    return _success(*(record["metrics"]["success"][name] for name in ("value", "low", "high")))


def _paper(row: Row) -> str:
    return f"{max(row.paper['GenPlan-M'], row.paper['GenPlan-U']):g}"


def _best_random(results: ResultTable, row: Row) -> str:
    """The best random policy, as measured; empty where none was."""
    values = [results.value(results.find_current(name, row.name), "success") for name in RANDOM_CONTROLS]
    return format_value("success", max((one for one in values if one is not None), default=None), "")


def _pretrained(results: ResultTable, cards: Mapping[str, Any], controls: Sequence[Mapping[str, Any]]) -> str:
    """What the cards of the pretrained planners say, with controls."""
    untrained = {line["weights"]: line["success"] for line in controls if line["untrained"]}
    rows = []
    for row in ROWS.values():
        if row.split != "AP" and row.name in cards:
            card = cards[row.name]
            record, expert = card["results"], card["results"]["baselines"]["expert"]
            rows.append((
                row.name,
                _recorded_success(record),
                *(format_value(metric, _metric(record, metric)) for metric in ("spl", "spl_shortest")),
                f"{100 * (_metric(record, 'stalling') or 0.0):.1f} %",
                f"{_metric(record, 'steps'):.1f}",
                f"{card['cpu_seconds'] / 60:.0f}",
                _paper(row),
                _best_random(results, row),
                format_value("success", untrained.get(card["weights"]), ""),
                f"{_metric(expert, 'steps'):.1f}",
            ))  # fmt: skip
    head = (*_head("row"), "stalling", "steps", "CPU-min", "paper", "random", "untrained", "expert steps")
    return _table(head, rows)


def _head(first: str) -> tuple[str, ...]:
    return (first, *LABELS.values())


def _adaptive(results: ResultTable) -> str:
    """The pretrained planner of the task that the adaptive rows are trained on."""
    rows = []
    for row in (row for row in ROWS.values() if row.split == "AP"):
        one = results.find_current("pretrained", row.name)
        summary = None if one is None else results.summary(one, "success")
        if one is not None and summary is not None:
            control = results.find_current(f"{UNTRAINED}{REFERENCE}", row.name)
            rows.append((
                row.name,
                _success(summary.value, summary.low, summary.high),
                *(format_value(metric, results.value(one, metric)) for metric in ("spl", "spl_shortest")),
                _paper(row),
                _best_random(results, row),
                format_value("success", results.value(control, "success"), ""),
            ))  # fmt: skip
    return _table((*_head("row"), "paper", "random", "untrained"), rows)


def _methods(results: ResultTable, splits: Sequence[str]) -> str:
    """All methods of the benchmark: success, SPL, SPL against the shortest path; with their means."""
    rows = [row for row in ROWS.values() if row.split in splits and results.find_current(REFERENCE, row.name)]
    methods = [one for one in results.methods(rows) if any(results.find_current(one, row.name) for row in rows)]
    lines = [[row.name, *(_entry(results, method, [row.name]) for method in methods)] for row in rows]
    lines.append(["mean", *(_entry(results, method, [row.name for row in rows]) for method in methods)])
    return _table(["row", *(method_label(results, method) for method in methods)], lines)


def _entry(results: ResultTable, method: str, rows: Sequence[str], **options: Any) -> str:
    """Means over rows of the compared metrics; empty unless all rows were measured with current settings."""
    found = [results.find_current(method, row, **options) for row in rows]
    if not found or any(one is None for one in found):
        return ""
    parts = []
    for metric in LABELS:
        values = [value for one in found if (value := results.value(one, metric)) is not None]
        parts.append(format_value(metric, fmean(values) if len(values) == len(found) else None))
    return " ".join(parts)


def _demonstrations(results: ResultTable) -> str:
    cells = [
        cell for cell in suites()["demonstrations"]
        if results.find_current(cell.method, cell.row, demonstrations=cell.demonstrations)
    ]  # fmt: skip
    numbers = sorted({cell.demonstrations for cell in cells})
    rows = [
        (f"{row}, {method}", *(_entry(results, method, [row], demonstrations=number) for number in numbers))
        for row, method in dict.fromkeys((cell.row, cell.method) for cell in cells)
    ]
    return _table(("", *map(str, numbers)), rows)


def _all_tasks(card: Mapping[str, Any], cards: Mapping[str, Any]) -> str:
    """One planner for all rows, and the planners of single rows."""
    rows = [
        (
            task,
            _recorded_success(record),
            *(format_value(metric, _metric(record, metric)) for metric in ("spl", "spl_shortest")),
            ", ".join(format_value(metric, _metric(cards[task]["results"], metric)) for metric in ("success", "spl")),
        )
        for task, record in card["results"]["tasks"].items()
    ]
    return _table((*_head("row"), "the row's own planner: success (%), SPL"), rows)


def _study(lines: Sequence[Mapping[str, Any]], name: str) -> str:
    """Short trainings that differ in one thing; `stall` is what older lines call stalling."""
    rows = [
        (
            line["row"],
            VARIANTS.get(line["variant"], line["variant"]),
            _success(line["success"], *line["success_interval"]),
            *(format_value(metric, line.get(metric)) for metric in ("spl", "spl_shortest")),
            f"{100 * line.get('stalling', line.get('stall', 0.0)):.1f} %",
        )
        for line in lines
        if line["study"] == name
    ]
    return _table(("row", "variant", *LABELS.values(), "stalling"), rows)
