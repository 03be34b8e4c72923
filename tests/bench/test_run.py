"""Running cells: what they are played with, deadlines, failures of users' planners, and kills."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from genplan import config, names, planners
from genplan.bench import Cell, CellResult, ResultStore, ResultTable, estimated_minutes, run_cells
from genplan.bench import run as bench_run
from genplan.errors import UserError
from genplan.evaluate import TimedRollouts, evaluate
from genplan.jobs import LocalExecutor
from tests.bench.samples import OWN_PLANNER


def run_cell(cell: Cell, folder) -> CellResult:
    return bench_run.run_cell(cell, folder, lambda fraction: None)


def test_an_untrained_planner_is_a_control(tmp_path):
    """It plans as its trained counterpart does, with the same settings."""
    result = run_cell(Cell("untrained:GenPlan-M", "MazeS4N3G1", episodes=2), tmp_path)
    assert result.training == {}
    assert result.num_episodes == 2
    assert result.num_plans == sum(result.episodes["steps"])
    assert not list(tmp_path.iterdir())


def test_a_cell_records_the_metrics_of_its_task(tmp_path):
    result = run_cell(Cell("expert", "MazeS4G1", episodes=2), tmp_path)
    assert {"success", "steps", "stalling", "cells_visited"} <= set(result.episodes)
    assert not {"spl", "spl_shortest"} & set(result.episodes)  # they follow from success, steps and references
    assert result.weights == {"stalling": result.episodes["steps"]}
    assert result.privileged
    assert CellResult.from_json(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Cell("LEAP-noGC", "SeqS5R2Un", episodes=1), {"exploration": 0.5, "iterations": 40}),
        (Cell("LEAP", "MazeS7G1", episodes=1), {"exploration": 0.0, "iterations": 50}),
        (Cell("untrained:GenPlan-M", "MazeS4N3G1", episodes=1), {"exploration": 0.0}),  # which adapts
        (Cell("GenPlan-U", "MazeS4N3G1", episodes=1), {"exploration": 0.5}),
        (Cell("BC", "MazeS4G1", episodes=1), {"exploration": 0.0}),
    ],
)
def test_a_cell_plays_with_its_options(tmp_path, monkeypatch, cell, expected):
    played = []

    def train(cell, folder, report):
        return planners.build(cell.method, cell.train_task.spec, cell.training().planner).eval(), {}

    def play_timed(planner, task, seeds, **options):
        played.append((planner, task, list(seeds)))
        return TimedRollouts([], 1.0, 1.0)

    monkeypatch.setattr(bench_run, "_train", train)
    monkeypatch.setattr(bench_run, "play_timed", play_timed)
    result = run_cell(cell, tmp_path)
    ((planner, task, seeds),) = played
    assert {name: config.get(planner.config, name) for name in expected} == expected
    assert planner.spec.fields["grid"].shape == task.spec.fields["grid"].shape
    assert seeds == [1234]
    # BC's plans have one action, chains are executed whole
    assert planner.action_steps == {"BC": None, "untrained:GenPlan-M": 10}.get(cell.method, 1)
    assert result.privileged == (cell.method == "LEAP")


def test_a_training_is_estimated_once(tmp_path):
    cells = [Cell("BC", "LocS10N10G2"), Cell("BC", "SeqS5R2Un"), Cell("BC", "KeyCorridorS3R3"),
             Cell("expert", "MazeS4G1")]  # fmt: skip
    first, second, large, expert = estimated_minutes(cells, tmp_path).values()
    assert first == second + 15
    assert large == expert + 30


def test_after_the_deadline_trainings_stop_and_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    store = ResultStore(tmp_path / "cells.jsonl")
    cells = [
        Cell("expert", "MazeS4N3G1", episodes=2),
        Cell("BC", "MazeS4N3G1", demonstrations=10, steps=10**6, episodes=2),
        Cell("expert", "MazeS4G1", episodes=2),  # not begun
    ]
    start_time = time.monotonic()
    events = list(run_cells(cells, store, tmp_path / "runs", workers=2, max_minutes=1 / 60))
    assert time.monotonic() - start_time < 60
    assert [event.cell for event in events if event.type == "done"] == cells[:1]  # was being evaluated: finished
    assert len(store.results) == 1
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="expected more than 0"):
            list(run_cells(cells, store, tmp_path / "runs", max_minutes=wrong))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def broken(:", "cannot be run: SyntaxError.*line 1"),
        ("class Mine:\n    def __init__(self, size): ...", "cannot be called without arguments"),
        ("class Mine:\n    def reset(self): ...\n    plan = observe = reset", "has no privileged"),
        (
            "class Mine:\n    privileged, action_steps = False, None\n    reset = plan = observe = lambda *x: 1 / 0",
            "ZeroDivision.*mine.py, line 3",
        ),
        (
            OWN_PLANNER.replace("return None", "return torch.nn.Linear(2, 3)(torch.zeros(1))"),
            "mine.py, line 8",  # not somewhere in torch
        ),
        (
            OWN_PLANNER.replace("(Plan(torch.full((len(ids), 1), 2)), memory)", "Plan(torch.full((len(ids), 1), 2))"),
            "returned Plan, expected a pair",
        ),
        (OWN_PLANNER.replace("1), 2)", "1), 6)"), "6, expected 0 to 5"),
    ],
)
def test_errors_of_own_planners_are_located(tmp_path, code, message):
    path = tmp_path / "mine.py"
    path.write_text(code)
    cell = Cell(f"{path}:Mine", "MazeS4N3G1", episodes=1)
    with pytest.raises(UserError, match=message):
        run_cell(cell, tmp_path)
    store = ResultStore(tmp_path / "cells.jsonl")
    if "cannot be run" in message:  # known before any cell begins
        with pytest.raises(UserError, match=message):
            list(run_cells([cell], store, tmp_path))
    else:
        failed = list(run_cells([cell], store, tmp_path, executor=LocalExecutor(1)))[-1]
        assert (failed.type, bool(re.search(message, failed.detail))) == ("failed", True)


def test_own_planners_can_import_what_stands_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stride.py").write_text("LENGTH = 3\n")
    path = tmp_path / "mine.py"
    code = OWN_PLANNER.replace("1), 2)", "LENGTH), 2)").replace(
        "import torch", "import torch\nfrom stride import LENGTH"
    )
    path.write_text(code)
    result = run_cell(Cell(f"{path}:Mine", "MazeS4N3G1", episodes=1), tmp_path)
    assert result.num_plans == -(-result.episodes["steps"][0] // 3)  # three at a time
    assert result.privileged is False


def test_an_evaluation_says_the_same_as_a_cell(tmp_path):
    cell = Cell("random:forward", "MazeS4G1", episodes=5)
    result = run_cell(cell, tmp_path)
    planner = names.load_planner(cell.method, cell.task)
    score = evaluate(planner, cell.task, result.seeds, baseline=None).planner
    store = ResultStore(tmp_path / "cells.jsonl")
    for one in (result, run_cell(Cell("expert", "MazeS4G1", episodes=5), tmp_path)):
        store.add(one)
    table = ResultTable(store)
    for metric in ("success", "spl", "spl_shortest", "steps", "stalling", "cells_visited"):
        assert table.summary(result, metric) == score.metrics[metric], metric


OWN_METHOD = """
from genplan.planners.behavior_cloning import BehaviorCloning

