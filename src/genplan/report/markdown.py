"""The tables of docs/results.md, rendered from cells, cards and studies, and put into the blocks that are marked there.

A block lies between the lines `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from genplan import checkpoint, migrations
from genplan.bench.cell import UNTRAINED
from genplan.bench.store import ResultStore
from genplan.bench.suites import suites
from genplan.bench.table import PRETRAINED, REFERENCE, ResultTable
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.render.numbers import format_interval, format_number
from genplan.report.tables import LABELS, best_random, format_value, mean_value, method_label
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
    if not (number := len(BLOCK.findall(text))):
        raise UserError(f"{path} has no blocks for tables, expected <!-- table: NAME --> … <!-- end -->")
    write_atomically(path, fill_blocks(text, render_results(store)).encode())
    return number


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, *rows)).replace("\n", f"\n|{'---|' * len(head)}\n", 1)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _read_card(path: Path) -> dict[str, Any]:
    return migrations.migrate_card(json.loads(path.read_text()))


def _recorded(record: Mapping[str, Any], metric: str) -> float | None:
    """A metric in the record of an evaluation."""
    summary: Mapping[str, float] = record["metrics"].get(metric) or {}
    return summary.get("value")


def _scores(value: Callable[[str], float | None], low: float, high: float) -> list[str]:
    """Success with its interval, and SPL against both references."""
    success, *path = (format_value(metric, value(metric)) for metric in LABELS)
    return [f"{success} ({format_interval(low, high, '.1%')})", *path]


def _recorded_scores(record: Mapping[str, Any]) -> list[str]:
    success = record["metrics"]["success"]
    return _scores(partial(_recorded, record), success["low"], success["high"])


def _paper(row: Row) -> str:
    return f"{max(row.paper['GenPlan-M'], row.paper['GenPlan-U']):g}"


def _pretrained(results: ResultTable, cards: Mapping[str, Any], controls: Sequence[Mapping[str, Any]]) -> str:
    """What the cards of the pretrained planners say, with controls."""
    untrained = {line["weights"]: line["success"] for line in controls if line["untrained"]}
    rows = []
    for row in ROWS.values():
        if row.split != "AP" and row.name in cards:
            card = cards[row.name]
            record, shares = card["results"], (best_random(results, row), untrained.get(card["weights"]))
            rows.append((
                row.name, *_recorded_scores(record), f"{format_number(_recorded(record, 'stalling'), '.1%')} %",
                format_number(_recorded(record, "steps"), ".1f"), f"{card['cpu_seconds'] / 60:.0f}", _paper(row),
                *(format_value("success", value, "") for value in shares),
                format_number(_recorded(record["baselines"]["expert"], "steps"), ".1f"),
            ))  # fmt: skip
    extra = ("stalling", "steps", "CPU-min", "paper", "random", "untrained", "expert steps")
    return _table(("row", *LABELS.values(), *extra), rows)


def _adaptive(results: ResultTable) -> str:
    """The pretrained planner of the task that the adaptive rows are trained on."""
    rows = []
    for row in ROWS.values():
        one = results.find_current(PRETRAINED, row.name)
        if row.split == "AP" and one is not None and (success := results.summary(one, "success")) is not None:
            untrained = results.value(results.find_current(f"{UNTRAINED}{REFERENCE}", row.name), "success")
            scores = _scores(partial(results.value, one), success.low, success.high)
            controls = [format_value("success", value, "") for value in (best_random(results, row), untrained)]
            rows.append((row.name, *scores, _paper(row), *controls))
    return _table(("row", *LABELS.values(), "paper", "random", "untrained"), rows)


def _methods(results: ResultTable, splits: Sequence[str]) -> str:
    """All methods of the benchmark: success, SPL, SPL against the shortest path; with their means."""
    rows = [row for row in ROWS.values() if row.split in splits and results.find_current(REFERENCE, row.name)]
    methods = [one for one in results.methods(rows) if any(results.find_current(one, row.name) for row in rows)]
    groups = {row.name: [row.name] for row in rows} | {"mean": [row.name for row in rows]}
    lines = [(name, *(_means(results, method, group) for method in methods)) for name, group in groups.items()]
    return _table(["row", *(method_label(results, method) for method in methods)], lines)


def _means(results: ResultTable, method: str, rows: Sequence[str], **options: Any) -> str:
    """Means over rows of the compared metrics; empty unless all rows were measured with current settings."""
    found = [results.find_current(method, row, **options) for row in rows]
    if not found or None in found:
        return ""
    return " ".join(format_value(metric, mean_value(results, found, metric)) for metric in LABELS)


def _demonstrations(results: ResultTable) -> str:
    cells = [cell for cell in suites()["demonstrations"]
             if results.find_current(cell.method, cell.row, demonstrations=cell.demonstrations)]  # fmt: skip
    numbers = sorted({cell.demonstrations for cell in cells})
    rows = [(f"{row}, {method}", *(_means(results, method, [row], demonstrations=number) for number in numbers))
            for row, method in dict.fromkeys((cell.row, cell.method) for cell in cells)]  # fmt: skip
    return _table(("", *map(str, numbers)), rows)


def _all_tasks(card: Mapping[str, Any], cards: Mapping[str, Any]) -> str:
    """One planner for all rows, and the planners of single rows."""
    rows = []
    for task, record in card["results"]["tasks"].items():
        own = [format_value(metric, _recorded(cards[task]["results"], metric)) for metric in ("success", "spl")]
        rows.append((task, *_recorded_scores(record), ", ".join(own)))
    return _table(("row", *LABELS.values(), "the row's own planner: success (%), SPL"), rows)


def _study(lines: Sequence[Mapping[str, Any]], name: str) -> str:
    """Short trainings that differ in one thing; `stall` is what older lines call stalling."""
    rows = []
    for line in lines:
        if line["study"] == name:
            stalling = f"{100 * line.get('stalling', line.get('stall', 0.0)):.1f} %"
            variant = VARIANTS.get(line["variant"], line["variant"])
            rows.append((line["row"], variant, *_scores(line.get, *line["success_interval"]), stalling))
    return _table(("row", "variant", *LABELS.values(), "stalling"), rows)
