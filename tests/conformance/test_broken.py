"""Deliberately broken tasks, planners, methods, codecs and metrics: each is caught by the rule that it breaks."""

import sys

import pytest

from genplan import cli, conformance
from genplan.conformance.method import check_method
from genplan.errors import UserError

TASK = '''
import gymnasium, numpy as np
from gymnasium import spaces
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.tasks.experts import ExpertPlanner
from genplan.types import Task


class Line(gymnasium.Env):
    """Five places in a row; the right end is the goal."""

    action_space, place = spaces.Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps, self.buffer = int(self.np_random.integers(4)), 0, np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action):
        self.place, self.steps = int(np.clip(self.place + (1 if action else -1), 0, 4)), self.steps + 1
        return self.place, float(self.place == 4), self.place == 4, False, {"left": 4 - self.place}


def observe(env, raw):
    return {"place": env.place, "spot": np.array([env.place], np.float32)}


def expert():
    return ExpertPlanner(lambda env: lambda last: 1)


FIELDS = {"place": Field("category", sizes=(5,)), "spot": Field("vector", (1,))}
STREAMS = {"states": Stream(5, observed="place"), "goals": Stream(5, (1,))}
task = Task(
    name="Line", make=Line, spec=PlanSpec(FIELDS, Actions(2), STREAMS), observe=observe, max_steps=30,
    infos=("left",), expert=expert, label_subgoals=lambda env: lambda a, b, success: [(4, "target")] * success,
    privileged_goals=lambda env: [4],
)
'''
BROKEN_TASKS = {  # rule: (text of the task, what stands there instead, what is said)
    "observations fit their fields": (
        "[env.place], np",
        "[env.place if env.steps < 3 else np.nan], np",
        "'spot', as observe()",
    ),
    "observations do not change later": (
        "np.array([env.place], np.float32)",
        "np.copyto(env.buffer, env.place) or env.buffer",
        "other values in 'spot' of step",
    ),
    "same seed same episode": ("self.np_random.integers(4)", "np.random.randint(4)", "np_random after super"),
    "instances do not touch each other": (
        "self.place, self.steps, self",
        "Line.place, self.steps, self",
        "in the class",
    ),
    "max steps is the limit": ("== 4, False,", "== 4, self.steps >= 7,", "after {7} steps, expected max_steps, 30"),
    "actions are known to the environment": ("Actions(2)", "Actions(3)", "the action 2, expected Discrete(2)"),
    "success is a bool": ('name="Line"', 'success=lambda r, t, info: r, name="Line"', "0.0 from success(), expected"),
    "infos are numbers": ('infos=("left",)', 'infos=("right",)', "keeps 'right' of info, which has left"),
    "the expert succeeds": ("lambda last: 1", "lambda last: 0", "success on 0 of the seeds 10000 to 10004"),
    "subgoal labels are goal tokens": ("[(4, ", "[(5, ", "5"),
    "privileged goals are goal tokens": (
        "env: [4]",
        "env: [9]",
        "the goals [9] after 0 steps, expected at least one of 0 to 4",
    ),
    "metrics are defined": ('name="Line"', 'metrics=("speed",), name="Line"', "names the metric 'speed'"),
}

PLANNER = '''
import torch
from genplan.types import Plan


class Mine:
    """The action follows from what is observed, and from how often it was asked before."""

    privileged = False
    action_steps = None

    def reset(self, observations, oracle=None):
        return torch.zeros(len(observations), dtype=torch.int64)

    def plan(self, observations, memory, rng, ids, oracle=None):
        number = (observations["state"] + memory[ids]) % 6
        return Plan(number[:, None], energy=number.float()), memory

    def observe(self, memory, actions, observations, ids):
        memory[ids] += actions + 1
        return memory
'''
BROKEN_PLANNERS = {
    "is a planner": ("def observe", "def look", "has no method observe()"),
    "plans inside the action space": ("% 6", "% 6 + 6", "expected 0 to 5"),
    "scores are finite": ("number.float()", "number.float().log()", "the energy -inf, expected finite numbers"),
    "same seed same plan": ("number[:, None]", "torch.randint(6, (len(ids), 9))", "draw all random numbers from `rng`"),
    "a row alone equals a row in a batch": ("+ memory[ids]", "+ len(ids)", "let no row depend on others"),
    "memory follows the rows": ("memory[ids])", "memory[:len(ids)])", "index the memory by `ids`"),
    "rows do not touch each other": (
        "+ memory[ids]",
        "+ observations['state'].sum()",
        "of each of the other episodes apart",
    ),
    "observations stay as they are": (
        "        number =",
        "        observations['state'].clamp_(max=0)\n        number =",
        "clone()",
    ),
    "looks into the simulator only if it says so": (
        "        return Plan(number",
        "        number = (number + (oracle is not None)) % 6\n        return Plan(number",
        "set privileged = True",
    ),
}

