"""Parts of pages, and the page of a run."""

import dataclasses
import json

import numpy as np

from genplan import tasks
from genplan.evaluate import Evaluation, Score
from genplan.metrics import Summary
from genplan.report import run_page
from genplan.report.html import gifs, line_chart, page, table
from genplan.types import Metric, Rollout


def test_parts_are_escaped_and_self_contained():
    text = page("a < b", table(("", "x"), [("row", "<b>1</b>")]))
    assert "<title>a &lt; b</title>" in text
    assert "<th scope='row'>row</th><td><b>1</b></td>" in text
    assert "M52.0,164.0 L304.0,8.0" in line_chart("loss", {"": [(0, 0.0), (10, 2.0)]}, (0, 2), (0, 10))
    assert "image/gif" in gifs([("a", b"GIF89a")])
    assert "&lt;a&gt;" in gifs([("<a>", b"GIF89a")])
    curve = [(30, 50, 40, 60), (100, 100, 90, 100)]
    chart = line_chart("success", {"A": curve, "<B>": curve[:1], "none": []}, (0, 100), (30, 100), log=True)
    assert chart.count("<circle") == 3
    assert "&lt;B&gt;" in chart
    assert "none" not in chart


def test_the_page_of_a_run_has_a_column_per_metric(tmp_path):
    own = Metric("coverage", lambda rollout: 0.0, format=".2f", label="coverage of the <goal>")
    task = dataclasses.replace(tasks.get("MazeS4G1"), metrics=("success", own, "spl_shortest"))
    rollout = Rollout(7, task.spec, {}, np.zeros(1), np.zeros(1), True, False, True, np.ones(1, bool), 1)
    metrics = {"success": Summary(0.5, 0.25, 0.75), "coverage": Summary(3.0, 2.0, 4.0), "spl_shortest": None}
    score = Score(1, metrics, 1, 2.0, 1.0)
    evaluation = Evaluation(task, [rollout], score, dataclasses.replace(score, metrics={}), None)
    config = {
        "method": "<mine>", "dataset": {"name": "d", "digest": "0", "episodes": 10},
        "planner": {"network": {"hidden_size": 64}}, "training": {"steps": 5},
    }  # fmt: skip
    lines = ({"step": 1, "loss/actions": 2.0}, {"step": 2, "loss/actions": 1.0, "val/loss": 3.0})
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    path = run_page(tmp_path, "A run", config, evaluation, [("seed 7", b"GIF89a")], 60.0)
    text = path.read_text()
    for expected in ("&lt;mine&gt;, trained on 10 demonstrations", "1.0 CPU-minutes", "50.0%", "25.0–75.0",
                     "<th>coverage of the &lt;goal&gt;</th>", "3.00", "seeds 7–7", "random policy", "seed 7",
                     "loss of actions", "hidden_size"):  # fmt: skip
        assert expected in text, expected
    assert "SPL (shortest)" not in text  # nobody has it
    assert "loss on held-out" not in text  # one point is no curve
    assert ">expert<" not in text
