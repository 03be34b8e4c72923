"""Examples of one's own tasks: short, demonstrated by their own experts, learnt from, and evaluated."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from genplan import checkpoint, console, names, planners, runs, tasks
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.evaluate import evaluate, to_record
from genplan.metrics import resolve
from genplan.presets import TrainConfig, default_config
from genplan.rollout import play

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {"cartpole": "return", "pendulum": "return", "doorkey": "success", "taxi": "success"}
MAX_LINES = 80


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request, tmp_path_factory):
    """The name, the task, and a few demonstrations."""
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        patch.setattr("genplan.collect.CHUNK", 8)  # no more than are asked for
        source = str(ROOT / "examples" / f"{name}.py:task")
        yield name, source, tasks.get(source), collect(CollectConfig(source, 8), workers=1), folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < MAX_LINES


def test_its_expert_is_far_better_than_chance(example):
    name, _, task, data, _ = example
    short = dataclasses.replace(task, max_steps=min(task.max_steps, 200))
    seeds = range(2000, 2006)
    random = names.load_planner("random:uniform", short)
    found = evaluate(short.expert(), short, seeds, baseline=random)
    headline = EXAMPLES[name]
    assert resolve(task)[0].name == headline
    best, chance = found.planner.value(headline), found.random.value(headline)
    if headline == "success":
        assert best == 1.0
        assert chance < 0.5
    else:
        assert best - chance > {"cartpole": 150, "pendulum": 600}[name]
    assert all(not np.isnan(episode.rewards).any() for episode in data.episodes)
    assert all(set(episode.observations) == set(task.spec.fields) for episode in data.episodes)


@pytest.mark.parametrize("method", ["GenPlan-M", "BC"])
def test_it_is_learnt_and_evaluated(example, method):
    name, source, task, data, folder = example
    config, _ = default_config(source, method)
    config = override(config, strict=False, horizon=8, hidden_size=16, num_layers=1, iterations=3, action_steps=4)
    training = TrainConfig(
        steps=40, batch_size=16, windows_per_scene=2, learning_rate=5e-3, warmup_steps=4, log_every=10
    )
    run = folder / method
    runs.create_run(run, source, method, config, training, data.name).fit()
    losses = [line["loss"] for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "loss" in line]
    assert losses[-1] < losses[0]
    short = dataclasses.replace(task, max_steps=15)
    planner, run_config = checkpoint.load_planner(run)
    found = evaluate(planner, short, range(2000, 2003), baseline=names.load_planner("random:uniform", short))
    assert next(iter(found.planner.metrics)) == EXAMPLES[name]
    assert found.expert is not None
    json.dumps(to_record("mine", short, range(2000, 2003), run_config, found))
    assert console.evaluation_table("mine", found).renderables[0].row_count == 3
    for one in found.rollouts:
        assert one.actions.shape == (one.num_steps, *task.spec.actions.shape)
    plan_length = planner.config.action_steps if method == "GenPlan-M" else 1
    least = [-(-one.num_steps // plan_length) for one in found.rollouts]  # more where plans are cut short
    cut = method == "GenPlan-M" and planner.draws_chains
    for one, fewest in zip(found.rollouts, least, strict=True):
        assert fewest <= one.num_plans <= (one.num_steps if cut else fewest)


def test_every_method_plays_it(example):
    _, _, task, data, _ = example
    short = dataclasses.replace(task, max_steps=3)
    small = {"hidden_size": 16, "num_layers": 1, "iterations": 2, "encoder_iterations": 1}
    for method in planners.METHODS:
        if method in ("DT", "LEAP", "BC-step", "LEAP-step"):  # they need goals by the simulator, or a step model
            continue
        if planners.METHODS[method].continuous:
            continue
        config = override(planners.default_settings(method), strict=False, **small)
        planner = planners.build(method, task.spec, config).eval()
        planner.fit_codec(data.episodes)
        assert play(planner, short, [2000])[0].num_steps <= 3
