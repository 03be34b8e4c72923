"""Chains: plans agree with themselves and with the simulator as far as the step model is right."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from genplan import checkpoint, planners, runs, tasks
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.data.windows import Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.metrics import METRICS, summarize
from genplan.models.step import GridStepModel, StateStepModel
from genplan.names import load_planner
from genplan.planners import step_training
from genplan.planners.chain import Chain, ChainConfig
from genplan.planners.genplan import GenPlanConfig
from genplan.presets import TrainConfig
from genplan.rollout import EnvBatch, open_loop, play
from genplan.tasks.files import task_from_gym
from genplan.tasks.grid import COLOR_PERMUTATION, SYMMETRY

from ..data.worlds import number_spec, numbers, vector_spec
from ..demonstrated import learnt

SMALL = override(
    GenPlanConfig(), horizon=8, hidden_size=32, num_layers=1, encoder_iterations=2, iterations=4, order="chain",
)  # fmt: skip
NAME, SEEDS = "BlockUnlock", range(2000, 2040)


def make(spec, seed=0, **settings):
    return planners.build("GenPlan-M", spec, override(SMALL, **settings), seed).eval()


@functools.cache
def trained(name=NAME):
    """A planner that knows what a step does, and nothing else."""
    model = make(tasks.get(name).spec)
    model.step_model.load_state_dict(learnt(name)[0].state_dict())
    return model


@functools.cache
def now():
    batch = EnvBatch(tasks.get(NAME), SEEDS[:6])
    return batch.observations()


def draw(model, seed=0, rows=None, **options):
    ids = torch.arange(6) if rows is None else torch.tensor(rows)
    memory = model.reset(now())
    return model.plan(now()[ids], memory, Rng.of(seed, ids), ids, **options)[0]


def agreement(model, task, metric="plan_agreement"):
    played, first = play(model, dataclasses.replace(task, max_steps=1), SEEDS), open_loop(model, EnvBatch(task, SEEDS))
    played = [dataclasses.replace(one, first_plan=plan) for one, plan in zip(played, first, strict=True)]
    return summarize(METRICS[metric], played).value


@pytest.mark.parametrize("name", ["MazeClose", "BlockUnlock"])
def test_plans_hold_if_steps_were_learnt_and_the_denoiser_was_not(name):
    task = tasks.get(name)
    assert agreement(trained(name), task) >= 0.95
    assert agreement(trained(name), task, "step_agreement") >= 0.98
    assert agreement(make(task.spec), task) <= 0.05
    actions = torch.cat([draw(trained(), seed).actions for seed in range(4)])
    assert len(actions.unique()) >= 4  # not by standing still


@pytest.mark.parametrize("settings", [
    {"adapt": False}, {"beam_width": 1}, {"iterations": 1}, {"iterations": 100}, {"state_weight": 0.0, "cutoff": 0.0},
    {"cost_weight": 0.0}, {"adapt": False, "state_weight": 0.0},
])  # fmt: skip
def test_plans_follow_from_the_table_in_all_settings(settings):
    """Every step of a plan is one of the step model's, on a map that changes as it says."""
    model = trained().with_options(**settings)
    plan = draw(model)
    head = Chain(model.spec, model.step_model, ChainConfig(), 0.0, now())
    imagined, table = head.imagined, head.table
    for step in range(8):
        assert torch.equal(imagined.states[:, 0], plan.states[:, step])
        (ahead, key), actions = head._key(imagined), plan.actions[:, step, None]
        states = head.frame.following[imagined.states, table.outcome[key, actions, 0]]
        maps = imagined.maps.scatter(2, ahead[..., None], table.look[key, actions][..., None].int())
        imagined = imagined._replace(states=states, maps=maps, carried=table.carried[key, actions])
    assert torch.equal(plan.states[:, 0], now()["state"])
    assert plan.cut


def test_given_first_actions_are_kept(monkeypatch):
    model, first = trained(), torch.tensor([0, 1, 2, 3, 4, -1])
    monkeypatch.setattr(type(model), "exploratory_action", lambda *_: first)
    free = draw(trained())
    plan = draw(model)
    assert plan.actions[:5, 0].tolist() == first[:5].tolist()
    assert torch.equal(free.actions[5], plan.actions[5])
    turned = torch.stack([plan.states[0, 1], plan.states[1, 1]]) - now()["state"][:2]
    assert (turned % 4).tolist() == [3, 1]  # and the rest is planned from where it leads
    assert ((plan.confidence > 0) & (plan.confidence <= 1 + 1e-6)).all()


def test_given_states_are_kept_if_they_can_be_reached():
    model = trained().with_options(temperature=0.0, adapt=False)
    states = now()["state"]
    behind = states // 4 * 4 + (states + 2) % 4
    start = model._start

    def with_state(current, rng, first):
        x_0, given = start(current, rng, first)
        x_0["states"][:, 2] = behind
        given["states"] = given["states"] | (torch.arange(8) == 2)
        return x_0, given

    model._start = with_state
    plan = draw(model)
    assert torch.equal(plan.states[:, 2], behind)
    assert set(plan.actions[:, :2].flatten().tolist()) <= {0, 1}  # two turns, as nothing else leads there


