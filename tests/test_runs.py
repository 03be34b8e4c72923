"""Runs: they learn, they resume exactly, and what is broken is refused; exports, and several tasks at once."""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

import genplan
from genplan import checkpoint, cli, export, names, planners, runs, tasks
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.errors import CheckpointError, UserError
from genplan.evaluate import evaluate
from genplan.files import write_sealed
from genplan.planners.genplan import GenPlanConfig
from genplan.presets import TrainConfig
from genplan.rollout import play
from genplan.tasks.grid import COLOR_PERMUTATION, SYMMETRY

METHOD, TASK = "GenPlan-M", "LocS10N1"
PLANNER = override(
    GenPlanConfig(), horizon=5, context_length=2, hidden_size=32, num_layers=1, encoder_iterations=2, iterations=3,
    action_steps=2, dropout=0.1,
)  # fmt: skip
TRAINING = TrainConfig(
    steps=24, batch_size=16, windows_per_scene=4, threads=1, warmup_steps=4, log_every=4, validate_every=8,
    save_every=3, learning_rate=3e-3,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        yield collect(CollectConfig(TASK, 40), workers=1).name


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    runs.create_run(folder, TASK, METHOD, PLANNER, TRAINING, data, [SYMMETRY]).fit()
    return folder


def weights(folder):
    return checkpoint.load_tensors(folder / "last.safetensors")[0]


def same(a, b):
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_stopped_and_resumed_equals_never_stopped(finished, data, tmp_path):
    folder = tmp_path / "stopped"
    trainer = runs.create_run(folder, TASK, METHOD, PLANNER, TRAINING, data, [SYMMETRY])
    for _ in range(3):  # three sessions, stopped by Ctrl-C at odd moments
        training_step, count = trainer.training_step, iter(range(5))

        def interrupted(training_step=training_step, count=count):
            if next(count, None) is None:
                raise KeyboardInterrupt
            return training_step()

        trainer.training_step = interrupted
        with pytest.raises(KeyboardInterrupt):
            trainer.fit()
        trainer = runs.resume_run(folder)
    assert trainer.step == 15
    trainer.fit()
    assert same(weights(folder), weights(finished))
    assert [line["step"] for line in log(folder) if "learning_rate" in line] == [4, 8, 12, 16, 20, 24]
    assert log(folder)[-1] == log(finished)[-1]
    assert same(*(checkpoint.load_tensors(one / "model.safetensors")[0] for one in (folder, finished)))


def test_ctrl_c_within_a_step_is_answered_after_it(finished, data, tmp_path):
    folder = tmp_path / "within"
    trainer = runs.create_run(folder, TASK, METHOD, PLANNER, TRAINING, data, [SYMMETRY])
    update, steps = trainer.ema.update, iter([False] * 6 + [True])

    def update_under_ctrl_c(*arguments):
        if next(steps):
            os.kill(os.getpid(), signal.SIGINT)  # after the optimizer's step, before it is counted
        update(*arguments)

    trainer.ema.update = update_under_ctrl_c
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    trainer = runs.resume_run(folder)
    assert trainer.step == 7
    trainer.fit()
    assert same(weights(folder), weights(finished))


def test_killed_at_random_moments_it_resumes_exactly(finished, data, tmp_path):
    """kill -9, four times here (twenty in benchmarks/resume.py): the weights at the end are the same bits."""
    folder = tmp_path / "killed"
    runs.create_run(folder, TASK, METHOD, PLANNER, TRAINING, data, [SYMMETRY])
    code = "import sys; from pathlib import Path; from genplan import runs; runs.resume_run(Path(sys.argv[1])).fit()"
    chance = random.Random(0)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stderr=subprocess.DEVNULL)
        deadline = time.time() + 30
        while not (folder / "last.safetensors").exists() and time.time() < deadline and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (folder / "last.safetensors").exists()
    runs.resume_run(folder).fit()
    assert same(weights(folder), weights(finished))