METHOD = """
from dataclasses import replace

from genplan.planners.behavior_cloning import BehaviorCloning


class Mine(BehaviorCloning):
    shift, count = 0, 0

    def fit_codec(self, episodes):
        return super().fit_codec(episodes)

    def loss(self, batch, rng):
        return super().loss(batch, rng)

    def make_plan(self, observations, memory, rng, ids, goals, keep_trace):
        plan = super().make_plan(observations, memory, rng, ids, goals, keep_trace)
        return replace(plan, energy=plan.energy + self.shift)
"""
BROKEN_METHODS = {
    "loss changes nothing": (
        "        return super().loss",
        "        self.count += 1\n        return super().loss",
        "another count after loss()",
    ),
    "learns the identity task": (
        "        return super().loss",
        "        return super().loss(batch, rng)._replace("
        "total=sum(p.square().sum() for p in self.parameters()))\n        return super().loss",
        "of the actions right after 600 steps, expected at least 95%",
    ),
    "acts the same in a fresh process": (
        "        return super().fit_codec",
        "        self.shift = 1\n        return super().fit_codec",
        "bit for bit",
    ),
}

CODEC = """
from genplan.models.codecs import UniformBins


class Mine(UniformBins):
    shift = 0.0

    def fit(self, actions):
        return super().fit(actions)

    def encode(self, actions, origin):
        return super().encode(actions, origin)

    def decode(self, tokens, origin):
        return super().decode(tokens, origin) - self.shift
"""
BROKEN_CODECS = {
    "a round trip stays within the stated bound": ("- self.shift", "* 0.9", "an error of"),
    "any code decodes inside the space": ("- self.shift", "+ (origin is not None)", "decoded actions hold"),
    "constant dimensions stay": (
        "def fit",
        "def _range(self):\n        return self.high + 1 - self.low\n\n    def fit",
        "expected 4.25",
    ),
    "values out of range are clipped and counted": (
        "def encode",
        "def is_clipped(self, actions, origin):\n        return actions[..., 0] > 1e9\n\n    def encode",
        "0 of 25 actions far outside counted",
    ),
    "missing statistics are an error": (
        "def fit",
        "def _range(self):\n        return self.high - self.low\n\n    def fit",
        "never fitted, expected a UserError",
    ),
    "acts the same in a fresh process": (
        "        return super().fit",
        "        self.shift = 0.01\n        return super().fit",
        "keep all that fit() found in buffers",
    ),
}

