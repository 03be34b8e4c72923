"""GenPlan: one network for training and planning, rows that do not meet, memory that is used."""

import dataclasses

import numpy as np
import pytest
import torch

from genplan import planners, tasks
from genplan.config import override
from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.models.grid import PositionEncoder
from genplan.models.settings import MemoryConfig, NetworkConfig
from genplan.names import load_planner
from genplan.planners.genplan import GenPlanConfig, SamplerConfig
from genplan.presets import default_config
from genplan.rollout import EnvBatch, play
from genplan.types import Observations, WindowNeeds

from ..data.worlds import go_to, grid_spec, number_spec, numbers

SMALL = override(
    GenPlanConfig(), horizon=5, context_length=3, hidden_size=32, num_layers=2, encoder_iterations=2, iterations=3,
    action_steps=2,
)  # fmt: skip
PRESETS = [("default", False), ("default", True), ("paper", False)]
ROW = torch.zeros(1, dtype=torch.int64)


def make(spec, seed=0, **settings):
    return planners.build("GenPlan-M", spec, override(SMALL, **settings), seed).eval()


def part(observations, row):
    return observations[torch.tensor([row])]


def test_training_overfits_one_maze():
    """Whatever is planned on the way of one demonstration is that demonstration."""
    spec = grid_spec(7, 7)
    episode = max(go_to(spec, 8, walls=4), key=len)
    assert len(episode) >= 5
    model = make(spec, order="confidence", temperature=0.0, context_length=1, encoder_iterations=4).train()
    windows = Windows(spec, [episode], model.needs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    torch.manual_seed(0)  # of the number of iterations of the grid's encoder
    for step in range(250):
        rng = Rng.of(0, step)
        losses = model.loss(windows.sample(16, rng, 4), rng)
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
    assert losses.total < 0.3  # uniform guesses: 12
    model.eval()
    steps = torch.arange(len(episode))
    now = Observations({name: torch.from_numpy(column)[:-1] for name, column in episode.observations.items()})
    plan, _ = model.plan(now, model.reset(now), Rng.of(0, steps), steps)
    for step, (actions, states, goals) in enumerate(zip(plan.actions, plan.states, plan.goals, strict=True)):
        ahead = min(5, len(episode) - step)
        assert actions[:ahead].tolist() == episode.actions[step : step + ahead].tolist()
        assert states[:ahead].tolist() == episode.observations["state"][step : step + ahead].tolist()
        assert (goals[:ahead] == episode.subgoals[0].token).all()


@pytest.mark.parametrize(("preset", "visit_memory"), PRESETS)
@pytest.mark.parametrize("source", ["mask", "uniform"])
def test_training_and_planning_ask_the_same_network(room, source, preset, visit_memory):
    """The logits of a training batch equal those of planning in the same situation, to rounding."""
    task, episodes = room
    model = make(task.spec, source=source, preset=preset, visit_memory=visit_memory)
    windows = Windows(task.spec, episodes[:1], model.needs)
    episode = episodes[0]
    captured = {}
    denoise = model.denoiser.forward

    def spy(x_t, t, prepared):
        captured["x_t"], captured["t"], captured["logits"] = x_t, t, denoise(x_t, t, prepared)
        return captured["logits"]

    model.denoiser.forward = spy
    # Planning: follow the demonstration for three steps, then plan.
    batch = EnvBatch(task, [episode.seed])
    memory = model.reset(batch.observations())
    for action in episode.actions[:3]:
        batch.step(ROW, torch.tensor([int(action)]))
        memory = model.observe(memory, torch.tensor([int(action)]), batch.observations(), ROW)
    model.with_options(iterations=1).plan(batch.observations(), memory, Rng.of(0, ROW), ROW)
    planned = {name: logits.clone() for name, logits in captured["logits"].items()}
    x_t, t = captured["x_t"], captured["t"]
    # Training: the window that starts at the fourth step, with the very same corrupted tokens.
    start = torch.tensor([3])
    window = windows.batch(Drawn(start, windows.scene_of_step[start]))
    assert torch.equal(window.history.actions[0], torch.from_numpy(episode.actions[1:3]))
    assert torch.equal(x_t["states"][:, 0], window.tokens["states"][:, 0])
    with torch.inference_mode():
        encoding = model.encoder(window.scene, 1)
        trained = model.network(encoding, window.current, window.history, 1)(x_t, t)
    assert set(trained) == {"states", "goals", "actions"}
    for name, logits in trained.items():
        assert torch.allclose(logits, planned[name], atol=1e-5)


def test_codes_of_positions_tell_all_cells_apart_in_grids_of_any_size():
    code = PositionEncoder(32)
    small, large = code(5, 3), code(19, 19)
    assert small.shape == (15, 32)
    assert torch.allclose(small[2 + 5 * 1], large[2 + 19 * 1])  # column 2, row 1 of both
    assert torch.cdist(large, large).fill_diagonal_(1).min() > 0.01


def test_weights_serve_grids_of_other_sizes(room):
    task, _ = room
    model = make(task.spec)
    larger = tasks.get("MazeS7G2")
    other = model.for_spec(larger.spec)
    assert other.spec.num_goals == model.spec.num_goals  # as many as were learnt
    assert other.path.sizes["states"] == 19 * 19 * 4
    play(other, dataclasses.replace(larger, max_steps=4), [2000, 2001])
    assert model.for_spec(task.spec) is model
    with pytest.raises(UserError, match=r"the task has the fields .*shape=\(19, 19\).*, expected "):
        make(task.spec, preset="paper").for_spec(larger.spec)
    with pytest.raises(UserError, match="the task has the fields"):
        model.for_spec(number_spec())


def test_weights_do_not_know_the_grid():
    names = ("MazeS4G1", "MazeS7G1", "KeyCorridorS3R3")
    shapes = [{name: tuple(p.shape) for name, p in make(tasks.get(task).spec).state_dict().items()} for task in names]
    assert shapes[0] == shapes[1] == shapes[2]


def test_what_was_demonstrated_never_failed(room):
    task, episodes = room
    model = make(task.spec, context_length=1, visit_memory=True, failed_action_prob=0.5)
    batch = Windows(task.spec, episodes, model.needs).sample(256, Rng.of(3))
    history = model.with_failed_actions(batch, Rng.of(0, batch=(256,)))
    added = history.action_counts - batch.history.action_counts
    assert added.max() == 8
    assert 0.3 < float((added > 0).any(1).float().mean()) < 0.5  # some windows are shown none
    assert not added.gather(1, batch.actions[:, :1]).any()


def test_visit_memory_knows_what_was_done_here(room):
    """After a step that changes nothing, the plan is made knowing that; a change around the agent makes it forget."""
    task, _ = room
    model = make(task.spec, context_length=1, visit_memory=True)
    now = EnvBatch(task, [2000]).observations()
    action = torch.tensor([3])
    memory = model.observe(model.reset(now), action, now, ROW)
    assert memory.visits.counts[0, now["state"][0]].tolist() == [0, 0, 0, 1, 0, 0]
    assert memory.visits.visited[0].nonzero().tolist() == [[int(now["state"][0])]]
    model.denoiser.action_counts.weight.data.mul_(50)
    before, _ = model.plan(now, model.reset(now), Rng.of(0, ROW), ROW)
    after, _ = model.plan(now, memory, Rng.of(0, ROW), ROW)
    assert not torch.equal(before.confidence, after.confidence)
    changed = Observations({**now.fields, "carrying": now["carrying"] + 1})
    assert not model.observe(memory, action, changed, ROW).visits.counts.any()


@pytest.mark.parametrize(("preset", "visit_memory"), PRESETS)
def test_rows_do_not_meet_and_windows_share_scenes(room, preset, visit_memory):
    """A batch of windows, four to a scene, gives each window the logits it would get alone."""
    task, episodes = room
    model = make(task.spec, preset=preset, visit_memory=visit_memory)
    batch = Windows(task.spec, episodes, model.needs).sample(16, Rng.of(3), windows_per_scene=4)
    rows = Rng.of(0, batch=(16,))
    t = rows.uniform()
    x_t = model.path.corrupt({**batch.tokens, "actions": batch.actions}, t, rows)
    with torch.no_grad():
        encoding = model.encoder(batch.scene, 4)
        together = model.network(encoding, batch.current, batch.history, 4)(x_t, t)
        for row in (0, 5, 15):
            scene, history = row // 4, batch.history
            alone = model.encoder(part(batch.scene, scene), 1)
            history = history._replace(
                steps=part(history.steps, row), actions=history.actions[row][None], valid=history.valid[row][None]
            )
            if visit_memory:
                history = history._replace(
                    visited_states=history.visited_states[scene][None],
                    visited_mask=history.visited_mask[row][None],
                    action_counts=history.action_counts[row][None],
                )
            one = model.network(alone, part(batch.current, row), history, 1)
            logits = one({name: x[row][None] for name, x in x_t.items()}, t[row][None])
            for name in logits:
                assert torch.allclose(logits[name][0], together[name][row], atol=1e-4)


def test_a_learnt_grid_converges_early_and_none_waits_for_another():
    task = tasks.get("MazeS4G1")
    model = load_planner("pretrained:MazeS4G1-uniform", task)
    now = EnvBatch(task, range(2000, 2016)).observations()
    encoder, encoded = model.encoder.scene["grid"], []
    iterate = encoder.iterate

    def spy(state, gain, bias):
        encoded.append(len(state))
        return iterate(state, gain, bias)

    encoder.iterate = spy
    with torch.inference_mode():
        words, _ = model.encoder.scene["mission"](now["mission"])
        together = encoder(now["grid"], words)
        assert sum(encoded) < 0.75 * encoder.iterations * 16  # most of the grids were done early
        alone = encoder(now["grid"][3:4], words[3:4])
        assert torch.allclose(alone[0], together[3], atol=1e-4)
        encoder.TOLERANCE = 0.0  # never: all iterations for all grids
        thorough = encoder(now["grid"], words)
    assert 0 < (thorough - together).pow(2).mean().sqrt() < 0.05 * thorough.pow(2).mean().sqrt()


def test_a_scene_is_encoded_once_while_it_stays_the_same(room):
    task, _ = room
    model = make(task.spec)
    calls = []
    encode = model.encoder.forward
    model.encoder.forward = lambda scene, number: calls.append(number) or encode(scene, number)
    play(model, dataclasses.replace(task, max_steps=12), [2000, 2001, 2002])
    assert calls[0] == 3
    assert sum(calls) <= 3 + 2  # only where something was picked up or dropped


def test_a_plan_explains_itself_and_candidates_are_chosen_by_energy(room):
    task, _ = room
    model = make(task.spec)
    now, rows = EnvBatch(task, [2000, 2001]).observations(), torch.arange(2)
    rng = Rng.of(0, rows)
    plan, _ = model.plan(now, model.reset(now), rng, rows, keep_trace=True)
    assert plan.actions.shape == plan.states.shape == plan.confidence.shape == (2, 5)
    assert plan.goals.shape == (2, 5, 2)
    assert plan.trace.tokens["actions"].shape == (4, 2, 5)
    assert torch.equal(plan.states[:, 0], now["state"])
    assert ((plan.confidence > 0) & (plan.confidence <= 1 + 1e-6)).all()
    many = model.with_options(num_candidates=32, temperature=1.0)
    best, _ = many.plan(now, many.reset(now), rng, rows)
    assert torch.equal(best.energy, best.candidate_energies.amin(-1))
    best, _ = many.plan(now, many.reset(now), rng, rows, keep_trace=True)
    chosen = best.trace.rows(best.selected)  # what is shown is what is executed
    assert torch.equal(chosen.tokens["actions"][-1], best.actions)
    assert torch.equal(chosen.tokens["states"][-1], best.states)
    single = model.with_options(temperature=1.0)
    energies = [single.plan(now, single.reset(now), Rng.of(k, rows), rows)[0].energy for k in range(8)]
    assert (best.energy <= torch.stack(energies).mean(0)).all()


def test_a_batch_of_episodes_equals_its_rows_one_by_one(room):
    task = dataclasses.replace(room[0], max_steps=8)
    model = make(task.spec, visit_memory=True, exploration=0.5, num_candidates=2)
    together = play(model, task, range(2000, 2004))
    for rollout in together:
        (alone,) = play(model, task, [rollout.seed])
        assert alone.actions.tolist() == rollout.actions.tolist()


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_task_without_grid_words_or_goals(preset):
    spec = number_spec()
    episodes = [numbers([0, 4, 8, 2], [1, 2, 0]), numbers([5, 6], [0])]
    model = make(spec, preset=preset)
    losses = model.loss(Windows(spec, episodes, model.needs).sample(8, Rng.of(0)), Rng.of(1))
    assert torch.isfinite(losses.total)
    assert set(losses.metrics) >= {"loss/states", "loss/actions", "entropy"}


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_grid_without_words(room, preset):
    task, episodes = room
    fields = {name: field for name, field in task.spec.fields.items() if name != "mission"}
    spec = dataclasses.replace(task.spec, fields=fields)
    model = make(spec, preset=preset)
    batch = Windows(spec, episodes, model.needs).sample(16, Rng.of(0), windows_per_scene=4)
    assert batch.num_scenes == 4
    assert torch.isfinite(model.loss(batch, Rng.of(1)).total)


@pytest.mark.parametrize("full_noise_prob", [0.2, 0.0])  # read on noisy windows, or by a second call at pure noise
def test_the_entropy_bound_moves_its_multiplier_after_the_step(room, full_noise_prob):
    task, episodes = room
    model = make(task.spec, entropy_bound=5.0, full_noise_prob=full_noise_prob).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    losses = model.loss(Windows(task.spec, episodes, model.needs).sample(32, Rng.of(0)), Rng.of(1))
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert losses.metrics["entropy_multiplier"] == 0
    model.after_step(losses)
    assert model.bound.multiplier > 0  # no distribution over six actions has five nats
    assert losses.metrics["entropy_multiplier"] == 0  # it is logged as it was in the loss


def test_an_untrained_network_acts_at_random():
    """It must do no better than a random policy: 40 episodes of the maze, and 15 points for chance."""
    task = dataclasses.replace(tasks.get("MazeS4G1"), max_steps=120)
    model = make(task.spec, temperature=1.0, action_steps=5)
    assert np.mean([rollout.success for rollout in play(model, task, range(2000, 2040))]) < 0.5


def test_the_papers_settings():
    config, training = default_config("MazeS4G1", preset="paper")
    network = config.network
    assert (network.hidden_size, network.num_heads, network.num_layers) == (128, 4, 4)
    assert (config.sampler.order, config.action_steps) == ("random", 10)
    assert (training.steps, training.batch_size) == (5000, 64)
    assert default_config("MazeS7G1", preset="paper")[0].horizon == 20
    model = planners.build("GenPlan-M", tasks.get("MazeS4G1").spec, config).eval()
    assert model.denoiser.layers[0].qkv.weight.shape == (384, 128)
    now = EnvBatch(tasks.get("MazeS4G1"), [2000]).observations()
    plan, _ = model.plan(now, model.reset(now), Rng.of(0, ROW), ROW)
    assert plan.actions.shape == (1, 10)


@pytest.mark.parametrize(
    ("config", "wrong", "message"),
    [
        (GenPlanConfig, {"horizon": 0}, "horizon is 0, expected at least 1"),
        (GenPlanConfig, {"action_steps": 11}, "action_steps is 11, expected at most the horizon, 10"),
        (NetworkConfig, {"hidden_size": 30}, "hidden_size is 30, expected a multiple of the 4 heads"),
        (NetworkConfig, {"num_layers": 0}, "num_layers is 0, expected at least 1"),
        (NetworkConfig, {"dropout": 1.0}, "dropout is 1.0, expected 0 to below 1"),
        (GenPlanConfig, {"source": "fog"}, "source is 'fog', expected one of mask, uniform"),
        (GenPlanConfig, {"horizon_discount": -1}, "horizon_discount is -1.0, expected at least 0"),
        (SamplerConfig, {"order": "sideways"}, "order is 'sideways'"),
        (MemoryConfig, {"context_length": 0}, "context_length is 0, expected at least 1"),
        (MemoryConfig, {"exploration": -1}, "exploration is -1.0, expected at least 0"),
    ],
)
def test_wrong_settings_are_refused(config, wrong, message):
    with pytest.raises(UserError, match=message):
        override(config(), **wrong)


def test_what_is_needed_of_the_data():
    assert make(number_spec(), visit_memory=True).needs == WindowNeeds(5, 3, ("target",), True)


def test_what_is_built_into_the_weights_cannot_be_chosen_when_planning():
    model = make(grid_spec(7, 7))
    with pytest.raises(UserError, match="hidden_size cannot be set for a trained GenPlan; expected iterations"):
        model.with_options(hidden_size=8)