def test_it_learns_and_the_loaded_planner_plans(data, tmp_path):
    """Some seconds on six rooms: the loss falls, and the loaded planner solves most of them within 20 steps.

    Five of the six were trained on: this shows memorizing, not generalizing. A random policy solves two at the most.
    """
    few = collect(CollectConfig(TASK, 6), workers=1)
    folder = tmp_path / "learn"
    planner = override(
        GenPlanConfig(), horizon=5, hidden_size=32, num_layers=2, encoder_iterations=4, iterations=5, action_steps=1,
        temperature=0.3,
    )  # fmt: skip
    training = TrainConfig(
        steps=350, validate_every=100, batch_size=32, windows_per_scene=4, learning_rate=4e-3, warmup_steps=20
    )
    runs.create_run(folder, TASK, METHOD, planner, training, few.name, transforms=[]).fit()
    losses = [line["loss"] for line in log(folder) if "loss" in line]
    assert losses[-1] < 0.4 * losses[0], losses
    trained, config = checkpoint.load_planner(folder)
    assert config["task"] == TASK
    assert config["transforms"] == []
    task = dataclasses.replace(tasks.get(TASK), max_steps=20)
    seeds = [episode.seed for episode in few.episodes]
    solved = sum(one.success for one in play(trained, task, seeds, action_steps=1))
    by_chance = sum(one.success for one in play(names.load_planner("random:demos", task), task, seeds))
    assert solved >= 4, (solved, by_chance)
    assert by_chance <= 2


def test_broken_checkpoints_are_refused(finished, tmp_path):
    folder = tmp_path / "broken"
    for damage, message in (
        (lambda raw: raw[: len(raw) // 2], "not a whole checkpoint"),
        (lambda raw: raw[:-7] + b"tampers", "was changed: its content is"),
        (lambda raw: b"pickle me", "not a whole checkpoint"),
    ):
        shutil.copytree(finished, folder)
        path = folder / "model.safetensors"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(CheckpointError, match=message):
            checkpoint.load_planner(folder)
        shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        checkpoint.load_planner(tmp_path)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (None, {"format": 9}, "has format 9, expected 1 to 3"),
        (None, {"planner": 3}, "'planner': 3, expected names with values"),
        ("planner", {"wdith": 3}, "there is no setting 'wdith'"),
        ("planner", {"horizon": "5"}, "horizon is '5', expected a whole number"),
        ("planner", {"network": {"hidden_size": 64}}, "lacks|has shape|larger network"),
        ("dataset", {"digest": "0"}, "expected 0 as when"),
    ],
)
def test_changed_configs_are_refused(finished, tmp_path, part, change, message):
    folder = tmp_path / "config"
    shutil.copytree(finished, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    changed = {**config, **change} if part is None else {**config, part: {**config[part], **change}}
    path.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="was changed" if "format" not in change else "has format 9"):
        checkpoint.load_planner(folder)
    write_sealed(path, {name: value for name, value in changed.items() if name != "digest"})
    with pytest.raises(UserError, match=message):
        runs.resume_run(folder) if part == "dataset" else checkpoint.load_planner(folder)


def test_a_run_is_not_overwritten_and_bad_losses_stop_it(finished, data, tmp_path):
    with pytest.raises(UserError, match="there is a run in"):
        runs.create_run(finished, TASK, METHOD, PLANNER, TRAINING, data)
    trainer = runs.create_run(tmp_path / "nan", TASK, METHOD, PLANNER, TRAINING, data, [])
    with torch.no_grad():
        next(trainer.planner.denoiser.parameters()).fill_(torch.nan)
    with pytest.raises(UserError, match=r"the loss is nan at step 0; the last good checkpoint is in"):
        trainer.fit()


