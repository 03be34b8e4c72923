"""Training: it learns, it resumes exactly, and it refuses what is broken."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time

import gymnasium
import pytest
import torch
from genplan.data.demos import Recipe, collect
from genplan.planners.names import resolve
from genplan.train import rate
from rich.console import Console

import genplan
from genplan import checkpoint, draw, export, judge, runs, tasks
from genplan.checkpoint import CheckpointError
from genplan.config import GenPlanConfig, TrainConfig
from genplan.errors import UserError
from genplan.evaluate import rollout, wilson

PLANNER = GenPlanConfig(horizon=5, context=1, width=32, layers=1, passes=2, iterations=3, execute=2, dropout=0.1)
TRAINING = TrainConfig(
    steps=24, batch=16, per_map=4, threads=1, warmup=4, log_every=4, validate_every=8, save_every=3, learning_rate=3e-3
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("minari")
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    yield collect(Recipe("LocS10N1", 40), workers=1).name
    if before is None:
        del os.environ["MINARI_DATASETS_PATH"]
    else:
        os.environ["MINARI_DATASETS_PATH"] = before


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    runs.begin(folder, "LocS10N1", PLANNER, TRAINING, data).fit()
    return folder


def weights(folder):
    return checkpoint.load_tensors(folder / "last.safetensors")[0]


def same(a, b):
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


def test_stopped_and_resumed_equals_never_stopped(finished, data, tmp_path):
    folder = tmp_path / "stopped"
    run = runs.begin(folder, "LocS10N1", PLANNER, TRAINING, data)
    for _ in range(3):  # three sessions, stopped by Ctrl-C at odd moments
        advance, count = run.advance, iter(range(5))

        def interrupted(advance=advance, count=count):
            if next(count, None) is None:
                raise KeyboardInterrupt
            return advance()

        run.advance = interrupted
        with pytest.raises(KeyboardInterrupt):
            run.fit()
        run = runs.resume(folder)
    assert run.step == 15
    run.fit()
    assert same(weights(folder), weights(finished))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    expected = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "rate" in line] == [4, 8, 12, 16, 20, 24]
    assert lines[-1] == expected[-1]
    assert same(*(checkpoint.load_tensors(f / "model.safetensors")[0] for f in (folder, finished)))


def test_killed_at_random_moments_it_resumes_exactly(finished, data, tmp_path):
    """kill -9, four times here (twenty in benchmarks/resume.py): the weights at the end are the same bits."""
    folder = tmp_path / "killed"
    runs.begin(folder, "LocS10N1", PLANNER, TRAINING, data)
    code = "import sys; from pathlib import Path; from genplan import runs; runs.resume(Path(sys.argv[1])).fit()"
    chance = random.Random(0)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stderr=subprocess.DEVNULL)
        deadline = time.time() + 30
        while not (folder / "last.safetensors").exists() and time.time() < deadline and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
    runs.resume(folder).fit()
    assert same(weights(folder), weights(finished))


def test_it_learns_and_the_loaded_planner_plans(data, tmp_path):
    """Some seconds on six rooms: the loss falls, and the loaded planner solves most of them within 20 steps.

    Five of the six were trained on: this shows memorising, not generalising. A blind walk solves two at the most.
    """
    few = collect(Recipe("LocS10N1", 6), workers=1)
    folder = tmp_path / "learn"
    planner = GenPlanConfig(horizon=5, width=32, layers=2, passes=4, iterations=5, execute=1, temperature=0.3)
    options = {"batch": 32, "per_map": 4, "threads": 1, "learning_rate": 4e-3, "warmup": 20, "augment": False}
    training = TrainConfig(steps=350, validate_every=100, **options)
    runs.begin(folder, "LocS10N1", planner, training, few.name).fit()
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.4 * losses[0], losses
    trained, config = runs.load(folder)
    assert config["task"] == "LocS10N1"
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=20)
    seeds = [episode.seed for episode in few.episodes]
    solved = sum(result.success for result in rollout(trained, task, seeds, execute=1))
    blindly = sum(result.success for result in rollout(resolve("walk:demos", task), task, seeds))
    assert solved >= 4, (solved, blindly)
    assert blindly <= 2


def test_broken_checkpoints_are_refused(finished, tmp_path):
    import shutil

    for damage, message in (
        (lambda raw: raw[: len(raw) // 2], "not a whole checkpoint"),
        (lambda raw: raw[:-7] + b"tampers", "was changed: its content is"),
        (lambda raw: b"pickle me", "not a whole checkpoint"),
    ):
        folder = tmp_path / "broken"
        shutil.copytree(finished, folder)
        path = folder / "model.safetensors"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(CheckpointError, match=message):
            runs.load(folder)
        shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        runs.load(tmp_path)
    folder = tmp_path / "config"
    shutil.copytree(finished, folder)
    config = json.loads((folder / "config.json").read_text())
    for change, error in (
        ({"format": 9}, "has format 9, expected 1"),
        ({"planner": {**config["planner"], "wdith": 3}}, "unknown key 'wdith'"),
        ({"planner": {**config["planner"], "width": 64}}, "has shape"),
        ({"dataset": {**config["dataset"], "digest": "0"}}, "expected 0 as when"),
    ):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(UserError, match=error):
            runs.resume(folder) if "dataset" in change else runs.load(folder)


def test_a_run_is_not_overwritten_and_bad_losses_stop_it(finished, data, tmp_path):
    with pytest.raises(UserError, match="there is a run in"):
        runs.begin(finished, "LocS10N1", PLANNER, TRAINING, data)
    run = runs.begin(tmp_path / "nan", "LocS10N1", PLANNER, TRAINING, data)
    with torch.no_grad():
        run.planner.denoiser.to_action.weight.fill_(torch.nan)
    with pytest.raises(UserError, match=r"the loss is nan at step 0; the last good checkpoint is in"):
        run.fit()


def test_load_plan_and_draw(finished):
    pilot = genplan.load(finished)
    env = gymnasium.make("genplan/LocS10N1-v0")
    observation, _ = env.reset(seed=2000)
    plan = pilot.plan(observation)
    assert plan.actions.shape == plan.states.shape == plan.confidence.shape == (5,)
    assert plan.goals.shape == (5, 1)
    assert plan.energy > 0
    assert pilot.planner.spec.pose(int(plan.states[0])) == tuple(observation["pose"])
    assert (pilot.plan(observation, iterations=1, temperature=0.0).trace.t == torch.tensor([0.0, 1.0])).all()
    after, *_ = env.step(int(plan.actions[0]))
    pilot.observe(int(plan.actions[0]), after)
    pilot.plan(after)
    pilot.start()
    again = pilot.plan(observation)
    assert (again.actions == plan.actions).all()
    with pytest.raises(UserError, match=r"the observation has \['pixels'\]"):
        pilot.plan({"pixels": 1})
    pilot.start()
    with pytest.raises(UserError, match="before the first plan"):
        pilot.observe(0, after)
    drawn = draw.maze(pilot.planner.spec, observation["image"], int(plan.states[0]), plan.states, plan.goals).plain
    assert drawn.count("\n") == 10
    assert any(arrow in drawn for arrow in "▶▼◀▲")
    assert draw.denoising(plan.trace, mask=6).row_count == 4


def test_the_command_line_trains_plans_and_evaluates(data, tmp_path):
    def call(*arguments):
        command = [sys.executable, "-m", "genplan", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    small = ["--planner.width", "16", "--planner.layers", "1", "--planner.passes", "1", "--training.steps", "4"]
    small += ["--training.batch", "8", "--training.per-map", "2", "--training.threads", "1"]
    made = call("train", "LocS10N1", "--out", "run", "--data", data, *small)
    assert made.returncode == 0, made.stderr
    again = call("train", "--resume", "run")
    assert again.returncode == 0, again.stderr
    assert "from step 4 to 4" in again.stdout
    shown = call("plan", "run", "--seed", "2000")
    assert shown.returncode == 0, shown.stderr
    assert "energy" in shown.stdout
    judged = call("eval", "run", "--episodes", "4", "--seed", "2000", "--execute", "10", "--json", "found.json")
    assert judged.returncode == 0, judged.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    keys = "task planner preset config_hash commit episodes seed execute success success_interval spl mean_steps stall"
    assert {*keys.split(), "plans", "plans_per_second", "seconds", "walk", "bot", "rows"} <= set(found)
    assert found["preset"] == "default"
    assert 0 < found["planner_seconds"] < found["seconds"]
    assert found["bot"]["success"] == 1
    assert [row["seed"] for row in found["rows"]] == [2000, 2001, 2002, 2003]
    control = call("eval", "run", "--episodes", "2", "--seed", "2000", "--untrained", "--threads", "1")
    assert control.returncode == 0, control.stderr
    assert "untrained" in control.stdout
    for arguments, message in (
        (("eval", "bot", "--task", "LocS10N1", "--untrained"), "has no network that could be left untrained"),
        (("train",), "name a task to train"),
        (("train", "LocS10N1", "--out", "run", "--data", data), "there is a run in run already"),
        (("eval", "nothing"), "is not a run folder"),
        (("eval", "run", "--episodes", "0"), "episodes is 0"),
        (("eval", "bot", "--task", "LocS10N1", "--iterations", "3"), "can be set for trained planners"),
        (("plan", "nothing"), "there is no config.json"),
        (("train", "--resume", "nothing"), "there is no config.json"),
        (("train", "LocS10N1", "--planner.width", "30"), "multiple of the 4 heads"),
    ):
        answer = call(*arguments)
        assert answer.returncode == 1, (arguments, answer)
        assert message in answer.stderr
        assert "Traceback" not in answer.stderr


def test_schedule_and_intervals():
    config = TrainConfig(steps=100, warmup=10, learning_rate=1.0)
    assert rate(config, 0) == pytest.approx(0.1, rel=1e-2)
    assert rate(config, 9) > rate(config, 50) > rate(config, 99)
    assert rate(config, 99) < 1e-2
    low, high = wilson(95, 100)
    assert (round(low, 3), round(high, 3)) == (0.888, 0.978)
    assert wilson(0, 10)[0] == 0
    for wrong, message in (
        ({"steps": 0}, "steps is 0"),
        ({"batch": 10, "per_map": 4}, "multiple of per_map"),
        ({"average": 1}, "average is 1"),
    ):
        with pytest.raises(UserError, match=message):
            TrainConfig(**wrong)


def test_exported_planners_are_small_loaded_and_reproduced(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "TEST_SEEDS", range(2000, 2003))
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=20)
    monkeypatch.setattr(tasks, "get", lambda name: task)
    console = Console(record=True, width=100)
    out = tmp_path / "planner"
    with pytest.raises(UserError, match="has no option 'wit'"):
        export.export(console, finished, out, {"wit": 2})
    export.export(console, finished, out, {"execute": 2})
    assert genplan.load(out).planner.config.execute == 2
    card = json.loads((out / "card.json").read_text())
    assert card["dataset"]["digest"]
    assert card["cpu_seconds"] >= 0
    assert card["results"]["episodes"] == 3
    assert (out / "model.safetensors").stat().st_size < (finished / "model.safetensors").stat().st_size * 0.6
    half, whole = genplan.load(out).planner, genplan.load(finished).planner
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(half.state_dict()[name], tensor, atol=2e-3)
    with pytest.raises(UserError, match="there is a planner in"):
        export.export(console, finished, out, {})
    again = tmp_path / "again"
    assert export.reproduce(console, str(out), again)
    assert same(weights(again), weights(finished))  # the same bits: same data, same seed, same machine
    assert "as good as its card" in console.export_text()
    with pytest.raises(UserError, match=r"has no card\.json"):
        export.reproduce(console, str(finished), tmp_path / "x")
    with pytest.raises(UserError, match="there is no planner 'pretrained:Nowhere'"):
        genplan.load("pretrained:Nowhere")
    assert resolve(str(finished), task).config.horizon == 5


def test_one_planner_learns_in_worlds_of_different_size_and_number_of_goals(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    names = ("KeyCorridorS3R3", "LocS10N10G2")
    recipes = [Recipe(name, 8) for name in names]
    for recipe in recipes:
        collect(recipe, workers=1)
    config = GenPlanConfig(width=32, layers=2, passes=2, iterations=2, context=0, trail=True)
    training = TrainConfig(steps=6, batch=8, per_map=4, recolour=True)
    with pytest.raises(UserError, match="1 datasets for 2 tasks"):
        runs.begin(tmp_path / "run", "+".join(names), config, training, recipes[0].name)
    joined = "+".join(recipe.name for recipe in recipes)
    run = runs.begin(tmp_path / "run", "+".join(names), config, training, joined)
    run.fit()
    planner, config_read = runs.load(tmp_path / "run")
    assert planner.spec.num_goals == 2
    assert config_read["dataset"]["episodes"] == 16
    for name in names:
        task = dataclasses.replace(tasks.get(name), max_steps=3)
        assert len(rollout(planner.on(task.spec), task, [2000])) == 1
    with pytest.raises(UserError, match="learnt in several worlds"):
        judge.find(str(tmp_path / "run"), None, {})
    found = judge.judge(Console(quiet=True), str(tmp_path / "run"), names[0], [2000], {}, 0.0, "walk:demos", None)
    assert found.walk is not None  # that of this world's demonstrations
