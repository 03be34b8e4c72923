"""What is added is found everywhere: a method is one file and one entry, a metric one function, a field nothing."""

import dataclasses
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from genplan import bench, checkpoint, cli, config, metrics, names, planners, report, runs, tasks
from genplan.bench import Cell, ResultStore, ResultTable
from genplan.bench.run import run_cell
from genplan.bench.table import label as method_label
from genplan.collect import CollectConfig, collect, collect_episode
from genplan.data.windows import Windows
from genplan.errors import UserError
from genplan.evaluate import evaluate, to_record
from genplan.flow import Rng
from genplan.jobs import LocalExecutor
from genplan.planners.reference import random_policy
from genplan.rollout import play
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Method, Metric, Task
from tests.bench.samples import make_result

MINE = '''
"""Mine: behavior cloning that says so in its log."""

from dataclasses import dataclass

import torch

from genplan.planners.behavior_cloning import BCConfig, BehaviorCloning


@dataclass(frozen=True)
class MineConfig(BCConfig):
    """Of Mine."""

    doubt: float = 0.5  # how little it trusts itself


class Mine(BehaviorCloning):
    Config = MineConfig

    def loss(self, batch, rng):
        losses = super().loss(batch, rng)
        return losses._replace(metrics={**losses.metrics, "doubt": torch.tensor(self.config.doubt)})
'''
NEED_MORE = ("DT", "LEAP", "BC-step", "LEAP-step")  # goals by the simulator, or observed states and discrete actions
SMALL = ["--planner.hidden-size", "16", "--planner.encoder-iterations", "1", "--planner.doubt", "0.25"]
SMALL += ["--training.steps", "4", "--training.batch-size", "8", "--training.windows-per-scene", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the method in a file and ten demonstrations, in which commands are run."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    collect(CollectConfig("LocS10N1", 10), workers=1)
    return tmp_path


@pytest.fixture
def call(folder, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert ended.value.code == 0, said.out + said.err
        return said.out

    return run


@pytest.fixture(params=["mine.py:Mine", "Mine"], ids=["file", "entry"])
def method(request, folder, monkeypatch):
    """The same method, from a user's file, and as an entry of METHODS with a label."""
    if request.param == "Mine":
        entry = Method(f"{folder}/mine.py:Mine", {"doubt": 0.125}, "Mine⊕")
        monkeypatch.setitem(planners.METHODS, "Mine", entry)
    return request.param


def test_a_method_is_trained_and_evaluated(method, folder, call):
    data = CollectConfig("LocS10N1", 10).name
    assert "--planner.doubt" in call("train", "LocS10N1", "--method", method, "--help")
    default = 0.5 if ".py:" in method else 0.125
    assert config.get(planners.default_settings(method), "doubt") == default
    call("train", "LocS10N1", "--method", method, "--data", data, "--transforms", "none", "--out", "run", *SMALL)
    assert '"doubt": 0.25' in (folder / "run" / "log.jsonl").read_text()
    named = ["--method", method] if ".py:" in method else []
    planner, run_config = checkpoint.load_planner(folder / "run", *named[1:])
    assert type(planner).__name__ == "Mine"
    assert (run_config["method"], planner.config.doubt) == (method, 0.25)
    next_step = " ".join(["genplan eval run", *named])
    assert f"step 4 of 4; for more, name more --training.steps; evaluate: {next_step}\n" in call(
        "train", "--resume", "run", *named
    )
    assert "run on LocS10N1" in call("eval", "run", *named, "--episodes", "1", "--seed", "2000")
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=3)
    control = names.load_planner(f"untrained:{method}", task)
    assert type(control).__name__ == "Mine"
    assert play(control, task, [2000])[0].num_steps == 3


def test_a_method_is_a_cell_of_the_benchmark_and_on_its_page(method, folder, monkeypatch):
    short = dataclasses.replace(tasks.get("MazeS4N3G1"), max_steps=4)
    monkeypatch.setitem(tasks.TASKS, "MazeS4N3G1", lambda: short)
    plain = dataclasses.replace(tasks.get("LocS10N1"), transforms=())
    monkeypatch.setitem(tasks.TASKS, "LocS10N1", lambda: plain)
    (cell, *others) = bench.select("tiny", methods=["BC"], planner=method)
    assert (cell.method, cell.steps, cell.demonstrations) == (method, 6, 10)  # trained as the others of the suite
    assert [one.method for one in others] == ["BC"]
    store = ResultStore(folder / "cells.jsonl")
    events = bench.run_cells([cell], store, folder / "bench", executor=LocalExecutor(1))
    assert [event.type for event in events][-1] == "done"
    result = store.find(cell)
    assert result.training["steps"] == 6
    assert result.num_episodes == 4
    assert store.find(dataclasses.replace(cell, seed=1)) is None
    store.add(make_result(Cell(method, "MazeS4N3G1"), [1, 0] * 125))
    store.add(make_result(Cell("GenPlan-M", "MazeS4N3G1"), [1] * 250))
    label = "mine.py:Mine" if ".py:" in method else "Mine⊕"
    results = ResultTable(ResultStore(store.path))
    assert results.methods([cell.table_row]) == ["GenPlan-M", method]
    assert method_label(method) == label
    assert not results.is_stale(results.find(method, "MazeS4N3G1"))
    page = report.benchmark_page(store.path, folder / "page.html").read_text()
    assert f"<th>{label}</th>" in page
    assert f"is better than {label}." in page


def test_a_method_that_is_none_is_refused(folder):
    (folder / "mine.py").write_text("class Mine: ...")
    with pytest.raises(UserError, match="has no Config, expected a subclass of LearnedPlanner"):
        planners.planner_class("mine.py:Mine")
    with pytest.raises(UserError, match="there is no method 'Nobody'"):
        planners.find_method("Nobody")


# --- a metric --------------------------------------------------------------------------------------------------------


def test_a_metric_is_one_function(monkeypatch, folder):
    """How far it got from where it began, in cells: in evaluations, in results of cells, and on pages."""

    def distance(rollout):
        geometry = rollout.spec.geometry
        (x, y, _), (u, v, _) = (geometry.pose(int(rollout.observations["state"][step])) for step in (0, -1))
        return float(abs(x - u) + abs(y - v))

    own = Metric("distance", distance, format=".2f", label="cells from the start")
    base = tasks.get("MazeS4N3G1")
    task = dataclasses.replace(base, metrics=(*base.metrics, own), max_steps=10)
    monkeypatch.setitem(tasks.TASKS, "MazeS4N3G1", lambda: task)
    planner = names.load_planner("random:forward", task)
    found = evaluate(planner, task, range(2000, 2004), baseline=None)
    values = [distance(one) for one in found.rollouts]
    assert found.planner.value("distance") == np.mean(values)
    record = to_record("mine", task, range(2000, 2004), {}, found)
    assert record["metrics"]["distance"]["value"] == np.mean(values)
    assert record["episodes"]["metrics"]["distance"] == values
    (folder / "log.jsonl").touch()
    dataset = {"name": "d", "digest": "0", "episodes": 10}
    run_config = {"method": "Mine", "dataset": dataset, "planner": {}, "training": {}}
    page = report.run_page(folder, "A run", run_config, found, [], 1.0).read_text()
    assert "<th>cells from the start</th>" in page
    assert f"<td>{np.mean(values):.2f}<br>" in page
    cell = Cell("random:forward", "MazeS4N3G1", episodes=4)
    result = run_cell(cell, folder, lambda fraction: None)
    assert len(result.episodes["distance"]) == 4
    store = ResultStore(folder / "cells.jsonl")
    store.add(result)
    results = ResultTable(ResultStore(store.path))
    assert results.value(results.results[0], "distance") == np.mean(result.episodes["distance"])
    summary = results.summary(results.results[0], "distance")
    assert summary.low <= summary.value <= summary.high


def test_an_unknown_metric_is_refused():
    task = dataclasses.replace(tasks.get("MazeS4G1"), metrics=("success", "coverage"))
    with pytest.raises(UserError, match=r"names the metric 'coverage'; known are success, .*, or a Metric"):
        metrics.resolve(task)


# --- fields ----------------------------------------------------------------------------------------------------------


class Robot(gymnasium.Env):
    """Two vectors and a category are observed, and the arm is moved by torques."""

    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joints, self.tool = self.np_random.uniform(-1, 1, 2), int(self.np_random.integers(3))
        return None, {}

    def step(self, action):
        self.joints = self.joints + 0.1 * action
        return None, -float(np.square(self.joints).sum()), False, False, {}


def robot_task(streams, **fields):
    """A task whose fields are chosen by name."""
    known = {
        "joints": (Field("vector", (2,)), lambda env: env.joints.astype(np.float32)),
        "camera": (Field("vector", (3,)), lambda env: np.array([*env.joints, 1.0], np.float32)),
        "tool": (Field("category", sizes=(3,)), lambda env: env.tool),
        "switches": (Field("category", (2,), (3, 2)), lambda env: np.array([env.tool, 1])),
        "order": (Field("words", (3,), vocabulary=("<pad>", "pick", "place")), lambda env: np.array([1, 2, 0])),
        "map": (Field("grid", (4, 4), (3,)), lambda env: np.full((4, 4, 1), env.tool, np.uint8)),
    }
    spec = PlanSpec({name: known[name][0] for name in fields["names"]}, Actions(low=(-1, -1), high=(1, 1)), streams)
    observe = lambda env, raw: {name: known[name][1](env) for name in fields["names"]}  # noqa: E731
    return Task("Robot", Robot, spec, observe, 6, None, metrics=("return",))


@pytest.mark.parametrize("method", [name for name in planners.METHODS if name not in NEED_MORE])
@pytest.mark.parametrize(
    ("fields", "streams"),
    [
        (("joints", "camera", "tool"), {}),
        (("joints", "tool", "switches"), {"states": Stream(3, observed="tool")}),
        (("joints", "order", "map"), {}),
    ],
    ids=" ".join,
)
def test_a_new_field_of_a_known_kind_is_nothing(method, fields, streams):
    task = robot_task(streams, names=fields)
    env, expert = task.make_env(), random_policy("uniform", task.spec.actions, None)
    episodes = [collect_episode(expert, task, env, seed) for seed in range(10_000, 10_006)]
    settings = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "iterations": 2, "bins": 8, "horizon": 4,
                "action_steps": 2, "encoder_iterations": 2}  # fmt: skip
    planner = planners.build(method, task.spec, config.override(planners.default_settings(method), False, **settings))
    planner.fit_codec(episodes)
    windows = Windows(task.spec, episodes, planner.needs)
    optimizer, losses = torch.optim.AdamW(planner.parameters(), lr=5e-3), []
    for step in range(12):
        torch.manual_seed(step)
        loss = planner.train().loss(windows.sample(16, Rng.of(0, step), 1), Rng.of(0, step)).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    if not method.startswith(
        ("Regression", "MIP")
    ):  # of random actions, the mean is all that can be told, and it begins there
        assert np.mean(losses[-3:]) < losses[0]
    used = {name for name, parameter in planner.named_parameters() if parameter.grad is not None}
    for name in fields:
        assert any(f".{name}." in f".{part}." for part in used), name  # its encoder learns
    (played,) = play(planner.eval(), task, [2000])
    assert played.actions.shape == (6, 2)


