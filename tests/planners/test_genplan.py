"""GenPlan: one network for training and planning, rows that do not meet, memory that is used."""

import dataclasses

import numpy as np
import pytest
import torch

import genplan
from genplan import tasks
from genplan.config import GenPlanConfig, settings
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, Windows
from genplan.errors import UserError
from genplan.evaluate import rollout
from genplan.flow import Rng
from genplan.models.encoder import PositionEncoder
from genplan.planners.genplan import GenPlan
from genplan.tasks.batch import EnvBatch
from genplan.types import Episode

SMALL = GenPlanConfig(horizon=5, context=2, width=32, layers=2, passes=2, iterations=3, execute=2)


def planner(spec, config=SMALL, seed=0):
    torch.manual_seed(seed)
    return GenPlan(spec, config).eval()


PRESETS = [("default", False), ("default", True), ("paper", False)]


@pytest.mark.parametrize(("preset", "trail"), PRESETS)
@pytest.mark.parametrize("source", ["mask", "uniform"])
def test_training_and_planning_ask_the_same_network(room, source, preset, trail):
    """The logits of a training batch equal those of planning in the same situation, to rounding."""
    task, episodes = room
    model = planner(task.spec, dataclasses.replace(SMALL, source=source, preset=preset, trail=trail))
    windows = Windows(task.spec, episodes[:1], 5, 2, trail=trail)
    episode = episodes[0]
    captured = {}
    denoise = model.denoiser.forward

    def spy(x_t, t, known):
        captured["x_t"], captured["t"], captured["logits"] = x_t, t, denoise(x_t, t, known)
        return captured["logits"]

    model.denoiser.forward = spy
    # Planning: follow the demonstration for three steps, then plan.
    batch = EnvBatch(task, [episode.seed])
    row = torch.zeros(1, dtype=torch.int64)
    memory = model.start(batch.observations())
    for action in episode.actions[:3]:
        batch.step(row, torch.tensor([int(action)]))
        memory = model.observe(memory, torch.tensor([int(action)]), batch.observations(), row)
    one = model.with_options(iterations=1)
    one.plan(batch.observations(), memory, Rng.of(0, row), row)
    planned = {name: logits.clone() for name, logits in captured["logits"].items()}
    x_t, t = captured["x_t"], captured["t"]
    # Training: the window that starts at the fourth step, with the very same corrupted tokens.
    window = windows.batch(torch.tensor([3]), windows.map_of[[3]], torch.tensor([0]))
    assert torch.equal(window.past.actions[0], torch.from_numpy(episode.actions[1:3]))
    assert torch.equal(x_t["states"][:, 0], window.x_1["states"][:, 0])
    with torch.inference_mode():
        context = model.encoder(window.map, window.mission, 1)
        trained = model.network(context, window.features, window.past, 1)(x_t, t)
    for name, logits in trained.items():
        assert torch.allclose(logits, planned[name], atol=1e-5)


def test_codes_of_places_tell_all_cells_apart_in_grids_of_any_size():
    code = PositionEncoder(32)
    small, large = code(5, 3), code(19, 19)
    assert small.shape == (15, 32)
    assert torch.allclose(small[2 + 5 * 1], large[2 + 19 * 1])  # column 2, row 1 of both
    assert torch.cdist(large, large).fill_diagonal_(1).min() > 0.01


def test_weights_serve_worlds_of_other_sizes(room):
    task, _ = room
    model = planner(task.spec)
    larger = tasks.get("MazeS7G2")
    other = model.on(larger.spec)
    assert other.spec.num_goals == model.spec.num_goals  # as many as were learnt
    assert other.path.sizes["states"] == 19 * 19 * 4
    rollout(other, dataclasses.replace(larger, max_steps=4), [2000, 2001], execute=2)
    assert model.on(task.spec) is model
    with pytest.raises(UserError, match=r"map_shape \(19, 19\), expected \(\d+, \d+\)"):
        planner(task.spec, dataclasses.replace(SMALL, preset="paper")).on(larger.spec)
    with pytest.raises(UserError, match="map_shape None"):
        model.on(PlanSpec(4, 9))


def test_what_was_demonstrated_was_never_in_vain(room):
    task, episodes = room
    model = planner(task.spec, dataclasses.replace(SMALL, context=0, trail=True, vain_share=0.5))
    batch = Windows(task.spec, episodes, 5, trail=True).draw(256, Rng.of(3))
    told = model.tried_in_vain(batch, Rng.of(0, batch=(256,))).tried - batch.past.tried
    assert told.max() == 8
    assert 0.3 < float((told > 0).any(1).float().mean()) < 0.5  # some are told of none
    assert not told.gather(1, batch.x_1["actions"][:, :1]).any()


