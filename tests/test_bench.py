"""The benchmark: cells that are never mixed, lost or run twice; and the page made of them."""

import json
import multiprocessing
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from genplan import bench, cli, judge, report, runs, tasks
from genplan.bench import Cell, Results, comparison, work
from genplan.config import GenPlanConfig, TrainConfig, as_data, from_data
from genplan.errors import UserError
from genplan.evaluate import Played
from genplan.export import shipped


def line(cell, success, steps=10, minutes=1.0):
    number = len(success)
    return {
        "method": cell.method, "row": cell.row, "seed": cell.seed,
        "demonstrations": cell.demonstrations if cell.is_trained else None,
        "preset": cell.preset if cell.is_trained else None,
        "config_hash": cell.config_hash, "config": cell.config(), "commit": "abc", "when": "2026-01-02T03:04:05Z",
        "training": {"hash": cell.config_hash, "cpu_minutes": minutes, "steps": 5} if cell.is_trained else {},
        "seconds": 2.0,
        "planner_seconds": 1.0, "cpu_seconds": 2.0, "plans": 10, "first_seed": 1234, "success": success,
        "steps": [steps] * number, "stalled": [0] * number,
    }  # fmt: skip


WHOLE = line(Cell("bot", "MazeS4G1", episodes=1), [1])


def test_settings_are_part_of_a_cell(tmp_path):
    results = Results(tmp_path / "cells.jsonl")
    cell = Cell("GenPlan-M", "MazeS4G1", steps=250)
    results.add(line(cell, [1, 0]))
    assert Results(results.path).find(cell) is not None
    for other in (Cell("GenPlan-M", "MazeS4G1", steps=500), Cell("GenPlan-M", "MazeS4G1", seed=1, steps=250),
                  Cell("BC", "MazeS4G1", steps=250), Cell("GenPlan-M", "MazeS4G2", steps=250)):  # fmt: skip
        assert results.find(other) is None
    with pytest.raises(UserError, match="no row 'MazeS9'"):
        Cell("BC", "MazeS9")


def test_how_goals_are_told_is_part_of_the_cells_of_who_is_told():
    assert "telling" in Cell("DT", "KeyCorridorS3R3").config()
    assert "telling" not in Cell("DT-noGC", "KeyCorridorS3R3").config()
    assert "telling" not in Cell("BC", "KeyCorridorS3R3").config()
    assert "telling" not in Cell("DT", "MazeS4G1").config()  # there it has always been the same
    assert "telling" in Cell("untrained:DT", "KeyCorridorS3R3").config()
    assert "telling" in Cell("mine.py:Mine", "KeyCorridorS3R3").config()  # who knows?
    assert "telling" not in Cell("pretrained:KeyCorridorS3R3", "KeyCorridorS3R3").config()
    assert "telling" not in Cell("bot", "KeyCorridorS3R3").config()


def test_rows_of_one_training_share_it():
    one, other = Cell("LEAP-H", "LocS10N10G2"), Cell("LEAP-H", "SeqS5R2Un")
    assert one.training_hash == other.training_hash
    assert one.config_hash != other.config_hash
    assert one.training()[0].entropy_bound == 0.7
    assert other.options() == {"iterations": 40, "curiosity": 0.5}
    assert Cell("LEAP", "MazeS7G1").options() == {"iterations": 50}
    assert Cell("GenPlan-U", "SeqS5R2Un").options() == {"curiosity": 0.5}
    assert Cell("BC", "MazeS4G1").options() == {}
    assert "clutter" not in as_data(TrainConfig())  # off: the same settings as before there was any
    assert as_data(TrainConfig(clutter=3))["clutter"] == 3
    assert from_data(GenPlanConfig, {"width": 32}).nearness == 0  # what was saved before there was any
    assert from_data(GenPlanConfig, as_data(GenPlanConfig())) == GenPlanConfig()
    assert Cell("GenPlan-U", "MazeS4G1", preset="paper").training()[0].source == "uniform"
    with pytest.raises(UserError, match="GenPlan-M and GenPlan-U, found BC"):
        Cell("BC", "MazeS4G1", preset="paper").training()
    assert Cell("BC", "KeyCorridorS3R3").training()[1].steps == 43_750  # 40 minutes
    assert Cell("GenPlan-U", "DoorsOrder").training()[1].steps == 5_250  # 15


