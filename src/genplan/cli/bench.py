"""Commands on benchmarks: run cells, and report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from genplan.errors import UserError

RESULTS = Path("results/cells.jsonl")


def bench_run(
    suite: Positional[str],
    max_minutes: float | None = None,
    workers: int = 2,
    rows: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    planner: str | None = None,
    data: str | None = None,
    demonstrations: int | None = None,
    steps: int | None = None,
    episodes: int | None = None,
    results: Path = RESULTS,
    runs: Path = Path("runs/bench"),
) -> int:
    """Run the cells of a benchmark that are missing; stop at any time, the same command continues.

    Args:
        suite: adaptive, main, times, demonstrations, or tiny (a minute, to see that all works); or any task: its name,
            or file.py:task for your own, with its controls and methods that learn from its demonstrations.
        max_minutes: Then begin no new cell, stop trainings (they continue next time) and finish evaluations.
        workers: Cells at a time, one thread each.
        rows: Only these rows (by default all of the suite).
        methods: Only these methods; on a task by itself, GenPlan-M and BC by default.
        planner: This one as well, on the rows of the suite: a method or file.py:Class of your own, which is trained
            like the others if it learns, or a run folder.
        data: The Minari dataset to learn from (by default demonstrations of the task's expert, collected if absent).
        demonstrations: How many are collected, if other than the cells have.
        steps: Training steps in place of the budget.
        episodes: Only the first of the test seeds.
        results: The file of cells, one line of JSON each.
        runs: Where trainings are kept.
    """
    from genplan import bench
    from genplan.console import bench_progress, bench_tables
    from genplan.tasks.files import import_object

    if planner is not None and ".py:" in planner:
        import_object(planner)  # a wrong name is reported before anything starts
    changes = {"data": data, "demonstrations": demonstrations, "steps": steps, "episodes": episodes}
    if wrong := [name for name, number in changes.items() if isinstance(number, int) and number < 1]:
        raise UserError(f"{wrong[0]} is {changes[wrong[0]]}, expected at least 1")
    cells = bench.select(suite, rows, methods, planner, **changes)
    console, store = Console(), bench.ResultStore(results)
    missing = [cell for cell in cells if store.find(cell) is None]
    console.print(f"{suite}: {len(cells)} cells, {len(cells) - len(missing)} of them in {results}")
    failed = []
    with bench_progress(console, bench.estimated_minutes(missing, runs)) as on_event:
        for event in bench.run_cells(cells, store, runs, workers, max_minutes):
            on_event(event)
            if event.type == "failed":
                failed.append(f"{event.cell.name}: {event.detail}")
    for shown in bench_tables(bench.ResultTable(store), list(dict.fromkeys(cell.row for cell in cells))):
        console.print(shown)
    found = sum(store.find(cell) is not None for cell in cells)
    flag = "" if results == RESULTS else f" --results {results}"
    console.print(f"{found} of {len(cells)} cells are in {results}; for a page: genplan report{flag}")
    for reason in failed:
        console.print(f"failed: {reason}", style="red", markup=False)
    return 1 if failed else 0


def report(results: Path = RESULTS, out: Path = Path("results/report.html")) -> int:
    """Write one page of all benchmark results that there are, beside the paper's numbers.

    Args:
        results: The file of cells, as `genplan bench run` fills it.
        out: The page; it needs no other file.
    """
    from genplan import report as pages

    Console().print(f"{pages.benchmark_page(results, out)} written")
    return 0