def test_a_planner_with_a_trail_knows_what_it_tried_here(room):
    """After a step that changes nothing, the plan is made knowing that; a change around the agent makes it forget."""
    task, _ = room
    model = planner(task.spec, dataclasses.replace(SMALL, context=0, trail=True))
    seen = EnvBatch(task, [2000]).observations()
    row, action = torch.zeros(1, dtype=torch.int64), torch.tensor([3])
    memory = model.observe(model.start(seen), action, seen, row)
    assert memory.tried[0, seen.state[0]].tolist() == [0, 0, 0, 1, 0, 0]
    assert memory.visited[0].nonzero().tolist() == [[int(seen.state[0])]]
    model.denoiser.tried.weight.data.mul_(50)
    before, _ = model.plan(seen, model.start(seen), Rng.of(0, row), row)
    after, _ = model.plan(seen, memory, Rng.of(0, row), row)
    assert not torch.equal(before.confidence, after.confidence)
    changed = dataclasses.replace(seen, features=seen.features + 1)
    assert not model.observe(memory, action, changed, row).tried.any()


@pytest.mark.parametrize(("preset", "trail"), PRESETS)
def test_rows_do_not_meet_and_windows_share_maps(room, preset, trail):
    """A batch of windows, four to a map, gives each window the logits it would get alone."""
    task, episodes = room
    model = planner(task.spec, dataclasses.replace(SMALL, preset=preset, trail=trail))
    batch = Windows(task.spec, episodes, 5, 2, trail=trail).draw(16, Rng.of(3), per_map=4)
    rows = Rng.of(0, batch=(16,))
    t = rows.uniform()
    x_t = model.path.corrupt(batch.x_1, t, rows)
    with torch.no_grad():
        context = model.encoder(batch.map, batch.mission, 4)
        together = model.network(context, batch.features, batch.past, 4)(x_t, t)
        for row in (0, 5, 15):
            which = batch.map_row[row]
            alone = model.encoder(batch.map[which][None], batch.mission[which][None], 1)
            past = Past(batch.past.states[row][None], batch.past.actions[row][None], batch.past.valid[row][None])
            if trail:
                past = past._replace(trail=batch.past.trail[which][None], visited=batch.past.visited[row][None])
            one = model.network(alone, batch.features[row][None], past, 1)
            logits = one({name: x[row][None] for name, x in x_t.items()}, t[row][None])
            for name in logits:
                assert torch.allclose(logits[name][0], together[name][row], atol=1e-4)


def test_a_learnt_map_settles_before_its_last_pass_and_none_waits_for_another():
    model = genplan.load("pretrained:MazeS4G1").planner
    seen = EnvBatch(tasks.get("MazeS4G1"), range(2000, 2016)).observations()
    encoder, passed = model.encoder.map, []
    spread_once = encoder.spread_once

    def spy(state, gain, offset):
        passed.append(len(state))
        return spread_once(state, gain, offset)

    encoder.spread_once = spy
    with torch.inference_mode():
        words = model.encoder.mission(seen.mission)
        together = encoder(seen.map, words)
        assert sum(passed) < 0.75 * encoder.passes * 16  # most of the maps were done early
        alone = encoder(seen.map[3:4], words[3:4])
        assert torch.allclose(alone[0], together[3], atol=1e-4)
        encoder.SETTLED = 0.0  # never: all passes for all maps
        thorough = encoder(seen.map, words)
    assert 0 < (thorough - together).pow(2).mean().sqrt() < 0.05 * thorough.pow(2).mean().sqrt()


def test_a_map_is_encoded_once_while_it_stays_the_same(room):
    task, _ = room
    model = planner(task.spec)
    calls = []
    encode = model.encoder.forward
    model.encoder.forward = lambda maps, mission, number: calls.append(number) or encode(maps, mission, number)
    rollout(model, dataclasses.replace(task, max_steps=12), [2000, 2001, 2002], execute=2)
    assert calls[0] == 3
    assert sum(calls) <= 3 + 2  # only where something was picked up or dropped