def test_a_planner_that_learnt_nothing_is_a_control(tmp_path):
    """It plans as its trained fellow does, with the same settings."""
    cell = Cell("untrained:GenPlan-M", "MazeS4N3G1", episodes=2)
    assert cell.config()["options"] == {"curiosity": 0.5}
    assert cell.config()["planner"] == Cell("GenPlan-M", "MazeS4N3G1").config()["planner"]
    found = work.run_cell(cell, tmp_path)
    assert found["training"] == {}
    assert len(found["success"]) == 2
    assert found["plans"] == sum(found["steps"])
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="no method 'Mine'"):
        Cell("untrained:Mine", "MazeS4N3G1")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Cell("LEAP-noGC", "SeqS5R2Un", episodes=1), {"curiosity": 0.5, "iterations": 40}),
        (Cell("LEAP", "MazeS7G1", episodes=1), {"curiosity": 0.0, "iterations": 50}),
        (Cell("untrained:GenPlan-M", "MazeS4N3G1", episodes=1), {"curiosity": 0.5}),
        (Cell("BC", "MazeS4G1", episodes=1), {"curiosity": 0.0}),
    ],
)
def test_a_cell_plays_with_its_options(tmp_path, monkeypatch, cell, expected):
    played = []

    def trained(cell, row, folder, tell):
        return runs.fresh(tasks.get(row.trained_on).spec, cell.training()[0], 0).eval(), {}

    def rollout(player, task, seeds, **options):
        played.append((player.config, task.spec.map_shape == player.spec.map_shape, list(seeds), options["execute"]))
        return Played([], 1.0, 1.0)

    monkeypatch.setattr(work, "_trained", trained)
    monkeypatch.setattr(work, "rollout_timed", rollout)
    line = work.run_cell(cell, tmp_path)
    ((config, fits, seeds, execute),) = played
    assert {name: getattr(config, name) for name in expected} == expected
    assert (fits, seeds, execute) == (True, [1234], 1)
    assert line["told"] == (cell.method == "LEAP")


def test_a_broken_last_line_is_dropped_and_others_are_not(tmp_path):
    path = tmp_path / "cells.jsonl"
    cell = Cell("bot", "MazeS4G1", episodes=1)
    whole = json.dumps(line(cell, [1]))
    path.write_text(f'{whole}\n{{"method": "walk')
    results = Results(path)
    assert len(results.lines) == 1
    assert path.read_text() != f"{whole}\n"  # who only reads leaves the file alone: somebody may be writing it
    assert not list(bench.run([cell], results, tmp_path / "runs"))
    assert path.read_text() == f"{whole}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense\n", "line 1 is not JSON"),
        (b"3\n", "line 1 is no benchmark cell .it is no object"),
        (b'{"study": "memory"}\n', "line 1 is no benchmark cell .it has no 'commit'"),
        (b"\xff\xfe\n", "cannot be read"),
        (json.dumps({**WHOLE, "config": None}).encode() + b"\n", "its 'config' is null"),
        (json.dumps({**WHOLE, "training": 3}).encode() + b"\n", "its 'training' is 3"),
        (json.dumps({**WHOLE, "steps": []}).encode() + b"\n", "1, 0, 1. successes, steps and stalled"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "cells.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        Results(path)
    with pytest.raises(UserError, match="cannot be read"):
        Results(tmp_path)


def test_a_training_is_expected_once(tmp_path):
    cells = [Cell("BC", "LocS10N10G2"), Cell("BC", "SeqS5R2Un"), Cell("BC", "KeyCorridorS3R3"), Cell("bot", "MazeS4G1")]
    first, second, large, bot = bench.expected_minutes(cells, tmp_path).values()
    assert first == second + 15
    assert large == bot + 40


def test_when_time_is_up_trainings_stop_and_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    results = Results(tmp_path / "cells.jsonl")
    cells = [
        Cell("bot", "MazeS4N3G1", episodes=2),
        Cell("BC", "MazeS4N3G1", demonstrations=10, steps=10**6, episodes=2),
        Cell("bot", "MazeS4G1", episodes=2),  # not begun
    ]
    began = time.monotonic()
    events = list(bench.run(cells, results, tmp_path / "runs", workers=2, minutes=1 / 60))
    assert time.monotonic() - began < 60
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="expected more than 0"):
            list(bench.run(cells, results, tmp_path / "runs", minutes=wrong))
    assert [event.cell for event in events if event.kind == "done"] == cells[:1]  # was being judged: finished
    assert len(results.lines) == 1


