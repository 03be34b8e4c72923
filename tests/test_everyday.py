"""Ordinary mistakes with files of one's own, and plans drawn of tasks without a map: one message, never a traceback."""

import sys
from pathlib import Path

import pytest

from genplan import cli, collect
from genplan.errors import UserError
from genplan.render import frames
from genplan.rollout import EnvBatch
from genplan.tasks.files import task_from_gym

FILE = """
from dataclasses import replace
import gymnasium, numpy as np
from genplan.errors import ExpertFailure
from genplan.spec import Actions, Field, PlanSpec
from genplan.tasks.experts import ExpertPlanner
from genplan.types import Metric, Task
def act(last): return {act}
def fail(*anything): return {fail}
def wrong(last): raise ExpertFailure("lost")
task = Task("Cart", lambda: gymnasium.make("CartPole-v1"), PlanSpec({{"o": Field("vector", (4,))}}, Actions(2)),
            lambda env, raw: {{"o": np.asarray(raw, np.float32)}}, 5, None)
task = replace(task, **{{"expert": lambda: ExpertPlanner(lambda env: act), **dict({changed})}})
"""


@pytest.fixture
def say(tmp_path, monkeypatch, capfd):
    """What `genplan …` says and its exit code, with a task file where act(), fail() and the task are changed."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, changed="", act="0", fail="1 / 0"):
        (tmp_path / "mine.py").write_text(FILE.format(changed=changed, act=act, fail=fail))
        monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return capfd.readouterr().err, ended.value.code

    return run


EXAMPLES = Path(__file__).parent.parent / "examples"
DEMOS = ("demos", "mine.py:task", "--episodes", "2", "--workers", "1")
EVAL = ("eval", "expert", "--task", "mine.py:task", "--episodes", "2")
MISTAKES = [  # command, what is changed in the file, what is said
    (DEMOS, {"changed": "make=fail"}, "cannot be made (ZeroDivisionError: division by zero ("),
    (DEMOS, {"changed": "make=lambda: None"}, "make() of task Cart returned NoneType, expected a gymnasium.Env"),
    (DEMOS, {"changed": "observe=fail"}, "mine.py:task failed: ZeroDivisionError: division by zero ("),
    (DEMOS, {"changed": "observe=lambda env, raw: raw"}, "gives ndarray, expected a dict with an array for each"),
    (DEMOS, {"changed": "success=fail"}, "genplan check mine.py:task"),
    (DEMOS, {"changed": "success=lambda reward: True"}, "takes 1 positional argument but 3 were given"),
    (DEMOS, {"changed": "success=lambda *any: False"}, "succeeded on none of 200 seeds from 10000 on, expected 2"),
    (DEMOS, {"changed": "expert=fail"}, "mine.py, line 9, in fail)"),
    (DEMOS, {"act": "fail()"}, "mine.py, line 9, in fail)"),
    (DEMOS, {"act": "None"}, "the expert returned None, expected a number or an array"),
    (DEMOS, {"act": "wrong(last)"}, "succeeded on none of 200 seeds"),
    (EVAL, {"act": "wrong(last)"}, "the expert cannot continue: lost; choose other seeds"),
    (EVAL, {"changed": "metrics=(Metric('mine', fail),)"}, "mine.py, line 9, in fail)"),
    (EVAL, {"changed": "metrics=(Metric('mine', fail),)", "fail": "'good'"}, "'mine' gives 'good' for an episode, exp"),
    (EVAL, {"changed": "metrics=(Metric('mine', fail),)", "fail": "np.nan"}, "expected a finite number, or None"),
    (EVAL, {"changed": "metrics=(fail,)"}, "as a metric, expected Metric('name', function), or one of success"),
    ((*EVAL, "--execute", "0"), {}, "execute is 0, expected at least 1"),
    ((*EVAL, "--seed", "-1"), {}, "seed is -1, expected at least 0"),
    (("eval", "random:uniform", "--task", f"{EXAMPLES / 'pendulum.py'}:task", "--slip", "0.5"), {}, "are continuous"),
    (("plan", "pretrained:MazeS4G1", "--seed", "-1"), {}, "the seed is -1, expected at least 0"),
    (("plan", "pretrained:MazeS4G1", "--gif", "."), {}, "gif is ., expected a file, such as maze.gif"),
    (("plan", "pretrained:MazeS4G1", "--task", "mine.py:task"), {}, "name a task of its kind"),
    (("serve", "--port", "99999", "--no-open-browser"), {}, "the page cannot be at 127.0.0.1:99999 ("),
    (("quickstart", "--steps", "0"), {}, "steps is 0, expected at least 1"),
    (("quickstart", "--episodes", "0"), {}, "episodes is 0, expected at least 1"),
]


@pytest.mark.parametrize(("command", "parts", "message"), MISTAKES, ids=[one[2] for one in MISTAKES])
def test_mistakes_get_one_message(say, command, parts, message):
    said, code = say(*command, **parts)
    assert code == 1
    assert message in said
    assert said.startswith("genplan: ")
    assert said.count("\n") == 1
    assert len(said) < 800


def test_mistakes_in_workers_get_one_message(say):
    said, code = say("demos", "mine.py:task", "--episodes", "30", changed="success=fail")
    assert code == 1
    assert "mine.py, line 9, in fail)" in said
    assert said.count("\n") == 1


def test_a_corrected_expert_begins_anew(say, tmp_path):
    """Seeds on which a broken one failed are not left out."""
    assert "none of 200 seeds" in say(*DEMOS, changed="success=lambda *any: False")[0]
    assert say(*DEMOS)[1] == 0
    found = collect.collect(collect.CollectConfig("mine.py:task", 2))
    assert [episode.seed for episode in found.episodes] == [10000, 10001]


@pytest.mark.parametrize("gym_id", ["CartPole-v1", "Pendulum-v1", "Taxi-v4"])
def test_tasks_without_a_map_are_drawn_by_gymnasium(gym_id):
    """Also if their environment was made without a render_mode, as in the examples."""
    pytest.importorskip("pygame")
    task = task_from_gym(gym_id)
    batch = EnvBatch(task, [1])
    picture = frames.render_frame(task, batch.envs[0], batch.current[0])
    assert 100 < max(picture.size) <= frames.MAX_SIDE
    assert len(picture.getcolors(100_000)) > 2


def test_what_cannot_be_drawn_says_why(monkeypatch):
    task = task_from_gym("CartPole-v1")
    batch = EnvBatch(task, [1])
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(UserError, match=r"CartPole-v1 cannot be drawn: .*pygame.*leave out --gif"):
        frames.render_frame(task, batch.envs[0], batch.current[0])


def test_a_run_without_a_map_is_planned_drawn_and_refused_by_the_page(say, tmp_path):
    pytest.importorskip("pygame")
    say(*DEMOS)
    train = ("train", "mine.py:task", "--data", "genplan/mine/expert-2-v0", "--training.steps", "1", "--out", "runs/a")
    assert say(*train, "--planner.hidden-size", "8", "--planner.horizon", "3")[1] == 0
    assert "--task mine.py:task" in say("plan", "runs/a")[0]
    assert say("plan", "runs/a", "--task", "mine.py:task", "--gif", "x")[1] == 0
    assert (tmp_path / "x.gif").read_bytes().startswith(b"GIF")
    catalogue = pytest.importorskip("genplan.serve.catalogue").Catalogue(tmp_path / "runs")
    with pytest.raises(
        UserError, match=r"'a' observes o, expected .*: only mazes and PushT are played here.*genplan plan"
    ):
        catalogue.load("a")