def test_a_plan_explains_itself_and_candidates_are_chosen_by_energy(room):
    task, _ = room
    model = planner(task.spec)
    batch = EnvBatch(task, [2000, 2001])
    rows = torch.arange(2)
    rng = Rng.of(0, rows)
    plan, _ = model.plan(batch.observations(), model.start(batch.observations()), rng, rows, keep_trace=True)
    assert plan.actions.shape == plan.states.shape == plan.confidence.shape == (2, 5)
    assert plan.goals.shape == (2, 5, 1)
    assert plan.trace.tokens["actions"].shape == (4, 2, 5)
    assert torch.equal(plan.states[:, 0], batch.observations().state)
    assert ((plan.confidence > 0) & (plan.confidence <= 1 + 1e-6)).all()
    many = model.with_options(candidates=32, temperature=1.0)
    best, _ = many.plan(batch.observations(), many.start(batch.observations()), rng, rows)
    single = model.with_options(temperature=1.0)
    energies = [
        single.plan(batch.observations(), single.start(batch.observations()), Rng.of(k, rows), rows)[0].energy
        for k in range(8)
    ]
    assert (best.energy <= torch.stack(energies).mean(0)).all()


def test_weights_do_not_know_the_grid_and_other_tasks_fit():
    names = ("MazeS4G1", "MazeS7G1", "KeyCorridorS3R3")
    shapes = [
        {name: tuple(p.shape) for name, p in planner(tasks.get(task).spec).state_dict().items()} for task in names
    ]
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_task_without_map_words_or_goals(preset):
    spec = PlanSpec(num_actions=3, num_states=9)
    episodes = [Episode(np.array([0, 4, 8, 2]), np.array([1, 2, 0])), Episode(np.array([5, 6]), np.array([0]))]
    model = planner(spec, dataclasses.replace(SMALL, preset=preset))
    losses = model.loss(Windows(spec, episodes, 5, 2).draw(8, Rng.of(0)), Rng.of(1))
    assert torch.isfinite(losses.total)
    assert set(losses.metrics) >= {"loss/states", "loss/actions", "entropy"}


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_map_without_words(room, preset):
    """As in examples/doorkey.py: windows share maps, and there is no mission to count them by."""
    task, episodes = room
    spec = dataclasses.replace(task.spec, words=(), max_words=0, mirrored_words={})
    model = planner(spec, dataclasses.replace(SMALL, preset=preset))
    batch = Windows(spec, episodes, 5, 2).draw(16, Rng.of(0), per_map=4)
    assert batch.num_maps == 4
    assert torch.isfinite(model.loss(batch, Rng.of(1)).total)


@pytest.mark.parametrize("noise_share", [0.2, 0.0])  # read on noisy windows, or by a second look at pure noise
def test_the_entropy_bound_moves_its_multiplier(room, noise_share):
    task, episodes = room
    model = planner(task.spec, dataclasses.replace(SMALL, entropy_bound=5.0, noise_share=noise_share)).train()
    windows = Windows(task.spec, episodes, 5, 2)
    model.loss(windows.draw(32, Rng.of(0)), Rng.of(1))
    assert model.bound.multiplier > 0  # no distribution over six actions has five nats


def test_an_untrained_network_walks_blindly(room):
    """It must do no better than the blind walk: 40 episodes of the maze, and 15 points for chance."""
    task = dataclasses.replace(tasks.get("MazeS4G1"), max_steps=120)
    model = planner(task.spec, dataclasses.replace(SMALL, temperature=1.0))
    found = np.mean([result.success for result in rollout(model, task, range(2000, 2040), execute=5)])
    assert found < 0.5


def test_the_papers_settings():
    config, training = settings("MazeS4G1", "paper")
    assert (config.width, config.heads, config.layers, config.order, config.execute) == (128, 4, 4, "random", 10)
    assert (training.steps, training.batch) == (5000, 64)
    assert settings("MazeS7G1", "paper")[0].horizon == 20
    model = planner(tasks.get("MazeS4G1").spec, config)
    assert model.denoiser.layers[0].qkv.weight.shape == (384, 128)
    batch = EnvBatch(tasks.get("MazeS4G1"), [2000])
    row = torch.zeros(1, dtype=torch.int64)
    plan, _ = model.plan(batch.observations(), model.start(batch.observations()), Rng.of(0, row), row)
    assert plan.actions.shape == (1, 10)


def test_wrong_settings_are_not_born():
    for wrong, message in (
        ({"horizon": 0}, "horizon is 0, expected at least 1"),
        ({"execute": 11}, "execute is 11, expected at most the horizon, 10"),
        ({"width": 30}, "width is 30, expected a multiple of the 4 heads"),
        ({"source": "fog"}, "source is 'fog', expected one of mask, uniform"),
        ({"order": "sideways"}, "order is 'sideways'"),
        ({"context": -1}, "context is -1"),
        ({"nearness": -1}, "nearness is -1, expected at least 0"),
        ({"dropout": 1.0}, "dropout is 1.0, expected 0 to below 1"),
    ):
        with pytest.raises(UserError, match=message):
            GenPlanConfig(**wrong)