def test_suites_can_be_narrowed_and_extended():
    cells = bench.chosen("main", rows=["DoorsOrder"], methods=["BC", "bot"], planner="mine.py:Mine")
    assert [(cell.method, cell.row) for cell in cells] == [
        ("mine.py:Mine", "DoorsOrder"), ("bot", "DoorsOrder"), ("BC", "DoorsOrder")]  # fmt: skip
    with pytest.raises(UserError, match="no suite 'man'"):
        bench.chosen("man")
    with pytest.raises(UserError, match="no row 'SeqS5R2Un'"):
        bench.chosen("main", rows=["SeqS5R2Un"])
    names = {cell.row for cell in bench.suites()["main"]}
    assert len(names) == 8


def test_paired_differences_and_scores():
    one, other = line(Cell("GenPlan-M", "MazeS4G1"), [1, 1, 1, 0]), line(Cell("BC", "MazeS4G1"), [1, 0, 0, 1])
    found = comparison.paired((one["success"], other["success"]))
    assert found.mean == pytest.approx(0.25)
    assert found.low < 0 < found.high
    assert not found.is_clear
    both = comparison.paired((one["success"], other["success"]), ([1.0, 0.5] * 8, [0.5, 0.25] * 8))
    assert both.mean == pytest.approx((0.25 + 0.375) / 2)  # rows count alike, whatever their seeds
    with pytest.raises(UserError, match="same seeds"):
        comparison.paired(([1, 0], [1]))
    better = line(Cell("GenPlan-M", "MazeS4G1"), [1] * 6 + [0] * 4), line(Cell("BC", "MazeS4G1"), [0] * 10)
    assert comparison.chance(better) == pytest.approx(2 / 64)  # six of six
    assert comparison.chance((one, one)) == 1
    assert comparison.chance(better, (one, one)) == pytest.approx(comparison.chance(better))
    # Mazes of one seed are alike in several rows: a row seen twice is no more evidence than once.
    assert comparison.chance(better, better) == pytest.approx(comparison.chance(better))
    once, twice = (comparison.paired(*[([1, 1, 1, 0], [1, 0, 0, 1])] * times) for times in (1, 2))
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high))
    assert once.high - once.mean == pytest.approx(1.96 * (2.75 / 3 / 4) ** 0.5)
    # Where seeds are ahead by turns, rows make up for each other.
    turns = comparison.paired(([1, 0], [0, 0]), ([0, 1], [0, 0]))
    assert (turns.low, turns.high) == pytest.approx((0.5, 0.5))
    bot = line(Cell("bot", "MazeS4G1"), [1] * 4, steps=5)
    assert comparison.score(one, bot).spl == pytest.approx(0.375)
    assert comparison.efficiencies(one, bot) == [0.5, 0.5, 0.5, 0]
    assert comparison.score(one, None).spl is None
    assert comparison.efficiencies(one, None) is None