def test_the_command_line_trains_plans_and_evaluates(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert ended.value.code == code, said.err
        return said.err if code else said.out

    small = ["--planner.hidden-size", "16", "--planner.num-layers", "1", "--planner.encoder-iterations", "1"]
    small += ["--training.steps", "4", "--training.batch-size", "8", "--training.windows-per-scene", "2"]
    call("train", TASK, "--out", "run", "--data", data, "--transforms", "symmetry", *small)
    assert "run is trained: step 4 of 4" in call("train", "--resume", "run")
    assert "energy" in call("plan", "run", "--seed", "2000")
    call("eval", "run", "--episodes", "4", "--seed", "2000", "--execute", "10", "--json", "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    keys = "task planner method preset config_hash commit first_seed action_steps num_episodes metrics num_plans"
    assert {*keys.split(), "plans_per_second", "seconds", "baselines", "episodes"} <= set(found)
    assert (found["preset"], found["action_steps"]) == ("default", 10)
    assert set(found["metrics"]) >= {"success", "spl", "steps", "stalling"}
    assert 0 < found["planner_seconds"] < found["seconds"]
    assert found["baselines"]["expert"]["metrics"]["success"]["value"] == 1
    assert found["episodes"]["seeds"] == [2000, 2001, 2002, 2003]
    assert "untrained" in call("eval", "run", "--episodes", "2", "--seed", "2000", "--untrained", "--threads", "1")
    for arguments, message in (
        (("train", TASK, "--out", "run", "--data", data), "run holds another run: transforms is"),
        (("eval", "run", "--episodes", "0"), "episodes is 0"),
    ):
        assert message in call(*arguments, code=1)


SMALL = ("--planner.hidden-size", "16", "--planner.num-layers", "1", "--planner.encoder-iterations", "1",
         "--training.batch-size", "8", "--training.windows-per-scene", "2")  # fmt: skip


def test_the_same_command_goes_on_and_more_steps_extend(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def train(*flags, out="run", steps=4):
        same = ["--data", data, "--transforms", "symmetry", *SMALL, "--training.steps", str(steps)]
        cli.train([TASK, "--out", out, *same, *flags])
        return capsys.readouterr().out

    assert "from step 0 to 4" in train()
    assert "run is trained: step 4 of 4; for more, name more --training.steps" in train()
    assert "from step 4 to 8" in train(steps=8)
    assert checkpoint.read_config(tmp_path / "run")["training"]["steps"] == 8
    assert runs.resume_run(tmp_path / "run").config.steps == 8
    assert "step 8 of 8" in train("--training.log-every", "2", steps=8)  # what is written may change
    for flags, message in (
        (("--planner.hidden-size", "32"), "hidden_size is 16 there, 32 given"),
        (("--training.seed", "1"), "seed is 0 there, 1 given"),
        (("--transforms", "none"), "transforms is .* there, .* given"),
        (("--method", "GenPlan-U"), "method is GenPlan-M there, GenPlan-U given"),
        (("--data", "other"), f"data is {data} there, other given"),
    ):
        with pytest.raises(UserError, match=message) as refused:
            train(*flags, steps=8)
        assert "name another --out" in str(refused.value)
    with pytest.raises(UserError, match="run is a run of 8 steps, found 4; a run is not made shorter"):
        train(steps=4)
    # Stopped after it was extended, and extended in one go: the same bits.
    train(out="whole")
    train(out="whole", steps=8)
    shutil.copytree("whole", "stopped")
    trainers = [runs.resume_run(tmp_path / name, steps=12) for name in ("whole", "stopped")]
    trainers[0].fit()
    for _ in range(2):
        trainers[1].training_step()
    trainers[1].save()
    runs.resume_run(tmp_path / "stopped").fit()
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))


@pytest.fixture
def short_test(monkeypatch):
    """Three test seeds, and episodes of 20 steps."""
    monkeypatch.setattr(export, "TEST_SEEDS", range(2000, 2003))
    task = dataclasses.replace(tasks.get(TASK), max_steps=20)
    monkeypatch.setitem(tasks.TASKS, TASK, lambda: task)


def test_exported_planners_are_small_loaded_and_reproduced(finished, tmp_path, short_test):
    out = tmp_path / "planner"
    with pytest.raises(UserError, match="wit cannot be set for a trained GenPlan; expected iterations"):
        export.export(finished, out, {"wit": 2})
    ended = []
    card = export.export(finished, out, {"action_steps": 3}, ended.append)
    assert sum(ended) == 9
    assert checkpoint.read_card(out) == json.loads(json.dumps(card))
    assert genplan.load(out).planner.config.action_steps == 3
    assert card["dataset"]["digest"]
    assert card["cpu_seconds"] >= 0
    assert card["results"]["num_episodes"] == 3
    statistics = sum(one.numel() * one.element_size() for one in checkpoint.load_planner(finished)[0].buffers())
    small, whole = ((folder / "model.safetensors").stat().st_size - statistics for folder in (out, finished))
    assert small < whole * 0.6  # weights are halved, and statistics of the data stay as they are
    half, whole = genplan.load(out).planner, genplan.load(finished).planner
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(half.state_dict()[name], tensor, atol=2e-3)
    with pytest.raises(UserError, match="there is a planner in"):
        export.export(finished, out)
    again = export.reproduce(str(out), tmp_path / "again")
    assert same(weights(tmp_path / "again"), weights(finished))  # the same bits: same data, same seed, same machine
    assert again.same_dataset
    assert again.as_good
    with pytest.raises(UserError, match=r"has no card\.json"):
        export.reproduce(str(finished), tmp_path / "x")
    assert names.load_planner(str(finished), tasks.get(TASK)).config.horizon == 5


def test_only_finished_runs_are_exported(data, tmp_path):
    trainer = runs.create_run(tmp_path / "run", TASK, METHOD, PLANNER, TRAINING, data, [])
    trainer.training_step()
    trainer.save()
    with pytest.raises(UserError, match="is at step 1 of 24; finish it"):
        export.export(tmp_path / "run", tmp_path / "out")


@pytest.mark.parametrize("method", ["GenPlan-M", "GenPlan-U", "LEAP-H", "DT", "BC"])
def test_one_planner_learns_tasks_of_different_size_and_number_of_goals(method, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    task_names = ("KeyCorridorS3R3", "LocS10N10G2")
    joined = "+".join(task_names)
    datasets = [collect(CollectConfig(name, 8), workers=1).name for name in task_names]
    config = override(
        planners.default_settings(method), strict=False, hidden_size=32, num_layers=2, encoder_iterations=2,
        iterations=2, context_length=1, visit_memory=True,
    )  # fmt: skip
    training = TrainConfig(steps=6, batch_size=8, windows_per_scene=4, evaluate_every=6, evaluate_episodes=1)
    for name in task_names:
        short = dataclasses.replace(tasks.get(name), max_steps=3)
        monkeypatch.setitem(tasks.TASKS, name, lambda short=short: short)
    with pytest.raises(UserError, match="1 datasets for 2 tasks"):
        runs.create_run(tmp_path / "run", joined, method, config, training, datasets[0])
    recipe = [SYMMETRY, COLOR_PERMUTATION]
    runs.create_run(tmp_path / "run", joined, method, config, training, "+".join(datasets), recipe).fit()
    planner, read = checkpoint.load_planner(tmp_path / "run")
    assert planner.spec.num_goals == 2
    assert read["dataset"]["episodes"] == 16
    assert [one["name"] for one in read["transforms"]] == ["symmetry", "color_permutation"]
    evaluated = next(line for line in log(tmp_path / "run") if any(name.startswith("eval/") for name in line))
    assert {f"eval/{name}/success" for name in task_names} <= set(evaluated)
    for name in task_names:
        task = tasks.get(name)
        assert len(play(planner.for_spec(task.spec), task, [2000])) == 1
    with pytest.raises(UserError, match="was trained on several tasks; choose one with --task"):
        names.load_for_eval(str(tmp_path / "run"), None)
    player, _, task = names.load_for_eval(str(tmp_path / "run"), task_names[0])
    baseline = names.load_planner(names.default_baseline(task), task)  # by this task's own demonstrations
    assert evaluate(player, task, [2000], baseline=baseline).random is not None


def test_resuming_needs_the_same_data(finished, data, tmp_path, monkeypatch):
    assert runs.dataset_matches(checkpoint.read_config(finished), TASK)
    monkeypatch.setitem(os.environ, "MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no dataset"):
        runs.resume_run(finished)