METRIC = """
import numpy as np
from genplan.types import Metric


def measure(rollout):
    return float(rollout.num_steps)


mine = Metric("mine", measure)
"""
MEASURE = "    return float(rollout.num_steps)"
BROKEN_METRICS = {
    "values are finite or none": (MEASURE, "    return float('nan')", "nan on seed 2000, expected a finite"),
    "the same episode has the same value": (MEASURE, "    return np.random.rand()", "keep no state in it"),
    "the rollout stays as it is": (
        MEASURE,
        "    rollout.rewards[0] += 1\n" + MEASURE,
        "other rewards after it was measured",
    ),
    "shares lie within 0 and 1": ("measure)", "measure, interval='wilson')", "use interval='bootstrap'"),
    "weights are not negative": (
        "measure)",
        "measure, weight=lambda rollout: -1.0)",
        "the weight -1.0, expected at least 0",
    ),
    "it can be shown": ("measure)", "measure, format='.3q')", "the format '.3q'"),
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A file of that text in the current folder, with something in it changed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(text, old="", new=""):
        assert old in text
        (tmp_path / "mine.py").write_text(text.replace(old, new, 1) if old else text)

    return write


def cases(table):
    return [pytest.param(rule, *change, id=rule) for rule, change in table.items()]


def assert_broken(findings, rule, said):
    reason = next(one.reason for one in findings if (one.rule, one.outcome) == (rule, "broken"))
    assert said in reason
    assert "expected" in reason or "known are" in reason


@pytest.mark.parametrize(("rule", "old", "new", "said"), cases(BROKEN_TASKS))
def test_a_broken_task(rule, old, new, said, written):
    written(TASK, old, new)
    assert_broken(conformance.check("mine.py:task"), rule, said)


@pytest.mark.parametrize(("rule", "old", "new", "said"), cases(BROKEN_PLANNERS))
def test_a_broken_planner(rule, old, new, said, written):
    written(PLANNER, old, new)
    assert_broken(conformance.check("mine.py:Mine"), rule, said)


@pytest.mark.parametrize(("rule", "old", "new", "said"), cases(BROKEN_METHODS))
def test_a_broken_method(rule, old, new, said, written):
    written(METHOD, old, new)
    assert_broken(check_method("mine.py:Mine", ["vector"], ["bins"]), rule, said)


@pytest.mark.parametrize(("rule", "old", "new", "said"), cases(BROKEN_CODECS))
def test_a_broken_codec(rule, old, new, said, written):
    written(CODEC, old, new)
    assert_broken(conformance.check("mine.py:Mine"), rule, said)


@pytest.mark.parametrize(("rule", "old", "new", "said"), cases(BROKEN_METRICS))
def test_a_broken_metric(rule, old, new, said, written):
    written(METRIC, old, new)
    assert_broken(conformance.check("mine.py:mine"), rule, said)


@pytest.mark.parametrize(
    ("text", "name"),
    [(TASK, "task"), (PLANNER, "Mine"), (METHOD, "Mine"), (CODEC, "Mine"), (METRIC, "mine")],
    ids=["task", "planner", "method", "codec", "metric"],
)
def test_what_is_not_broken_keeps_every_rule(text, name, written):
    written(text)
    findings = list(conformance.check(f"mine.py:{name}"))
    assert [str(one) for one in findings if one.outcome == "broken"] == []
    assert sum(one.outcome == "ok" for one in findings) >= 4


def test_a_method_that_refuses_everything_is_broken(written):
    written(METHOD, "    shift", '    def __init__(self, spec, config):\n        from genplan.errors import UserError\n'
            '        raise UserError("no")\n\n    shift')  # fmt: skip
    findings = list(check_method("mine.py:Mine"))
    assert [one.outcome for one in findings] == ["skipped"] * 8 + ["broken"]
    assert "found 0 combinations that it accepts" in findings[-1].reason


def test_the_command_prints_a_line_per_rule(written, monkeypatch, capsys):
    written(METRIC, *BROKEN_METRICS["it can be shown"][:2])
    monkeypatch.setattr(sys, "argv", ["genplan", "check", "mine.py:mine"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1
    assert [line.split()[0] for line in lines[:-1]] == ["ok", "ok", "ok", "skipped", "skipped", "broken"]
    assert (
        lines[5]
        == "broken  it can be shown: found the format '.3q', expected one of a number, such as .1%; see format()"
    )
    assert lines[-1].startswith("mine.py:mine: 1 of 6 rules are broken")


def test_what_is_nothing_is_refused(written):
    written("mine = 3")
    with pytest.raises(UserError, match=r"'mine.py:mine' is a int, expected a Task, a Metric or a planner"):
        list(conformance.check("mine.py:mine"))
    with pytest.raises(UserError, match="there is no task 'Nothing'"):
        list(conformance.check("Nothing"))
