"""Exploration: where nothing new comes of what is done, something else is tried."""

import pytest
import torch

from genplan import planners
from genplan.config import override
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.planners.exploration import ExploringPlanner
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Observations, Plan

SPEC = PlanSpec(
    {"state": Field("category", (), (9,)), "light": Field("category", (), (2,))},
    Actions(5),
    {"states": Stream(9, observed="state"), "goals": Stream(9, (1,))},
)
# Two need goals, and two a step model, which this task has none of.
METHODS = [
    name for name, one in planners.METHODS.items()
    if name not in ("DT", "LEAP", "BC-step", "LEAP-step") and not one.continuous
]  # fmt: skip
NUMBER = 400
ROWS = torch.arange(NUMBER)


def make(method="GenPlan-M", exploration=0.5, visit_memory=True, **settings):
    config = override(planners.default_settings(method), strict=False, num_layers=1, hidden_size=32)
    config = override(config, context_length=1, visit_memory=visit_memory, exploration=exploration, **settings)
    return planners.build(method, SPEC, config).eval()


def observed(state, light=0):
    return Observations({"state": torch.full((NUMBER,), state), "light": torch.full((NUMBER,), light)})


def after(model, steps):
    """Many rows alike, each of which did `steps`: (action, what was observed then)."""
    now = observed(0)
    memory = model.reset(now)
    for action, now in steps:
        memory = model.observe(memory, torch.full((NUMBER,), action), now, ROWS)
    return model.exploratory_action(now, memory, Rng.of(0, ROWS), ROWS), memory, now


def share(action):
    return float((action >= 0).float().mean())


def test_nothing_else_is_tried_while_states_are_new():
    model = make()
    assert share(after(model, [])[0]) == 0
    assert share(after(model, [(1, observed(1)), (1, observed(2)), (1, observed(3))])[0]) == 0
    to_and_fro = after(model, [(0, observed(1)), (1, observed(0)), (0, observed(1)), (1, observed(0))])[0]
    stuck = after(model, [(2, observed(0))] * 12)[0]
    assert 0.1 < share(to_and_fro) < share(stuck) < 0.8
    away = [*[(2, observed(0))] * 12, *((1, observed(1 + number)) for number in range(8))]
    assert share(after(model, away)[0]) < 0.3  # the revisit score decays


def test_the_action_done_least_is_tried_most():
    action = after(make(), [(2, observed(0))] * 6 + [(1, observed(0))])[0]
    counts = torch.bincount(action[action >= 0], minlength=5)
    assert counts[2] < counts[1] < min(counts[[0, 3, 4]])
    action = after(make(), [(2, observed(0))] * 6 + [(1, observed(0, light=1))])[0]  # a change: what failed may not now
    counts = torch.bincount(action[action >= 0], minlength=5)
    assert counts[2] > 0.1 * counts.sum()


@pytest.mark.parametrize("visit_memory", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_plan_begins_with_what_is_to_be_tried(method, visit_memory):
    model = make(method, visit_memory=visit_memory)
    action, memory, now = after(model, [(2, observed(0))] * 12)
    plan, _ = model.plan(now, memory, Rng.of(0, ROWS), ROWS)
    assert torch.equal(plan.actions[action >= 0, 0], action[action >= 0])


@pytest.mark.parametrize("method", METHODS)
def test_without_exploration_nothing_is_given(method):
    action, memory, _ = after(make(method, exploration=0.0), [(2, observed(0))] * 12)
    assert action is None
    assert not memory.visits.revisit_score.any()


def test_candidates_share_an_exploratory_action():
    model = make(num_candidates=3)
    action, memory, now = after(model, [(2, observed(0))] * 12)
    plan, _ = model.plan(now, memory, Rng.of(0, ROWS), ROWS)
    assert torch.equal(plan.actions[action >= 0, 0], action[action >= 0])


@pytest.mark.parametrize("method", METHODS)
def test_the_energy_of_a_plan_counts_the_action_that_is_tried(method):
    model = make(method)
    action, memory, now = after(model, [(2, observed(0))] * 12)
    plan, _ = model.plan(now, memory, Rng.of(0, ROWS), ROWS)
    tried = action >= 0
    assert torch.equal(plan.actions[tried, 0], action[tried])
    assert (plan.energy > -plan.confidence[:, 0].log() - 1e-4).all()  # none is as sure as one that cannot be otherwise
    assert (plan.confidence[tried, 0] < 0.9).all()


def test_exploration_is_refused_where_actions_are_not_single_tokens():
    spec = PlanSpec({"seen": Field("vector", (2,))}, Actions(low=(-1.0,), high=(1.0,)))
    planner = planners.build("BC", spec, planners.default_settings("BC"))
    with pytest.raises(UserError, match="expected a task with an observed states stream"):
        planner.with_options(exploration=0.5)


class AlwaysLeft:
    """A planner of one's own, without any memory."""

    privileged, action_steps = False, None

    def reset(self, observations, oracle=None):
        return None

    def plan(self, observations, memory, rng, ids, oracle=None):
        return Plan(torch.zeros(len(ids), 3, dtype=torch.int64), confidence=torch.ones(len(ids), 3)), memory

    def observe(self, memory, actions, observations, ids):
        return memory


def test_exploration_works_around_any_planner():
    planner, stays, alike = ExploringPlanner(AlwaysLeft(), SPEC, 0.5), observed(0), make()
    memory, of_network = planner.reset(stays), alike.reset(stays)
    assert planner.plan(stays, memory, Rng.of(0, ROWS), ROWS)[0].confidence is not None  # nothing is tried: as it is
    for _ in range(12):
        memory = planner.observe(memory, torch.zeros(NUMBER, dtype=torch.int64), stays, ROWS)
        of_network = alike.observe(of_network, torch.zeros(NUMBER, dtype=torch.int64), stays, ROWS)
    plan, _ = planner.plan(stays, memory, Rng.of(0, ROWS), ROWS)
    tried = alike.exploratory_action(stays, of_network, Rng.of(0, ROWS), ROWS)
    assert plan.confidence is None
    assert 0.1 < share(tried) < 0.8
    assert torch.equal(plan.actions, tried.clamp(min=0)[:, None])  # the same as in planners that have it built in


@pytest.mark.parametrize(
    ("spec", "exploration", "message"),
    [
        (SPEC, 0.0, "exploration is 0.0, expected more than 0"),
        (PlanSpec({"position": Field("vector", (2,))}, Actions(3), {}), 0.5, "observed states and discrete actions"),
    ],
)
def test_exploration_needs_what_it_counts(spec, exploration, message):
    with pytest.raises(UserError, match=message):
        ExploringPlanner(AlwaysLeft(), spec, exploration)
