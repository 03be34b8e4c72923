"""Curiosity: where nothing new comes of what is done, something else is tried."""

import dataclasses

import pytest
import torch

from genplan.config import METHODS, GenPlanConfig
from genplan.data.tokens import PlanSpec
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.runs import PLANNERS
from genplan.types import Observations

SPEC = PlanSpec(num_actions=5, num_states=9, num_goals=1, goal_size=9)
UNTOLD = [name for name in METHODS if not getattr(METHODS[name], "goals", False)]
NUMBER = 400


def planner(method="GenPlan-M", curiosity=0.5, trail=True):
    config = dataclasses.replace(METHODS[method], width=32, layers=1, context=0, trail=trail, curiosity=curiosity)
    torch.manual_seed(0)
    return PLANNERS[type(config)](SPEC, config).eval()


def seen(state, feature=0.0):
    return Observations(torch.full((NUMBER,), state), features=torch.full((NUMBER, 1), feature))


def lived(model, steps):
    """A memory of many rows alike, each of which did `steps`: (action, what was seen then)."""
    rows = torch.arange(NUMBER)
    memory = model.start(seen(0))
    now = seen(0)
    for action, now in steps:
        memory = model.observe(memory, torch.full((NUMBER,), action), now, rows)
    return model.urge(now, memory, Rng.of(0, rows), rows), memory, now


def felt(urge):
    return float((urge >= 0).float().mean())


def test_what_is_new_is_not_boring():
    model = planner()
    assert felt(lived(model, [])[0]) == 0
    assert felt(lived(model, [(1, seen(1)), (1, seen(2)), (1, seen(3))])[0]) == 0
    turned = lived(model, [(0, seen(1)), (1, seen(0)), (0, seen(1)), (1, seen(0))])[0]
    pushed = lived(model, [(2, seen(0))] * 12)[0]
    assert 0.1 < felt(turned) < felt(pushed) < 0.8
    assert felt(lived(model, [*[(2, seen(0))] * 12, *((1, seen(1 + n)) for n in range(8))])[0]) < 0.3  # forgotten


def test_what_was_tried_least_is_tried():
    urge = lived(planner(), [(2, seen(0))] * 6 + [(1, seen(0))])[0]
    counts = torch.bincount(urge[urge >= 0], minlength=5)
    assert counts[2] < counts[1] < min(counts[[0, 3, 4]])
    after = lived(planner(), [(2, seen(0))] * 6 + [(1, seen(0, feature=1.0))])[0]  # a change: all may be tried again
    counts = torch.bincount(after[after >= 0], minlength=5)
    assert counts[2] > 0.1 * counts.sum()


@pytest.mark.parametrize("trail", [True, False])
@pytest.mark.parametrize("method", UNTOLD)
def test_a_plan_begins_with_what_is_to_be_tried(method, trail):
    rows = torch.arange(NUMBER)
    model = planner(method, trail=trail)
    urge, memory, now = lived(model, [(2, seen(0))] * 12)
    plan, _ = model.plan(now, memory, Rng.of(0, rows), rows)
    assert torch.equal(plan.actions[urge >= 0, 0], urge[urge >= 0])


@pytest.mark.parametrize("method", UNTOLD)
def test_without_curiosity_there_is_no_urge(method):
    urge, memory, _ = lived(planner(method, curiosity=0.0), [(2, seen(0))] * 12)
    assert urge is None
    assert memory.boredom is None


def test_candidates_share_an_urge():
    model = planner().with_options(candidates=3)
    rows = torch.arange(NUMBER)
    urge, memory, now = lived(model, [(2, seen(0))] * 12)
    plan, _ = model.plan(now, memory, Rng.of(0, rows), rows)
    assert torch.equal(plan.actions[urge >= 0, 0], urge[urge >= 0])


def test_less_than_no_curiosity_is_refused():
    with pytest.raises(UserError, match="curiosity is -1"):
        GenPlanConfig(curiosity=-1)
