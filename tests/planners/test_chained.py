"""BC and LEAP with GenPlan's model of one step: what they do follows from it, and adapts within the episode."""

import dataclasses
import functools

import pytest
import torch

from genplan import config, planners, runs, tasks
from genplan.collect import CollectConfig, collect
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.metrics import METRICS, summarize
from genplan.models.step import GridStepModel
from genplan.names import load_planner
from genplan.planners import step_training
from genplan.presets import TrainConfig
from genplan.rollout import EnvBatch, open_loop, play
from genplan.tasks.grid import SYMMETRY

from ..data.worlds import vector_spec
from ..demonstrated import learnt
from .test_adaptation import CLOSED, COLORS, FLOOR, FORWARD, OPEN, SPEC, TOGGLE, colored, observed
from .test_adaptation import make as believing

METHODS, SEEDS, ROW = ("BC-step", "LEAP-step"), range(2000, 2020), torch.tensor([0])
SMALL = {"hidden_size": 32, "num_layers": 1, "encoder_iterations": 2, "horizon": 8, "iterations": 2}


def make(method, spec, **settings):
    small = config.override(planners.default_settings(method), strict=False, **SMALL)
    return planners.build(method, spec, config.override(small, **settings)).eval()


@functools.cache
def trained(method, name):
    """A planner that knows what a step does, and nothing else."""
    planner = make(method, tasks.get(name).spec)
    planner.step_model.load_state_dict(learnt(name)[0].state_dict())
    return planner


@pytest.mark.parametrize("name", ["MazeClose", "BlockUnlock"])
def test_plans_hold_if_steps_were_learnt_and_the_policy_was_not(name):
    task = tasks.get(name)
    for planner, low, high in ((trained("LEAP-step", name), 0.95, 1.0), (make("LEAP-step", task.spec), 0.0, 0.1)):
        first, played = open_loop(planner, EnvBatch(task, SEEDS)), play(planner, one_step(task), SEEDS)
        played = [dataclasses.replace(one, first_plan=plan) for one, plan in zip(played, first, strict=True)]
        assert low <= summarize(METRICS["plan_agreement"], played).value <= high
    assert open_loop(trained("BC-step", name), EnvBatch(task, SEEDS)) is None  # a plan of one step predicts nothing


def one_step(task):
    return dataclasses.replace(task, max_steps=1)


@pytest.mark.parametrize("method", METHODS)
def test_what_does_nothing_is_left_out(method):
    task = dataclasses.replace(tasks.get("MazeClose"), max_steps=12)
    known, unknown = (
        [step for one in play(planner, task, SEEDS) for step in one.changed]
        for planner in (trained(method, "MazeClose"), make(method, task.spec))
    )
    assert sum(known) > 0.95 * len(known)
    assert sum(unknown) < 0.9 * len(unknown)


def eager(method):
    """Believes that one can walk through doors, and wants to go forward."""
    planner = make(method, SPEC, temperature=0.0)
    planner.step_model = believing()
    wish = torch.zeros(7)
    wish[FORWARD] = 3.0
    if method == "BC-step":
        planner.logits = lambda encoding, current, history, goals: wish[:6].expand(len(history.valid), 1, 6)
    else:
        planner.network = lambda *_: (
            lambda tokens, ids=None, query=None: wish.expand(len(tokens), 8 if query is None else 1, 7)
        )
    return planner


@pytest.mark.parametrize("method", METHODS)
def test_doors_are_opened_after_one_bump_and_one_try(method):
    planner, door = eager(method), observed(0, FLOOR, CLOSED)
    memory = planner.reset(door)

    def planned(now):
        return planner.plan(now, memory, Rng.of(0, ROW), ROW)[0].actions[0].tolist()

    assert planned(door)[0] == FORWARD
    planner.observe(memory, torch.tensor([FORWARD]), door, ROW)
    assert planned(door)[0] != FORWARD
    planner.observe(memory, torch.tensor([TOGGLE]), observed(0, FLOOR, OPEN), ROW)
    assert planned(observed(0, FLOOR, OPEN))[0] == FORWARD
    for color in COLORS:
        expected = [TOGGLE, FORWARD][: 1 if method == "BC-step" else 2]
        assert planned(observed(0, FLOOR, colored(CLOSED, color)))[:2] == expected
    memory = planner.reset(door)
    assert planned(door)[0] == FORWARD  # all is forgotten with the episode