def test_other_code_or_weights_make_another_cell(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("a = 1")
    before = Cell(f"{path}:Mine", "MazeS4G1").config_hash
    path.write_text("a = 2")
    assert Cell(f"{path}:Mine", "MazeS4G1").config_hash != before
    shutil.copytree(shipped()["MazeS4G1"], tmp_path / "planner")
    before = Cell(str(tmp_path / "planner"), "MazeS4G1").config_hash
    config = tmp_path / "planner" / "config.json"
    config.write_text(config.read_text().replace('"temperature": 0.5', '"temperature": 0.25'))
    assert Cell(str(tmp_path / "planner"), "MazeS4G1").config_hash != before
    assert "content" in Cell("pretrained:MazeS4G1", "MazeS4G1").config()
    assert "content" not in Cell("bot", "MazeS4G1").config()


def test_the_page_shows_what_there_is_and_names_what_is_not(tmp_path):
    results = Results(tmp_path / "cells.jsonl")
    results.add(line(Cell("bot", "MazeS4G1"), [1] * 20, steps=5))
    for kind in ("uniform", "demos"):
        results.add(line(Cell(f"walk:{kind}", "MazeS4G1"), [0, 1] * 10))
    for number in (30, 100, 1000):
        results.add(line(Cell("GenPlan-M", "MazeS4G1", demonstrations=number), [1] * 20))
    results.add(line(Cell("GenPlan-M", "MazeS4G1", seed=1), [1] * 18 + [0] * 2))
    results.add(line(Cell("BC", "MazeS4G1"), [0] * 15 + [1] * 5))
    results.add({**line(Cell("mine.py:<Mine>", "MazeS4G1"), [0] * 20), "told": True})
    results.add({**line(Cell("BC", "MazeS4G2"), [0] * 20), "config": {}})  # of a kind that there is no more
    results.add(line(Cell("bot", "MazeS4G1", episodes=4), [0] * 4, steps=5))  # a short look: does not count
    results.add(line(Cell("GenPlan-U", "MazeS4G1", preset="paper"), [1] * 10 + [0] * 10))
    results.add({**line(Cell("DT", "MazeS4G1"), [0] * 20), "config_hash": "of other settings"})
    results.add(line(Cell("pretrained:MazeS4G1", "MazeS4G1"), [1] * 19 + [0]))
    results.add({**line(Cell("bot", "MazeS4G1"), [1] * 20, steps=5), "method": "pretrained:Gone"})
    text = report.benchmark_page(results.path, tmp_path / "page.html").read_text()
    for wanted in ("<b>100.0</b>", "<i>62</i>", "+75.0 ▲", "GenPlan-M, MazeS4G1</th><td>2</td><td>100.0, 90.0<br>",
                   "ahead of BC", "mine.py:&lt;Mine&gt; ◆", "<i>52.4</i>",
                   "demonstrations</figcaption>", "Not run yet", "<li>bot: MazeS4G1, DoorsOrder, ", "50.0<br>",
                   "0.0 †", "other settings than this version", "<li>DT ◆: MazeS4G1, ", "20 episodes", "shipped",
                   "MazeS4G1, seed 1234: solved in", "MazeS4G1, seed 1253: ", "pretrained:Gone",
                   "In mean success GenPlan-M is ahead of BC and mine.py"):  # fmt: skip
        assert wanted in text
    assert "ahead of DT" not in text  # of other settings: shown, not compared
    assert "http" not in text.replace("http-equiv", "")
    tables = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "results.py"))
    compared = tables["compared"](results)
    assert "| row | GenPlan-M | BC | shipped | mine.py:&lt;Mine&gt; ◆ | pretrained:Gone |" in compared
    assert "| MazeS4G1 | 100.0 0.500 | 25.0 0.125 | 95.0 0.475 | 0.0 0.000 |" in compared
    fewer = tables["fewer"](results)
    assert "| | 30 | 100 | 1000 |" in fewer
    assert "| MazeS4G1, GenPlan-M | 100.0 0.500 | 100.0 0.500 | 100.0 0.500 |" in fewer
    assert "| MazeS4G1, BC |  |  | 25.0 0.125 |" in fewer
    with pytest.raises(UserError, match="bench run main"):
        report.benchmark_page(tmp_path / "none.jsonl", tmp_path / "page.html")


OWN = """
import torch
from genplan.types import Plan

class Mine:
    needs_oracle = False
    def start(self, observations, oracle=None): return None
    def plan(self, observations, memory, rng, rows, oracle=None): return (Plan(torch.full((len(rows), 1), 2)), memory)
    def observe(self, memory, actions, observations, rows): return memory
"""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def broken(:", "cannot be run: SyntaxError.*line 1"),
        ("class Mine:\n    def __init__(self, size): ...", "cannot be called without arguments"),
        ("class Mine:\n    def start(self): ...\n    plan = observe = start", "has no needs_oracle"),
        (
            "class Mine:\n    needs_oracle = False\n    start = plan = observe = lambda *x: 1 / 0",
            "ZeroDivision.*mine.py, line 3",
        ),
        (
            OWN.replace("return None", "return torch.nn.Linear(2, 3)(torch.zeros(1))"),
            "mine.py, line 7",  # not somewhere in torch
        ),
        (
            OWN.replace("(Plan(torch.full((len(rows), 1), 2)), memory)", "Plan(torch.full((len(rows), 1), 2))"),
            "returned Plan, expected a pair",
        ),
        (OWN.replace("1), 2)", "1), 2.0)"), "actions of torch.float32, expected a tensor of whole numbers"),
        (OWN.replace("(len(rows), 1)", "(len(rows),)"), r"shape \(1,\), expected \(1, H\)"),
        (OWN.replace("(len(rows), 1)", "(len(rows), 0)"), r"shape \(1, 0\), expected \(1, H\)"),
        (OWN.replace("(len(rows), 1)", "(2, 1)"), r"shape \(2, 1\), expected \(1, H\)"),
        (OWN.replace("1), 2)", "1), 6)"), "actions from 6 to 6, expected 0 to 5"),
    ],
)
def test_what_is_wrong_with_ones_own_planner_is_said(tmp_path, code, message):
    path = tmp_path / "mine.py"
    path.write_text(code)
    cell = Cell(f"{path}:Mine", "MazeS4N3G1", episodes=1)
    here, there = multiprocessing.Pipe(duplex=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "serve", lambda parent: None)
        work.work(cell, tmp_path, there, os.getpid())
    kind, reason = here.recv()
    while kind == "share":
        kind, reason = here.recv()
    assert kind == "failed"
    assert re.search(message, reason)
    with pytest.raises(UserError, match=message):  # as `genplan eval` says it
        judge.judge(Console(quiet=True), cell.method, "MazeS4N3G1", [1234], {}, 0.0, "walk:uniform", None)


