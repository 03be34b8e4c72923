"""Claims that follow from files: cells of the benchmark, cards, controls, studies, and the paper's numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from genplan import checkpoint
from genplan.bench.cell import DEMONSTRATIONS, Cell
from genplan.bench.ledger import Claim, rounded
from genplan.bench.store import ResultStore
from genplan.bench.suites import CONTROLS
from genplan.bench.table import COMPARED, REFERENCE, ResultTable
from genplan.metrics import METRICS
from genplan.migrations import migrate_card
from genplan.tasks.paper import ROWS
from genplan.types import TEST_SEEDS

STUDIES = ("memory", "subgoals", "tuning")
VARIANTS = {"trail": "visit memory"}  # names of variants in older lines of studies
DERIVED = ("cell/", "mean/", "card/", "all", "untrained/", "study/", "paper/")  # how the ids of all these begin
TEST = f"{TEST_SEEDS[0]}–{TEST_SEEDS[-1]}", len(TEST_SEEDS)  # seeds and episodes
Found = Iterator[tuple[str, Claim]]


def derive(store: ResultStore) -> dict[str, Claim]:
    """All claims that need no measurement."""
    results, folder = ResultTable(store), store.path.parent
    return dict([*_cells(results), *_means(results), *_cards(folder), *_studies(folder), *_paper()])


def cell_id(cell: Cell, method: str) -> str:
    extra = [f"{cell.demonstrations} demonstrations"] if cell.demonstrations != DEMONSTRATIONS else []
    extra += [f"seed {cell.seed}"] if cell.seed else []
    extra += [cell.data] if cell.data else []
    return "/".join(["cell", method, cell.row, *extra, *([cell.preset] if cell.preset != "default" else [])])


def _cells(results: ResultTable) -> Found:
    """Every cell that was measured with current settings on the test seeds."""
    for key, result in sorted(results.by_key.items(), key=lambda item: item[0]):
        if not results.is_stale(result) and result.seeds == TEST_SEEDS:
            cell = result.cell
            metrics = (*COMPARED, METRICS["steps"]) if cell.row in ROWS else result.metrics
            summaries = {metric.name: results.summary(result, metric.name) for metric in metrics}
            yield cell_id(cell, key[0]), Claim(
                "cell", {name: rounded((one.value, one.low, one.high)) for name, one in summaries.items() if one},
                f"genplan bench run {_suite(cell)} --methods {cell.method}", *TEST,
                commit=result.commit, minutes=result.training.get("cpu_minutes", 0.0),
            )  # fmt: skip


def _suite(cell: Cell) -> str:
    if cell.row not in ROWS:
        return cell.row
    suite = "adaptive" if cell.table_row.split == "AP" else "main"
    return f"{'demonstrations' if cell.demonstrations != DEMONSTRATIONS else suite} --rows {cell.row}"


def _means(results: ResultTable) -> Found:
    """Over all rows with a result of the reference method; only of methods that have all of these."""
    for splits, suite in (("TP+IC", "main"), ("AP", "adaptive")):
        rows = [row for row in ROWS.values() if row.split in splits and results.find_current(REFERENCE, row.name)]
        for method in (*results.methods(rows), *CONTROLS):
            found = [results.find_current(method, row.name) for row in rows]
            if rows and None not in found:
                metrics = {metric.name: rounded([mean]) for metric in COMPARED
                           if (mean := results.mean(found, metric.name)) is not None}  # fmt: skip
                yield f"mean/{method}/{splits}", Claim("cell", metrics, f"genplan bench run {suite}", *TEST)


def _cards(folder: Path) -> Found:
    """What the cards of planners say, and the controls that were run with their weights."""
    untrained = {line["weights"]: line for line in _lines(folder / "controls.jsonl") if line["untrained"]}
    for name, path in checkpoint.pretrained().items():
        card = checkpoint.read_card(path)
        yield f"card/{name}", _of_record(card["results"], "genplan export RUN", card)
        if (line := untrained.get(card["weights"])) is not None:
            yield f"untrained/{name}", Claim("record", _of_line(line), f"genplan eval pretrained:{name} --untrained",
                                             *TEST, line["commit"], round(line["seconds"] / 60, 1))  # fmt: skip
    if (path := folder / "all-card.json").exists():
        card = migrate_card(json.loads(path.read_text()))
        yield "all", _of_record(card["results"], "genplan train all", card)
        for row, record in card["results"]["tasks"].items():
            yield f"all/{row}", _of_record(record, f"genplan eval RUN --task {row}")


def _of_record(record: Mapping[str, Any], command: str, card: Mapping[str, Any] | None = None) -> Claim:
    """The record of an evaluation; with a card, also what was trained."""
    scores = {"": record, **{f"{name}_": one for name, one in record.get("baselines", {}).items()}}
    metrics = {
        prefix + name: rounded([number for number in one.values() if number is not None])
        for prefix, score in scores.items()
        for name, one in score["metrics"].items()
        if one is not None and name in METRICS
    }
    minutes = 0.0
    if card:
        minutes = round(card["cpu_seconds"] / 60, 1)
        trained = {"parameters": "parameters", "cpu_seconds": "cpu_seconds", "training_steps": "steps"}
        metrics |= {name: rounded([card[key]]) for name, key in trained.items()}
    return Claim("record", metrics, command, TEST[0], record["num_episodes"], record.get("commit") or "", minutes)


def _studies(folder: Path) -> Found:
    """Short trainings that differ in one thing; `stall` is what older lines call stalling."""
    for line in _lines(folder / "ablations.jsonl"):
        if line["study"] in STUDIES:
            variant, (first, last) = VARIANTS.get(line["variant"], line["variant"]), line["seeds"]
            metrics = {**_of_line(line), "stalling": rounded([line.get("stalling", line.get("stall", 0.0))])}
            yield f"study/{line['study']}/{line['row']}/{variant}", Claim(
                "record", metrics, f"python benchmarks/ablations.py {line['study']}", f"{first}–{last}",
                last - first + 1, line["commit"], line.get("cpu_minutes", 0.0),
            )  # fmt: skip


def _of_line(line: Mapping[str, Any]) -> dict[str, list[float]]:
    return {"success": rounded((line["success"], *line["success_interval"])), "spl": rounded([line["spl"]])}


def _paper() -> Found:
    for row in ROWS.values():
        numbers = {**row.paper, "best": max(row.paper["GenPlan-M"], row.paper["GenPlan-U"])}
        yield f"paper/{row.name}", Claim("paper", {name: rounded([number]) for name, number in numbers.items()})


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