def test_of_several_candidates_the_one_of_least_energy_is_chosen():
    many = trained().with_options(num_candidates=8, temperature=2.0)
    plan = draw(many, keep_trace=True)
    assert plan.candidate_energies.shape == (6, 8)
    assert torch.equal(plan.energy, plan.candidate_energies.amin(-1))
    assert (plan.candidate_energies.std(-1) > 0).any()
    chosen = plan.trace.rows(plan.selected)
    assert torch.equal(chosen.tokens["actions"][-1], plan.actions)
    assert torch.equal(chosen.tokens["states"][-1], plan.states)


def test_a_chain_shows_how_it_took_shape():
    plan = draw(trained(), keep_trace=True)
    tokens, mask = plan.trace.tokens["actions"], trained().path.mask_token("actions")
    assert tokens.shape == (5, 6, 8)
    assert (tokens != mask).sum(-1).T.tolist() == [[0, 2, 4, 6, 8]] * 6
    states = plan.trace.predicted["states"]
    assert torch.equal(states[:, :, 0], now()["state"].expand(4, 6))
    assert torch.equal(states[-1], plan.states)
    assert torch.isfinite(plan.trace.energy).all()


def test_without_temperature_nothing_is_left_to_chance_and_a_batch_equals_its_rows():
    cold = trained().with_options(temperature=0.0)
    together = draw(cold)
    assert torch.equal(together.actions, draw(cold, seed=1).actions)
    for warmth in (0.0, 0.5):
        model = trained().with_options(temperature=warmth)
        together = draw(model)
        for row in range(6):
            alone = draw(model, rows=[row])
            assert torch.equal(alone.actions[0], together.actions[row])
            assert torch.equal(alone.states[0], together.states[row])
            assert torch.allclose(alone.energy[0], together.energy[row], atol=1e-4)
    warm = trained().with_options(temperature=2.0)
    assert not torch.equal(draw(warm).actions, draw(warm, seed=1).actions)


def test_episodes_of_a_batch_do_not_meet():
    task = dataclasses.replace(tasks.get(NAME), max_steps=12)
    model = trained().with_options(num_candidates=2)
    for rollout in play(model, task, SEEDS[:3]):
        (alone,) = play(model, task, [rollout.seed])
        assert alone.actions.tolist() == rollout.actions.tolist()


@pytest.mark.parametrize("settings", [{"source": "uniform"}, {"horizon": 1}, {"preset": "paper"}])
def test_what_a_chain_needs_is_said(settings):
    with pytest.raises(UserError, match="the order 'chain' needs masks as the source, a horizon of at least 2"):
        make(tasks.get(NAME).spec, **settings)
    model = make(tasks.get(NAME).spec, order="auto", **settings)
    assert model.step_model is None
    assert model.order == "confidence"


def test_a_planner_without_a_step_model_refuses_chains():
    with pytest.raises(UserError, match="the order 'chain' needs"):
        make(vector_spec())
    model = make(tasks.get(NAME).spec, order="near-to-far")
    assert model.step_model is None
    with pytest.raises(UserError, match="the order 'chain' needs a step model, which this planner was trained without"):
        draw(model.with_options(order="chain"))
    with pytest.raises(UserError, match="beam_width is 0, expected at least 1"):
        trained().with_options(beam_width=0)
    with pytest.raises(UserError, match="try_price is -1"):
        trained().with_options(try_price=-1.0)


def test_one_planner_draws_in_other_orders_too():
    for order in ("confidence", "near-to-far", "random"):
        plan = draw(trained().with_options(order=order))
        assert plan.actions.shape == (6, 8)
        assert not plan.cut
    assert draw(trained().with_options(order="auto")).cut


def test_the_step_model_serves_grids_of_other_sizes():
    model, task = trained("MazeClose"), dataclasses.replace(tasks.get("MazeS7G1"), max_steps=5)
    other = model.for_spec(task.spec)
    assert other.step_model is model.step_model
    first = open_loop(other, EnvBatch(task, SEEDS))
    assert np.mean([np.array_equal(one.planned, one.came) for one in first]) > 0.9


# --- training --------------------------------------------------------------------------------------------------------