class Mine(BehaviorCloning):
    '''A method that learns.'''
"""


def test_a_method_from_a_file_is_trained_and_continues(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    (tmp_path / "mine.py").write_text(OWN_METHOD)
    cell = Cell(f"{tmp_path}/mine.py:Mine", "MazeS4N3G1", demonstrations=10, steps=2, episodes=2)
    store = ResultStore(tmp_path / "cells.jsonl")
    events = list(run_cells([cell], store, tmp_path / "runs", workers=1))
    assert [event.type for event in events if event.type != "progress"] == ["done"], events[-1].detail
    assert store.results[0].training["steps"] == 2
    assert store.find(cell) is not None
    again = run_cell(cell, tmp_path / "runs")  # trained already
    assert again.episodes == store.results[0].episodes


SCRIPT = """
from pathlib import Path
from genplan.bench import ResultStore, run_cells, select

if __name__ == "__main__":
    cells = select("tiny", methods=["expert", "BC", "GenPlan-M"], planner="mine.py:Mine")
    events = list(run_cells(cells, ResultStore(Path("cells.jsonl")), Path("runs")))
    raise SystemExit("; ".join(event.detail for event in events if event.type == "failed") or 0)
"""


def test_kills_lose_nothing(tmp_path):
    """Killed once on the way, the suite ends with the results of an undisturbed run."""
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path / "data")}
    command = [sys.executable, "script.py"]
    for folder in (tmp_path / "killed", tmp_path / "calm"):
        folder.mkdir()
        (folder / "mine.py").write_text(OWN_PLANNER)
        (folder / "script.py").write_text(SCRIPT)
    first = subprocess.Popen(command, cwd=tmp_path / "killed", env=environment)
    while first.poll() is None and not (tmp_path / "killed" / "cells.jsonl").exists():
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    for folder in (tmp_path / "killed", tmp_path / "calm"):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    killed, calm = (ResultStore(tmp_path / name / "cells.jsonl").results for name in ("killed", "calm"))
    assert sorted(one.cell.method for one in killed) == ["BC", "GenPlan-M", "expert", "mine.py:Mine"]
    assert all(one.num_episodes == 4 for one in killed)
    outcomes = [{one.cell: (one.settings, one.episodes) for one in results} for results in (killed, calm)]
    assert outcomes[0] == outcomes[1]