def test_fields_of_every_kind_are_stored_and_trained_on(folder, monkeypatch):
    task = robot_task({}, names=("joints", "camera", "tool", "order"))
    expert = random_policy("uniform", task.spec.actions, None)
    task = dataclasses.replace(task, expert=lambda: expert)
    monkeypatch.setitem(tasks.TASKS, "Robot", lambda: task)
    data = collect(CollectConfig("Robot", 8), workers=1)
    assert set(data.episodes[0].observations) == {"joints", "camera", "tool", "order"}
    settings = config.override(planners.default_settings("BC"), hidden_size=16)
    training = runs.TrainConfig(steps=3, batch_size=4, windows_per_scene=1)
    runs.create_run(folder / "robot", "Robot", "BC", settings, training, data.name).fit()
    planner, _ = checkpoint.load_planner(folder / "robot")
    assert play(planner, task, [2000])[0].num_steps == 6


@pytest.mark.parametrize("name", [name for name, one in planners.METHODS.items() if not one.continuous])
def test_a_method_says_which_settings_are_options_and_which_its_name_chooses(name):
    planner = planners.planner_class(name)
    settings = config.leaves(planner.Config())
    assert {"temperature", "exploration"} <= set(planner.options) & set(settings)
    assert set(planner.variants) <= set(settings)
    assert not set(planner.variants) & set(planner.options)  # they are built into the weights
