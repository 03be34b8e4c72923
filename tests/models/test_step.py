"""Step models: what looks and actions do is learnt from few demonstrations, and what is never done is noticed."""

import dataclasses

import numpy as np
import pytest
import torch

from genplan import tasks
from genplan.envs.babyai import babyai_spec
from genplan.flow import Rng
from genplan.models.step import (
    ADVANCE,
    FURTHER,
    MAX_KEYS,
    STAY,
    GridFrame,
    GridStepModel,
    StateStepModel,
    make_step_model,
    number,
)
from genplan.planners.step_training import first_steps, recorded_steps
from genplan.spec import Actions, Field, Geometry, PlanSpec, Stream

from ..data.worlds import number_spec, numbers, vector_spec
from ..demonstrated import demonstrations, fit, key_of, learnt

LEFT, RIGHT, FORWARD = range(3)
FLOOR, WALL = (1, 0, 0), (2, 5, 0)
CPU = torch.device("cpu")


def wrong(model, data):
    """How many outcomes and changes of steps a model has wrong."""
    table, key = model.table(), number(data.before.unbind(1), model.sizes)
    looks = len(model.look_sizes)
    found = torch.stack([table.outcome[key, data.actions, 0], table.look[key, data.actions]])
    expected = torch.stack([data.outcomes, number(data.after[:, :looks].unbind(1), model.look_sizes)])
    number_wrong = int((found != expected).sum())
    if model.carried_sizes:
        carried = number(data.after[:, looks:].unbind(1), model.carried_sizes)
        number_wrong += int((table.carried[key, data.actions] != carried).sum())
    return number_wrong


@pytest.mark.parametrize(("width", "height"), [(5, 3), (2, 4), (1, 1)])
def test_outcomes_and_the_states_that_follow_are_inverse(width, height):
    frame, num_states = GridFrame(Geometry(width, height, 4), CPU), width * height * 4
    before = torch.arange(num_states).repeat_interleave(num_states)
    after = torch.arange(num_states).repeat(num_states)
    outcome = frame.outcome(before, after)
    near = outcome != FURTHER
    assert torch.equal(frame.following[before[near], outcome[near]], after[near])
    distance = torch.maximum((frame.x[after] - frame.x[before]).abs(), (frame.y[after] - frame.y[before]).abs())
    assert torch.equal(near, distance <= 1)
    # And all outcomes but those that lead out of the grid, or further, are found again.
    state, outcome = (frame.following >= 0).nonzero(as_tuple=True)
    assert torch.equal(frame.outcome(state, frame.following[state, outcome]), outcome)
    assert len(state) == int(near.sum())
    assert (frame.following[:, FURTHER] == -1).all()


def test_ahead_stay_and_advance_are_what_their_names_say():
    geometry = Geometry(6, 4, 4)
    frame = GridFrame.of(geometry, CPU)
    assert frame is GridFrame.of(geometry, CPU)
    for direction, cell in enumerate([(3, 1), (2, 2), (1, 1), (2, 0)]):
        state = geometry.state(2, 1, direction)
        assert int(frame.ahead[state]) == geometry.cell(*cell)
        assert int(frame.following[state, ADVANCE]) == geometry.state(*cell, direction)
        assert int(frame.following[state, STAY]) == state
    corner = geometry.state(5, 3, 0)
    assert int(frame.following[corner, ADVANCE]) == -1
    assert int(frame.ahead[corner]) == geometry.cell(5, 3)  # there is no other


@pytest.mark.parametrize("name", ["MazeClose", "BlockUnlock"])
def test_sixty_demonstrations_are_enough_for_all_steps_of_others(name):
    model, held_out = learnt(name)
    assert isinstance(model, GridStepModel)
    data = recorded_steps(model, held_out)
    assert len(set(data.actions.tolist())) >= 4  # not just walking
    assert (data.before != data.after).any()
    assert wrong(model, data) == 0
    assert int(model.num_outcomes) == 1
    assert not any(one.requires_grad for one in model.parameters())


@pytest.mark.parametrize("name", ["MazeClose", "BlockUnlock"])
def test_walls_are_known_though_nobody_bumped_into_one(name):
    model, _ = learnt(name)
    table, wall, floor = model.table(), key_of(model, WALL), key_of(model, FLOOR)
    assert int(model.demonstrated[wall, FORWARD]) == 0
    assert int(model.demonstrated[wall, LEFT]) > 0
    assert float(table.log_ratio[wall, FORWARD]) < -3
    assert float(table.log_ratio[floor, FORWARD]) > 0
    assert int(table.outcome[floor, FORWARD, 0]) == ADVANCE
    assert torch.allclose((table.log_ratio + model.log_prior).exp().sum(-1), torch.tensor(1.0), atol=1e-4)


def test_what_was_demonstrated_is_counted_and_colors_are_names():
    model, _ = learnt("MazeClose")
    episodes = demonstrations("MazeClose")[:60]
    assert int(model.demonstrated.sum()) == sum(map(len, episodes))
    assert model.exchangeable.tolist() == [False, True, False, False, True]
    counts = np.bincount(np.concatenate([one.actions for one in episodes]), minlength=6) + 1
    assert np.allclose(model.log_prior.exp(), counts / counts.sum())