def few_steps(model, windows, number=4):
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=3e-3)
    for step in range(number):
        losses = model.train().loss(windows.sample(16, Rng.of(0, step), 4), Rng.of(1, step))
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
        assert torch.isfinite(losses.total)
    model.eval()
    return losses


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Taxi-v4"])
def test_tasks_without_a_grid_have_chains_too(name, monkeypatch):
    monkeypatch.setattr(step_training, "BATCH", 256)
    task = dataclasses.replace(task_from_gym(name), max_steps=12)
    rng, env, episodes = np.random.default_rng(0), task.make_env(), []
    for seed in range(80):
        states = [task.observe(env, env.reset(seed=seed)[0])["state"]]
        actions = rng.integers(0, task.spec.actions.n, 12)
        for number, action in enumerate(actions):  # noqa: B007
            raw, _, terminated, *_ = env.step(action)
            states.append(task.observe(env, raw)["state"])
            if terminated:
                break
        episodes.append(numbers(np.array(states), actions[: number + 1]))
    model = make(task.spec, order="auto", step_model_steps=150)
    assert isinstance(model.step_model, StateStepModel)
    assert model.cost is None
    windows, held_out = Windows(task.spec, episodes[:70], model.needs), Windows(task.spec, episodes[70:], model.needs)
    assert set(model.pretrain(windows, held_out, 1200)) == {"step/joint"}
    assert int(model.step_model.num_outcomes) == 2  # by chance, or since not all was demonstrated
    few_steps(model, windows)
    played = play(model, task, SEEDS[:3])
    assert all(rollout.num_plans >= 1 for rollout in played)
    batch = EnvBatch(task, SEEDS[:3])
    ids = torch.arange(3)
    plan, _ = model.plan(batch.observations(), model.reset(batch.observations()), Rng.of(0, ids), ids)
    likely = model.step_model.table().outcome[plan.states[:, :-1], plan.actions[:, :-1]]
    assert (likely == plan.states[:, 1:, None]).any(-1).all()


def test_the_step_model_is_learnt_before_and_the_cost_to_go_meanwhile(room):
    task, episodes = room
    model = make(task.spec)
    assert isinstance(model.step_model, GridStepModel)
    windows = Windows(task.spec, episodes, model.needs)
    learnt_before = {name: one.clone() for name, one in model.step_model.state_dict().items()}
    before = {name: one.clone() for name, one in model.named_parameters()}
    losses = few_steps(model, windows)
    assert set(losses.metrics) >= {"loss/states", "loss/actions", "loss/goals", "loss/cost", "entropy"}
    assert all(torch.equal(one, learnt_before[name]) for name, one in model.step_model.state_dict().items())
    changed = {name.partition(".")[0] for name, one in model.named_parameters() if not torch.equal(one, before[name])}
    assert changed == {"encoder", "denoiser", "cost"}


def test_the_cost_to_go_is_learnt_together_with_the_encoder(room):
    task, episodes = room
    batch = Windows(task.spec, episodes, make(task.spec).needs).sample(16, Rng.of(0), 4)
    gradients = []
    for left in (batch.steps_left, None):
        model = make(task.spec)
        torch.manual_seed(0)
        model.loss(dataclasses.replace(batch, steps_left=left), Rng.of(1)).total.backward()
        gradients.append({name: one.grad for name, one in model.named_parameters()})
    differs = {
        name.partition(".")[0]
        for name, one in gradients[0].items()
        if one is not None and (gradients[1][name] is None or not torch.equal(one, gradients[1][name]))
    }
    assert differs == {"encoder", "denoiser", "cost"}


def test_a_chain_that_was_saved_and_resumed_equals_one_never_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(step_training, "BATCH", 128)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    data = collect(CollectConfig("LocS10N1", 24), workers=1).name
    training = TrainConfig(steps=6, batch_size=16, windows_per_scene=4, warmup_steps=2, log_every=2, validate_every=6,
                           save_every=3)  # fmt: skip
    small = override(SMALL, step_model_steps=50)
    parts = ("LocS10N1", "GenPlan-M", small, training, data, [SYMMETRY, COLOR_PERMUTATION])
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    runs.create_run(whole, *parts).fit()
    trainer = runs.create_run(stopped, *parts)
    training_step, count = trainer.training_step, iter(range(4))

    def interrupted():
        if next(count, None) is None:
            raise KeyboardInterrupt
        return training_step()

    trainer.training_step = interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    monkeypatch.setattr(step_training, "fit_step_model", None)  # it is learnt once in the life of a run
    monkeypatch.setattr("genplan.planners.chained.fit_step_model", None)
    runs.resume_run(stopped).fit()
    for file in ("last.safetensors", "model.safetensors", "codec.safetensors"):
        one, other = (checkpoint.load_tensors(folder / file)[0] for folder in (whole, stopped))
        assert set(one) == set(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=4)
    loaded = [load_planner(str(folder), task) for folder in (whole, stopped)]
    assert all(model.order == "chain" for model in loaded)
    assert loaded[0].step_model.demonstrated.any()
    one, other = (play(model, task, SEEDS[:3]) for model in loaded)
    assert [a.actions.tolist() for a in one] == [b.actions.tolist() for b in other]


def test_only_numbered_states_need_a_table_of_their_own():
    model = make(number_spec(), order="auto")
    assert model.order == "chain"
    assert model.step_model.table().outcome.shape == (9, 3, 1)


def test_plans_are_sure_before_their_first_doubtful_action():
    model = make(number_spec(), order="auto", min_confidence=0.7)
    confidence = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.1, 0.9, 0.2, 0.9], [0.9, 0.9, 0.9, 0.9], [0.3, 0.3, 0.9, 0.9]])
    assert model._sure_steps(confidence).tolist() == [3, 2, 4, 1]
    assert model.with_options(min_confidence=0.0)._sure_steps(confidence).tolist() == [4, 4, 4, 4]
