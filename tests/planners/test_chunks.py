"""Planners of action chunks: what is particular to each, learnt on something tiny."""

import numpy as np
import pytest
import torch

from genplan import planners
from genplan.config import override
from genplan.data.episodes import episode_from_arrays
from genplan.data.windows import Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.models.residual_codes import k_means, nearest
from genplan.planners.reference import ReplayPlanner
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Observations, SubGoal

CHUNK_METHODS = [name for name, one in planners.METHODS.items() if one.continuous]
SMALL = {
    "hidden_size": 32, "num_heads": 2, "num_layers": 1, "horizon": 4, "action_steps": 2, "chunk": 4, "levels": 2,
    "codes": 4, "context_length": 2, "frame_stack": True, "codec": "residual", "entropy_bound": 0.0,
}  # fmt: skip
SPEC = PlanSpec(
    {"place": Field("vector", (2,))},
    Actions(low=(-2.0,), high=(2.0,)),
    {"goals": Stream(2, (1,), names=("down", "up"))},
)


def episodes(number=40, seed=0):
    """From the same place to one of two goals, at ±0.5, by actions that follow from the goal and the place."""
    rng, found = np.random.default_rng(seed), []
    for index in range(number):
        up = index % 2
        noise = rng.uniform(-1, 1, (7, 1))
        observed = np.concatenate([np.zeros((7, 1)), noise], 1)
        actions = (1.0 if up else -1.0) * 0.5 + 0.2 * noise[:1].repeat(6, 0)
        goals = [SubGoal(5, up, "target")]
        found.append(episode_from_arrays(SPEC, {"place": observed.astype(np.float32)}, actions, subgoals=goals))
    return found


def learn(method, steps=250, **settings):
    config = override(planners.default_settings(method), strict=False, **{**SMALL, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        planner = planners.build(method, SPEC, config)
        planner.fit_codec(episodes())
        windows = Windows(SPEC, episodes(), planner.needs)
        optimizer = torch.optim.AdamW(planner.parameters(), 3e-3)
        for step in range(steps):
            loss = planner.train().loss(windows.sample(64, Rng.of(0, step)), Rng.of(0, step)).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return planner.eval()


def plans(planner, number=200):
    observed = torch.zeros(number, 2)
    observed[:, 1] = torch.linspace(-1, 1, number)
    now, rows = Observations({"place": observed}), torch.arange(number)
    plan, _ = planner.plan(now, planner.reset(now), Rng.of(0, rows), rows)
    SPEC.actions.check(plan.actions.numpy(), "plans")
    return plan, observed[:, 1]


@pytest.mark.parametrize("method", ["VQ-BeT", "DP-C", "DP-T", "Regression", "MIP", "GenPlan-M", "GenPlan-M-G"])
def test_a_drawn_goal_is_kept_by_the_actions(method):
    """Both goals are drawn, about equally often, and the chunk is that of the goal and of what is observed."""
    planner = learn(method, goal_temperature=1.0, iterations=3)
    plan, place = plans(planner)
    goals = plan.tokens["goals"].flatten()
    assert 0.3 < goals.float().mean() < 0.7
    expected = (2.0 * goals - 1) * 0.5 + 0.2 * place
    assert (plan.actions[:, 0, 0] - expected).abs().mean() < 0.12


@pytest.mark.parametrize("method", ["VQ-BeT-noGC", "DP-C-noGC", "DP-T-noGC", "GenPlan-M-noGC"])
def test_without_goals_generative_planners_sample_the_mixture(method):
    """Both ways are found, and nothing between them."""
    plan, _ = plans(learn(method, temperature=1.0, iterations=3))
    first = plan.actions[:, 0, 0]
    assert "goals" not in plan.tokens
    assert 0.25 < (first > 0).float().mean() < 0.75
    assert ((first.abs() > 0.2) & (first.abs() < 0.8)).float().mean() > 0.9


def test_without_goals_regression_averages():
    for method in ("Regression-noGC", "MIP-noGC"):
        plan, _ = plans(learn(method))
        assert "goals" not in plan.tokens
        assert plan.actions.abs().mean() < 0.75


def test_codes_are_seen_by_later_ones_only():
    planner = learn("VQ-BeT", steps=1)
    context, codes = torch.randn(3, 32), torch.tensor([[0], [1], [2]])
    first = planner.logits(context, codes[:, :0])
    both = planner.logits(context, codes)
    assert torch.allclose(first[:, 0], both[:, 0], atol=1e-6)
    assert not torch.allclose(both[:, 1], planner.logits(context, (codes + 1) % 4)[:, 1])


def test_plans_say_what_is_done():
    """With fewer levels of codes used than drawn, the tokens of a plan are those of its actions."""
    planner = learn("GenPlan-M-G", steps=60)
    plan, _ = plans(planner)
    assert torch.equal(plan.tokens["actions"], planner.codec.encode(plan.actions, None))
    assert torch.isfinite(plan.energy).all()


def test_clusters_are_found_and_empty_ones_begin_anew():
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    values = centres.repeat(50, 1) + 0.1 * torch.randn(150, 2, generator=generator)
    found = k_means(values, 3, generator)
    assert (torch.cdist(centres, found).amin(1) < 0.2).all()
    assert len(set(nearest(values, found)[:3].tolist())) == 3
    alike = k_means(torch.ones(20, 2), 4, generator)  # fewer distinct values than words
    assert torch.equal(alike, torch.ones(4, 2))


def test_grids_with_states_are_refused():
    spec = PlanSpec(
        {"map": Field("grid", (2, 2), (3,)), "cell": Field("category", sizes=(4,))}, SPEC.actions,
        {"states": Stream(4, observed="cell", points_at="map")},
    )  # fmt: skip
    for method in CHUNK_METHODS:
        with pytest.raises(UserError, match="use GenPlan-M or BC"):
            planners.build(method, spec, planners.default_settings(method))
        with pytest.raises(UserError, match="continuous"):
            planners.build(method, PlanSpec(SPEC.fields, Actions(3)), planners.default_settings(method))


def test_replay_plays_what_began_most_alike():
    known = episodes(6, seed=3)
    planner = ReplayPlanner(SPEC, known)
    now = Observations({"place": torch.from_numpy(np.stack([known[4].observations["place"][0]] * 2))})
    memory, rows = planner.reset(now), torch.arange(2)
    plan, memory = planner.plan(now, memory, Rng.of(0, rows), rows)
    assert np.allclose(plan.actions[0], known[4].actions)
    again, _ = planner.plan(now, memory, Rng.of(0, rows), rows)
    assert torch.equal(again.actions, plan.actions[:, -1:].expand_as(again.actions))