@pytest.mark.parametrize("method", METHODS)
def test_energy_and_confidence_are_of_the_actions_that_are_done(method):
    planner, now = eager(method), observed(0)
    plan, _ = planner.plan(now, planner.reset(now), Rng.of(0, ROW), ROW)
    wish = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 0.0]).log_softmax(0)
    if method == "LEAP-step":  # what END has is shared, but at the first step, where it has nothing
        shared = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]).softmax(0)
        assert torch.allclose(plan.confidence[0, 1], shared[plan.actions[0, 1]] + shared[6] / 6)
    assert torch.allclose(plan.confidence[0, 0], wish[FORWARD].exp())
    assert torch.allclose(plan.energy[0], -plan.confidence[0].log().sum())


@pytest.mark.parametrize("method", METHODS)
def test_given_first_actions_are_kept(method, monkeypatch):
    planner, batch, ids = trained(method, "BlockUnlock"), EnvBatch(tasks.get("BlockUnlock"), SEEDS[:6]), torch.arange(6)
    first = torch.tensor([0, 1, 2, 3, 4, -1])
    monkeypatch.setattr(type(planner), "exploratory_action", lambda *_: first)
    plan, _ = planner.plan(batch.observations(), planner.reset(batch.observations()), Rng.of(0, ids), ids)
    assert plan.actions[:5, 0].tolist() == first[:5].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_the_step_model_is_learnt_before_and_saved(method, tmp_path, monkeypatch):
    monkeypatch.setattr(step_training, "BATCH", 128)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    data = collect(CollectConfig("LocS10N1", 24), workers=1).name
    training = TrainConfig(steps=4, batch_size=16, windows_per_scene=4, warmup_steps=2, log_every=2, validate_every=4)
    small = config.override(planners.default_settings(method), strict=False, **SMALL, step_model_steps=50)
    trainer = runs.create_run(tmp_path / "run", "LocS10N1", method, small, training, data, [SYMMETRY])
    before = {name: one.clone() for name, one in trainer.planner.state_dict().items()}
    trainer.fit()
    assert '"step/joint"' in (tmp_path / "run" / "log.jsonl").read_text()
    after, task = trainer.planner.state_dict(), dataclasses.replace(tasks.get("LocS10N1"), max_steps=6)
    same = {name.partition(".")[0] for name, one in after.items() if torch.equal(one, before[name])}
    assert "step_model" in same
    loaded = load_planner(str(tmp_path / "run"), task)
    assert isinstance(loaded.step_model, GridStepModel)
    assert loaded.step_model.demonstrated.any()
    assert all(torch.equal(one, after[f"step_model.{name}"]) for name, one in loaded.step_model.state_dict().items())
    one, other = (play(planner, task, SEEDS[:3]) for planner in (loaded, load_planner(str(tmp_path / "run"), task)))
    assert [a.actions.tolist() for a in one] == [b.actions.tolist() for b in other]


@pytest.mark.parametrize(("method", "plain"), [("BC-step", "BC"), ("LEAP-step", "LEAP-noGC")])
def test_beside_the_step_model_it_is_the_same_method(method, plain):
    spec = tasks.get("MazeS4G1").spec
    one, other = make(method, spec).state_dict(), make(plain, spec).state_dict()
    assert {name for name in one if name not in other} == {name for name in one if name.startswith("step_model.")}
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("method", METHODS)
def test_a_task_without_a_step_model_is_refused(method):
    with pytest.raises(UserError, match=r"the method needs a step model, .* use BC or LEAP-noGC"):
        make(method, vector_spec())


def test_leap_needs_two_steps_for_a_chain():
    with pytest.raises(UserError, match="horizon is 1, expected at least 2"):
        make("LEAP-step", SPEC, horizon=1)
    make("LEAP-noGC", SPEC, horizon=1)