def test_what_stands_beside_ones_own_planner_can_be_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stride.py").write_text("LENGTH = 3\n")
    path = tmp_path / "mine.py"
    path.write_text(
        OWN.replace("1), 2)", "LENGTH), 2)").replace("import torch", "import torch\nfrom stride import LENGTH")
    )
    found = work.run_cell(Cell(f"{path}:Mine", "MazeS4N3G1", episodes=1), tmp_path)
    assert found["plans"] == -(-found["steps"][0] // 3)  # three at a time
    assert found["told"] is False


def test_ones_own_planner_stands_in_the_table_and_kills_lose_nothing(tmp_path):
    """The command line: killed once on the way, the suite ends whole, with a planner of one's own in it."""
    environment = {**os.environ, "MINARI_DATASETS_PATH": "data"}
    for name in ("mine.py", "calm/mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(OWN)
    command = [sys.executable, "-m", "genplan", "bench", "run", "tiny", "--planner", "mine.py:Mine",
               "--methods", "bot", "BC", "GenPlan-M", "--results", "cells.jsonl", "--runs", "runs"]  # fmt: skip
    first = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    while first.poll() is None and not (tmp_path / "cells.jsonl").exists():
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GenPlan-M · MazeS4N3G1 · 10 demonstrations, " in done.stdout
    assert "% solved" in done.stdout
    lines = [json.loads(text) for text in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert sorted(one["method"] for one in lines) == ["BC", "GenPlan-M", "bot", "mine.py:Mine"]
    assert all(len(one["success"]) == 4 for one in lines)
    subprocess.run(command, cwd=tmp_path / "calm", env=environment, check=True, capture_output=True)
    undisturbed = [json.loads(text) for text in (tmp_path / "calm" / "cells.jsonl").read_text().splitlines()]
    outcomes = [{one["config_hash"]: (one["success"], one["steps"]) for one in found} for found in (lines, undisturbed)]
    assert outcomes[0] == outcomes[1]
    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "4 cells, 4 of them in cells.jsonl" in again.stdout
    (own,) = (one for one in lines if one["method"] == "mine.py:Mine")
    assert re.search(rf"mine.py:Mine +{100 * sum(own['success']) / 4:.1f} \d\.\d+", again.stdout)  # in the table
    page = [sys.executable, "-m", "genplan", "report", "--results", "cells.jsonl", "--out", "page.html"]
    subprocess.run(page, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert "mine.py:Mine" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "run", "tiny", "--planner", "none.py:Mine"], "there is no file 'none.py'"),
        (["bench", "run", "tiny", "--results", "file/cells.jsonl"], "'file' cannot be used"),
        (
            ["bench", "run", "tiny", "--results", "cells.jsonl", "--runs", "file/runs"],
            "'file/runs' cannot be used .Not a directory",
        ),
        (["report", "--results", "cells.jsonl", "--out", "folder"], "'folder' cannot be used .Is a directory"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    Results(tmp_path / "cells.jsonl").add(WHOLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert re.search(message, capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["cells.jsonl", "file", "folder"]
