"""Evaluation in several processes: the results of one, to the digit; mistakes in one line; an end with Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from genplan.errors import UserError
from genplan.evaluate import MAX_PART, MIN_PART, EvalConfig, evaluate, evaluate_parts
from genplan.jobs import LocalExecutor
from tests.test_jobs import is_running, wait_for

PENDULUM = str(Path(__file__).resolve().parent.parent / "examples" / "pendulum.py") + ":task"
MINE = '''"""A planner of one's own."""
import torch
from genplan.types import Plan

class Right:
    privileged, action_steps = False, None
    def reset(self, observations, oracle=None): ...
    def plan(self, observations, memory, rng, ids, oracle=None):
        return Plan(torch.ones(len(ids), 3, dtype=torch.int64)), None
    def observe(self, memory, actions, observations, ids): ...

class Broken(Right):
    def plan(self, observations, memory, rng, ids, oracle=None):
        raise ArithmeticError("lost")

class Slow(Right):
    def plan(self, observations, memory, rng, ids, oracle=None):
        import pathlib, time
        pathlib.Path("began").touch()
        time.sleep(60)
'''


def same(one, other):
    for name in ("seed", "num_plans", "success", "references"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("actions", "rewards", "changed"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert all(np.array_equal(one.observations[name], other.observations[name]) for name in one.observations)
    assert (one.first_plan is None) == (other.first_plan is None)


@pytest.mark.parametrize(("config", "number"), [
    (EvalConfig("pretrained:MazeS4G1", slip=0.1, options={"action_steps": 4}), MAX_PART + 5),
    (EvalConfig("untrained:GenPlan-M", PENDULUM, baseline="random:uniform"), 2 * MIN_PART),
], ids=["grid", "continuous"])  # fmt: skip
def test_the_results_are_those_of_one_process(config, number):
    seeds, ended = range(2000, 2000 + number), []
    arguments, _ = config.load()
    alone = evaluate(seeds=seeds, **arguments)
    together = evaluate_parts(config, arguments["task"], seeds, LocalExecutor(2), 2, ended.append)
    assert sum(ended) == 3 * number
    assert [one.seed for one in together.rollouts] == list(seeds)
    for one, other in zip(alone.rollouts, together.rollouts, strict=True):
        same(one, other)
    for name, score in alone.scores.items():
        other = together.scores[name]
        assert (score.metrics, score.num_plans) == (other.metrics, other.num_plans)
        assert 0 < other.planner_seconds < other.seconds


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)


def test_few_seeds_are_one_part_and_own_planners_are_found(mine):
    config = EvalConfig("mine.py:Right", "LocS10N1")
    arguments, _ = config.load()
    found = evaluate_parts(config, arguments["task"], range(2000, 2003), LocalExecutor(2), 2, lambda number: None)
    assert all((one.actions == 1).all() for one in found.rollouts)


def test_mistakes_are_one_line(mine):
    config = EvalConfig("mine.py:Broken", "LocS10N1")
    arguments, _ = config.load()
    with pytest.raises(UserError, match=r"seeds 2000–2001 are not played: 'mine.py:Broken' failed: .*lost \(.*line 14"):
        evaluate_parts(config, arguments["task"], range(2000, 2002), LocalExecutor(2), 2, lambda number: None)
    command = [sys.executable, "-m", "genplan", "eval", "bot", "--task", "LocS10N1", "--workers"]
    for flags, message in ((["0"], "workers is 0, expected at least 1"), (["2", "--threads", "2"], "leave out --th")):
        answer = subprocess.run([*command, *flags], capture_output=True, text=True)
        assert answer.returncode == 1
        assert message in answer.stderr
        assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_ends_all_processes(mine, begun):
    """As a terminal sends it, to all of them: also to workers that are only just starting."""
    command = [sys.executable, "-m", "genplan", "eval", "mine.py:Slow", "--task", "LocS10N1", "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)

    def children():
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

    assert wait_for(lambda: Path("began").exists() if begun else len(children()) > 1, 120)
    workers = children()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines() == ["genplan: stopped; run the same command again to continue"]
    assert workers
    assert wait_for(lambda: not any(map(is_running, workers)), 10)
