"""Results by method and row, and the metrics that follow from them."""

import dataclasses
from pathlib import Path

import pytest

from genplan import tasks
from genplan.bench import Cell, ResultStore, ResultTable
from genplan.bench.table import label
from genplan.metrics import wilson
from genplan.tasks.paper import ROWS
from tests.bench.samples import make_result


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "cells.jsonl")


def test_metrics_of_a_result(store):
    result = make_result(Cell("GenPlan-M", "MazeS4G1"), [1, 1, 1, 0])
    result = dataclasses.replace(result, episodes={**result.episodes, "stalling": [1, 2, 3, 4]})
    store.add(result)
    table = ResultTable(store)
    success = table.summary(result, "success")
    assert (success.value, success.low, success.high) == (0.75, *wilson(3, 4))
    assert table.value(result, "stalling") == 10 / 40  # of all steps, not of episodes
    assert table.value(result, "steps") == 10
    assert table.values(result, "return") is None
    assert table.values(result, "spl") is None  # the expert was not run
    assert table.summary(result, "spl") is None
    store.add(make_result(Cell("expert", "MazeS4G1"), [1] * 4, steps=5))
    assert ResultTable(store).values(result, "spl") == [0.5, 0.5, 0.5, 0]
    assert ResultTable(store).value(result, "spl") == pytest.approx(0.375)


def test_shortest_paths_are_a_second_reference(store, monkeypatch):
    result = make_result(Cell("expert", "MazeS4G1"), [1, 1, 1, 0])
    store.add(result)
    steps = {1234: 10, 1235: 5, 1236: 2, 1237: 1}
    task = dataclasses.replace(tasks.get("MazeS4G1"), references={"shortest": steps.get})
    monkeypatch.setattr(tasks, "get", lambda name: task)
    assert ResultTable(store).values(result, "spl_shortest") == [1, 0.5, 0.2, 0]
    assert ResultTable(store).values(result, "spl") == [1, 1, 1, 0]
    recorded = dataclasses.replace(result, references={"shortest": [20, 20, 20, 20]})
    assert ResultTable(store).values(recorded, "spl_shortest") == [1, 1, 1, 0]
    del steps[1236]  # the search did not end
    assert ResultTable(store).values(result, "spl_shortest") is None


def test_the_shortest_path_is_hardly_ever_longer_than_the_experts():
    table = ResultTable(ResultStore(Path(__file__).parents[2] / "results" / "cells.jsonl"))
    for row in ROWS.values():
        expert, shortest = table.find("expert", row.name), tasks.get(row.task).references["shortest"]
        longer = 0
        for seed, success, steps in zip(
            expert.seeds, expert.episodes["success"], expert.episodes["steps"], strict=True
        ):
            if success and (least := shortest(seed)) is not None:
                assert least > 0
                # The shortest ways move nothing unless they must; the expert may carry a box aside.
                longer += least > steps
        assert longer <= 2, (row.name, longer)


def test_full_current_and_new_results_come_first(store):
    cell = Cell("BC", "MazeS4G1")
    stale = make_result(cell, [1, 1, 1], settings={})
    store.add(stale)
    store.add(make_result(cell, [0, 0, 1]))
    store.add(newest := make_result(cell, [0, 1, 1]))
    store.add(make_result(cell, [1, 1, 1], settings={}))
    store.add(make_result(dataclasses.replace(cell, episodes=2), [1, 1]))  # a short look
    table = ResultTable(store)
    assert table.find("BC", "MazeS4G1") is newest
    assert not table.is_stale(newest)
    assert table.has(dataclasses.replace(cell, episodes=3))
    assert not table.has(cell)  # has 250 episodes
    assert table.find("BC", "MazeS4G1", seed=1) is None


def test_stale_results_are_shown_and_not_compared(store):
    store.add(make_result(Cell("GenPlan-M", "MazeS4G1"), [1, 1]))
    store.add(make_result(Cell("DT", "MazeS4G1"), [0, 0], settings={}))
    store.add(make_result(Cell("BC", "MazeS4G1"), [0, 0]))
    table = ResultTable(store)
    rows = [ROWS["MazeS4G1"], ROWS["MazeS4G2"]]
    assert table.find_current("DT", "MazeS4G1") is None
    assert table.is_stale(table.find("DT", "MazeS4G1"))
    assert table.pairs("DT", rows) == []
    assert len(table.pairs("BC", rows)) == 1
    assert table.paired_rows(table.pairs("BC", rows), "success") == [([1, 1], [0, 0])]
    assert table.paired_rows(table.pairs("BC", rows), "spl") is None


def test_methods_and_their_labels(store):
    for method in ("mine.py:Mine", "LEAP-noGC", "expert", "pretrained:MazeS4G1", "DT", "GenPlan-M", "pretrained:Gone"):
        privileged = method in ("expert", "mine.py:Mine")
        result = make_result(Cell("BC", "MazeS4G1"), [1], privileged=privileged)
        store.add(dataclasses.replace(result, cell=Cell(method, "MazeS4G1")))
    table = ResultTable(store)
    expected = ["GenPlan-M", "DT", "LEAP-noGC", "pretrained", "mine.py:Mine", "pretrained:Gone"]
    assert table.methods([ROWS["MazeS4G1"]]) == expected
    assert [label(method) for method in expected[1:4]] == ["DT", "LEAP⊖GC", "pretrained"]
    assert table.privileged == {"DT", "LEAP", "mine.py:Mine"}
    assert table.methods([ROWS["MazeS4G2"]]) == []