def test_first_steps_of_windows_are_the_recorded_ones():
    model, held_out = learnt("BlockUnlock")
    recorded = recorded_steps(model, held_out)
    known = {(*one.tolist(), int(action), int(outcome)) for one, action, outcome in zip(*recorded[:3], strict=True)}
    shown = first_steps(model, held_out.sample(128, Rng.of(0), 8))
    found = {(*one.tolist(), int(action), int(outcome)) for one, action, outcome in zip(*shown[:3], strict=True)}
    assert shown.after is None
    assert len(shown.actions) == 128
    assert found <= known


def test_nothing_need_be_carried():
    spec = tasks.get("MazeClose").spec
    spec = dataclasses.replace(spec, fields={name: one for name, one in spec.fields.items() if name != "carrying"})
    plain = [one for one in demonstrations("MazeClose") if not np.isin(one.actions, (3, 4)).any()]  # nothing is
    torch.manual_seed(0)
    model = make_step_model(spec)
    held_out = fit(model, spec, plain[:-8], plain[-8:])
    assert model.carried_sizes == ()
    assert model.copied == {}
    assert wrong(model, recorded_steps(model, held_out)) == 0
    assert not model.table().carried.any()


# --- without a grid --------------------------------------------------------------------------------------------------


def walks(number_of, slip, seed, length=12):
    """In a ring of nine states; action 1 goes on, action 0 back, 2 jumps across, and some steps stay where they are."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number_of):
        states, actions = [int(rng.integers(9))], rng.integers(0, 3, length)
        for action in actions:
            by = (8, 1, 4)[action] if rng.random() >= slip else 0
            states.append((states[-1] + by) % 9)
        found.append(numbers(states, actions))
    return found


def test_states_that_stand_for_nothing_are_learnt_one_by_one():
    spec = number_spec()
    model = make_step_model(spec)
    assert isinstance(model, StateStepModel)
    fit(model, spec, walks(60, 0.0, 0), walks(10, 0.0, 1))
    table, states = model.table(), torch.arange(9)
    assert table.outcome.shape == (9, 3, 1)
    assert torch.equal(table.outcome[..., 0], (states[:, None] + torch.tensor([8, 1, 4])) % 9)
    assert (table.log_prob > -0.1).all()
    assert not table.look.any()
    assert not table.carried.any()


def test_where_chance_decides_two_outcomes_are_kept():
    spec = number_spec()
    model = make_step_model(spec)
    fit(model, spec, walks(200, 0.25, 0), walks(20, 0.25, 1))
    table, states = model.table(), torch.arange(9)
    assert int(model.num_outcomes) == 2
    assert table.outcome.shape == (9, 3, 2)
    assert torch.equal(table.outcome[..., 0], (states[:, None] + torch.tensor([8, 1, 4])) % 9)
    assert torch.equal(table.outcome[..., 1], states[:, None].expand(9, 3))
    assert float((table.log_prob[..., 0].exp() - 0.75).abs().mean()) < 0.1


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_is_made_once_and_again_after_what_is_learnt_or_loaded():
    model, _ = learnt("BlockUnlock")
    other = make_step_model(babyai_spec(9, 9))
    untrained = other.table()
    with torch.inference_mode():
        assert other.table() is untrained
    other.load_state_dict(model.state_dict())
    assert other.table() is not untrained
    assert other.table() is other.table()
    assert all(torch.equal(a, b) for a, b in zip(other.table(), model.table(), strict=True))
    other.num_outcomes.fill_(2)
    assert other.table().outcome.shape[-1] == 2
    with torch.no_grad():
        other.joint.bias[0] += 50.0
    assert (other.table().outcome[:, 0, 0] == 0).all()


def test_only_what_can_be_learnt_has_a_step_model():
    grid, plain = babyai_spec(5, 5), number_spec()
    assert isinstance(make_step_model(grid), GridStepModel)
    assert isinstance(make_step_model(plain), StateStepModel)
    assert make_step_model(vector_spec()) is None
    vector = {"speed": Field("vector", (2,))}
    category = {"weather": Field("category", (), (3,))}
    continuous = Actions(low=(-1.0,), high=(1.0,))
    for spec in (grid, plain):
        assert make_step_model(dataclasses.replace(spec, fields={**spec.fields, **vector})) is None
        assert make_step_model(dataclasses.replace(spec, actions=continuous)) is None
    weather = dataclasses.replace(grid, fields={**grid.fields, **category})
    assert make_step_model(weather).carried_sizes == (11, 6, 3)
    assert make_step_model(dataclasses.replace(plain, fields={**plain.fields, **category})) is None
    many = {"many": Field("category", (), (MAX_KEYS,))}
    assert make_step_model(dataclasses.replace(grid, fields={**grid.fields, **many})) is None
    assert make_step_model(number_spec(MAX_KEYS // 16 + 1)) is None
    hidden = PlanSpec({"state": Field("category", (), (9,))}, Actions(3), {"states": Stream(9)})
    assert make_step_model(hidden) is None
