"""Surprise: what stood in the way once is known the next time, for as long as the episode lasts."""

import dataclasses

import pytest
import torch

from genplan.config import METHODS
from genplan.data.tokens import PlanSpec
from genplan.flow import Rng
from genplan.planners.surprise import Surprise
from genplan.runs import PLANNERS
from genplan.types import Observations

SPEC = PlanSpec.grid(6, 1)
FLOOR, WALL, SHUT, OPEN = (1, 0, 0), (2, 5, 0), (4, 2, 1), (4, 2, 0)
BLUE = (4, 3, 1)  # shut, and of another colour
FORWARD, TOGGLE = 2, 5
ROW = torch.tensor([0])


def seen(x, *cells):
    """Somebody at x, looking to the right, in a corridor of six cells."""
    corridor = [*cells, *[FLOOR] * (6 - len(cells))]
    maps = torch.tensor(corridor, dtype=torch.uint8).reshape(1, 6, 1, 3)
    return Observations(torch.tensor([SPEC.state(x, 0, 0)]), maps, features=torch.tensor([[1, 0]]))


def lived(*steps):
    """What is known after steps (action, seen before it, seen after it), all of which were planned to lead on."""
    known = Surprise(SPEC, 1)
    for action, before, after in steps:
        known.better(ROW, before, *onward(action, before))
        known.learn(ROW, torch.tensor([action]), before, after)
    return known


def onward(action, now):
    """A plan that begins with `action` and means to be one cell further then."""
    ahead = now.state[:, None] + torch.tensor([0, SPEC.num_headings, 2 * SPEC.num_headings])
    return torch.tensor([[action, FORWARD, FORWARD]]), ahead


BUMP = (FORWARD, seen(0, FLOOR, SHUT), seen(0, FLOOR, SHUT))
OPENED = (TOGGLE, seen(0, FLOOR, SHUT), seen(0, FLOOR, OPEN))


def first(known, now):
    """What is done first of a plan that leads on."""
    instead, other, _ = known.better(ROW, now, *onward(FORWARD, now))
    return int(other) if instead else FORWARD


def test_what_helped_once_comes_first_the_next_time():
    known = lived(BUMP, OPENED)
    assert first(known, seen(2, FLOOR, OPEN, FLOOR, SHUT)) == TOGGLE
    assert first(known, seen(2, FLOOR, OPEN, FLOOR, BLUE)) == TOGGLE  # whatever its colour


@pytest.mark.parametrize("cell", [FLOOR, WALL, OPEN])
def test_other_looks_are_another_matter(cell):
    assert first(lived(BUMP, OPENED), seen(2, FLOOR, OPEN, FLOOR, cell)) == FORWARD


def test_nothing_is_known_before_it_was_tried():
    assert first(lived(), seen(0, FLOOR, SHUT)) == FORWARD
    assert first(lived(BUMP), seen(0, FLOOR, SHUT)) == FORWARD  # in the way, but nothing is known to help
    passed = (FORWARD, seen(0, FLOOR, SHUT), seen(1, FLOOR, SHUT))
    assert first(lived(passed, OPENED), seen(0, FLOOR, SHUT)) == FORWARD


def test_what_helps_less_than_every_other_time_is_not_relied_on():
    in_vain = (TOGGLE, seen(0, FLOOR, SHUT), seen(0, FLOOR, SHUT))
    assert first(lived(BUMP, in_vain, OPENED), seen(0, FLOOR, SHUT)) == TOGGLE
    assert first(lived(BUMP, in_vain, in_vain, OPENED), seen(0, FLOOR, SHUT)) == FORWARD


def test_who_has_turned_away_stands_before_something_else():
    known = lived(BUMP)
    turned = dataclasses.replace(seen(0, FLOOR, SHUT), state=torch.tensor([SPEC.state(0, 0, 1)]))
    known.learn(ROW, torch.tensor([1]), seen(0, FLOOR, SHUT), turned)
    stays = turned.state[:, None].repeat(1, 3)
    known.better(ROW, turned, torch.tensor([[TOGGLE, 1, 1]]), stays)  # means to stay where it is
    changed = dataclasses.replace(seen(0, FLOOR, SHUT, WALL), state=turned.state)
    known.learn(ROW, torch.tensor([TOGGLE]), turned, changed)  # something else changed
    assert first(known, seen(0, FLOOR, SHUT)) == FORWARD


@pytest.mark.parametrize(("curiosity", "surprise"), [(0.0, True), (0.5, True), (0.5, False)])
def test_only_the_curious_are_surprised(room, curiosity, surprise):
    task, _ = room
    config = dataclasses.replace(METHODS["GenPlan-M"], width=32, layers=1, curiosity=curiosity, surprise=surprise)
    torch.manual_seed(0)
    model = PLANNERS[type(config)](task.spec, config).eval()
    env = task.make()
    now = Observations.stack([task.observe(env, env.reset(seed=seed)[0]) for seed in (10_000, 10_001)])
    rows = torch.arange(2)
    memory = model.start(now)
    assert (memory.surprise is not None) == bool(curiosity and surprise)
    plan, memory = model.plan(now, memory, Rng.of(0, rows), rows)
    assert plan.actions.shape == (2, 10)
    model.observe(memory, plan.actions[:, 0], now, rows)


def test_plans_and_steps_pass_through_what_is_known(room, monkeypatch):
    """The planner asks before it answers, and tells what was done and seen before and after."""
    task, episodes = room
    config = dataclasses.replace(METHODS["GenPlan-M"], width=32, layers=1, curiosity=0.5)
    torch.manual_seed(0)
    model = PLANNERS[type(config)](task.spec, config).eval()
    episode = episodes[0]
    maps, features = torch.from_numpy(episode.maps), torch.from_numpy(episode.features)
    mission = torch.from_numpy(task.spec.encode_mission(episode.mission))[None]
    before, after = (
        Observations(torch.tensor([int(episode.states[k])]), maps[k : k + 1], mission, features[k : k + 1])
        for k in (0, 1)
    )
    memory = model.start(before)
    told = []
    answers = [(torch.tensor([where]), torch.tensor([4]), torch.tensor([0.75])) for where in (True, False)]
    monkeypatch.setattr(memory.surprise, "better", lambda *what: answers.pop())
    monkeypatch.setattr(memory.surprise, "learn", lambda *what: told.append(what))
    plan, memory = model.plan(before, memory, Rng.of(0, ROW), ROW)
    other, memory = model.plan(before, memory, Rng.of(0, ROW), ROW)
    # The rest of the plan comes a step later, whatever tells of it.
    assert other.actions[0].tolist() == [4, *plan.actions[0, :-1].tolist()]
    assert other.states[0].tolist() == [int(before.state), *plan.states[0, :-1].tolist()]
    assert other.confidence[0].tolist() == pytest.approx([0.75, *plan.confidence[0, :-1].tolist()])
    model.observe(memory, torch.tensor([4]), after, ROW)
    _, actions, last, seen_now = told[0]
    assert actions.tolist() == [4]
    assert (last.state, seen_now.state) == (before.state, after.state)
