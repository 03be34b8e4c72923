"""Tasks, examples, metrics and reference planners that ship keep the rules of their kind."""

from pathlib import Path

import pytest

from genplan import conformance, names, tasks
from genplan.conformance import metric, planner
from genplan.conformance.rules import apply_rules
from genplan.metrics import METRICS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TASKS = [
    "MazeS4G1",
    "LocS10N1",
    *(f"{EXAMPLES}/{name}.py:task" for name in ("cartpole", "doorkey", "pendulum", "taxi")),
]


def broken(findings):
    return [str(one) for one in findings if one.outcome == "broken"]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_keeps_every_rule(name):
    assert broken(conformance.check(name)) == []


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_keeps_every_rule(name):
    assert broken(apply_rules(metric.RULES, metric.MetricCase(METRICS[name], tasks.get("LocS10N1")))) == []


@pytest.mark.parametrize("name", ["expert", "bot:full-view", "random:uniform", "random:demos", "random:forward"])
def test_a_reference_keeps_every_rule(name):
    task = tasks.get("LocS10N1")
    assert broken(apply_rules(planner.RULES, planner.PlannerCase(names.load_planner(name, task), task))) == []
