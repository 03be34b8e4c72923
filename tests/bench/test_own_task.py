"""Any task is a row: a built-in one by its name, one's own as `file.py:task`, with its own metrics."""

import dataclasses
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from genplan import console, report, tasks
from genplan.bench import Cell, ResultStore, ResultTable, run_cells, select, suites
from genplan.bench import run as bench_run
from genplan.bench.claims import derive
from genplan.bench.store import is_current
from genplan.collect import CollectConfig, collect
from genplan.errors import UserError
from tests.bench.samples import make_result

CARTPOLE = Path(__file__).parents[2] / "examples" / "cartpole.py"
SHORT = """
from dataclasses import replace
from pathlib import Path
from genplan.types import Metric

tilt = Metric("tilt", lambda rollout: float(abs(rollout.observations["observation"][-1][2])), higher_is_better=False,
              format=".4f", label="last <tilt>")
task = replace(task, max_steps=12, metrics=(tilt, "return", "num_plans"))
Path("ran").touch()
"""
TINY = {"demonstrations": 8, "steps": 2, "episodes": 3}


@pytest.fixture
def row(tmp_path, monkeypatch):
    """CartPole with short episodes and a metric of its own, in a file that leaves a trace when it is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    monkeypatch.setattr("genplan.collect.CHUNK", 8)
    (tmp_path / "short.py").write_text(CARTPOLE.read_text() + SHORT)
    return "short.py:task"


def run_all(cells, folder):
    store = ResultStore(folder / "cells.jsonl")
    for cell in cells:
        store.add(bench_run.run_cell(cell, folder, lambda fraction: None))
    return ResultStore(store.path)


def shown(store, row):
    out = Console(file=io.StringIO(), width=100)
    for table in console.bench_tables(ResultTable(store), [row]):
        out.print(table)
    return out.file.getvalue()


def test_ones_own_task_is_measured_and_shown_with_its_own_metrics(row, tmp_path):
    cells = select(row, **TINY)
    methods = ["expert", "random:uniform", "untrained:GenPlan-M", "GenPlan-M", "BC"]
    assert [cell.method for cell in cells] == methods
    store = run_all(cells, tmp_path)
    assert not list(run_cells(cells, store, tmp_path))  # nothing is missing
    for result in store.results:
        assert [metric.name for metric in result.metrics] == ["tilt", "return", "num_plans"]
        assert {"success", "steps", "tilt", "return", "num_plans"} == set(result.episodes)
    learned = store.find(cells[-1])
    assert learned.training["dataset"]["name"] == "genplan/short/expert-8-v0"
    assert bench_run.run_cell(cells[-1], tmp_path, lambda fraction: None).episodes == learned.episodes  # not run again

    (tmp_path / "ran").unlink()
    summary = ResultTable(store).summary(learned, "tilt")
    texts = f"{summary.value:.4f}", f"{summary.low:.4f}–{summary.high:.4f}"
    text, page = shown(store, row), report.benchmark_page(store.path, tmp_path / "page.html").read_text()
    assert all(one in text and one in page for one in (*texts, "BC · 8 demonstrations", "untrained:GenPlan-M"))
    assert "<th></th><th>last &lt;tilt&gt;</th><th>return</th><th>plans</th>" in page  # the headline first
    assert derive(store)  # and nothing of a task that is no row of the paper is in the way
    assert not (tmp_path / "ran").exists()  # to show results, no file is run


def test_methods_are_compared_over_tasks_with_equal_metrics(row, tmp_path):
    column = {"label": "", "format": ".2f", "interval": "bootstrap", "higher_is_better": True}
    store = ResultStore(tmp_path / "cells.jsonl")
    for method, value in (("GenPlan-M", 2.0), ("BC", 1.0)):
        result = make_result(Cell(method, row), [0] * 250, columns={"return": column})
        store.add(dataclasses.replace(result, episodes={**result.episodes, "return": [value] * 250}))
    page = report.benchmark_page(store.path, tmp_path / "page.html").read_text()
    assert "<th>mean return</th>" in page
    assert "+1.00 ▲" in page
    assert "In mean return GenPlan-M is better than BC." in page
    assert derive(store)[f"cell/BC/{row}"].metrics == {"return": [1.0, 1.0, 1.0]}


def test_another_version_of_the_task_is_another_cell(row, tmp_path):
    cell = Cell("BC", row, **TINY)
    result, training = make_result(cell, [1, 0, 1]), cell.training_hash
    (tmp_path / "ran").unlink()
    assert is_current(result)
    path = tmp_path / "short.py"
    path.write_text(path.read_text() + "\n# another\n")
    assert not is_current(result)
    assert not is_current(dataclasses.replace(result, settings={}))
    assert not (tmp_path / "ran").exists()
    assert cell.training_hash != training
    path.unlink()  # somebody else's task
    assert is_current(result)


def test_a_task_without_an_expert_learns_from_a_dataset_that_is_named(row, tmp_path):
    data = collect(CollectConfig(row, 8), workers=1)
    path = tmp_path / "short.py"
    path.write_text(path.read_text() + "\ntask = replace(task, expert=None)\n")
    cells = select(row, methods=["BC"], data=data.name, steps=2, episodes=2)
    assert [(cell.method, cell.data) for cell in cells] == [
        ("random:uniform", None), ("untrained:GenPlan-M", data.name), ("BC", data.name)]  # fmt: skip
    store = run_all(cells[2:], tmp_path)
    assert store.results[0].training["dataset"]["name"] == data.name
    assert f"BC · {data.name}" in shown(store, row)


def test_names_of_tasks_and_rows(monkeypatch):
    assert select("MazeS4G1", methods=["LEAP"])[0] == Cell("expert", "MazeS4G1")  # a cell of the suite `main`
    by_itself = Cell("BC", "LocS10N1")  # no row of the paper
    assert by_itself.table_row.split == "own"
    assert by_itself.train_task.name == by_itself.task.name == "LocS10N1"
    assert [cell.method for cell in select("LocS10N1", planner="DT-noGC")] == [
        "DT-noGC", "expert", "random:uniform", "random:demos", "random:forward", "untrained:GenPlan-M", "GenPlan-M",
        "BC"]  # fmt: skip
    with pytest.raises(UserError, match="no suite 'MazeS9'; known are adaptive"):
        select("MazeS9")
    with pytest.raises(UserError, match="no row 'MazeS4G2'"):
        select("MazeS4G1", rows=["MazeS4G2"])


def test_a_suite_holds_rows_that_are_not_the_papers(monkeypatch):
    """Such as robots, whose tasks have metrics of their own."""
    task = dataclasses.replace(tasks.get(f"{CARTPOLE}:task"), name="Arm")
    monkeypatch.setitem(tasks.TASKS, "Arm", lambda: task)
    robots = [Cell(method, "Arm") for method in ("GenPlan-M", "BC")]
    known = suites()
    monkeypatch.setattr(sys.modules[select.__module__], "suites", lambda: {**known, "robots": robots})
    assert select("robots", rows=["Arm"], methods=["BC"], episodes=5) == [Cell("BC", "Arm", episodes=5)]
    assert robots[0].settings()["training"]["steps"] == 5000
