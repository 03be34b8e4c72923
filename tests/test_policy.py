"""The Python interface: plans for single observations, of the environment itself or as fields."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

import genplan.envs  # noqa: F401 (registers the environments)
from genplan import planners, policy, tasks
from genplan.errors import DataError, UserError
from genplan.policy import Policy
from genplan.rollout import EnvBatch, open_loop, play, rollout


@pytest.fixture(scope="module")
def maze_policy():
    return policy.load("pretrained:MazeS4G1")


@pytest.fixture
def env():
    return gymnasium.make("genplan/MazeS4G1-v0")


def test_a_plan_has_no_batch_axis_and_is_repeatable(maze_policy, env):
    maze_policy.reset()
    observation, _ = env.reset(seed=2000)
    plan = maze_policy.plan(observation)
    horizon = maze_policy.planner.config.horizon
    assert plan.actions.shape == plan.states.shape == plan.confidence.shape == (horizon,)
    assert plan.goals.shape == (horizon, 1)
    assert plan.energy > 0
    assert maze_policy.task.spec.geometry.pose(int(plan.states[0])) == tuple(observation["pose"])
    options = {"iterations": 1, "temperature": 0.0}
    assert (maze_policy.plan(observation, **options).trace.t == torch.tensor([0.0, 1.0])).all()
    assert maze_policy.plan(observation, keep_trace=False).trace is None
    after, *_ = env.step(int(plan.actions[0]))
    maze_policy.observe(plan.actions[0], after)
    maze_policy.plan(after)
    maze_policy.reset()
    assert (maze_policy.plan(observation).actions == plan.actions).all()


def test_what_a_plan_does_is_what_the_first_plan_of_an_evaluation_does(maze_policy, env):
    task, seed = maze_policy.task, 1234
    (expected,) = open_loop(maze_policy.planner, EnvBatch(task, [seed]))
    maze_policy.reset(seed)
    plan = maze_policy.plan(env.reset(seed=seed)[0])
    found = plan.execute(EnvBatch(task, [seed]))
    assert (found.horizon, found.arrival) == (expected.horizon, expected.arrival)
    assert found.planned.tolist() == expected.planned.tolist()
    assert found.came.tolist() == expected.came.tolist()
    assert dataclasses.replace(plan, states=None).execute(EnvBatch(task, [seed])) is None


def test_drawn_plans_are_those_of_an_evaluation(maze_policy, env):
    """At a temperature at which every draw shows."""
    planner, task = maze_policy.planner.with_options(temperature=1.0), maze_policy.task
    own = Policy(planner, task, maze_policy.config)
    for seed in range(2000, 2004):
        own.reset(seed)
        plan = own.plan(env.reset(seed=seed)[0], keep_trace=False)
        first = next(rollout(planner, EnvBatch(task, [seed])))
        assert plan.actions.tolist() == first.plan.actions[0].tolist()


def test_fields_and_own_observations_give_the_same_plan(maze_policy, env):
    observation, _ = env.reset(seed=2001)
    plans = []
    for given in (observation, maze_policy.task.observe(None, observation)):
        maze_policy.reset()
        plans.append(maze_policy.plan(given).actions)
    assert (plans[0] == plans[1]).all()


def test_an_episode_is_that_of_an_evaluation(maze_policy):
    seed, task = 2002, maze_policy.task
    (expected,) = play(maze_policy.planner, task, [seed])
    env, actions, done = task.make_env(), [], False
    observation, _ = env.reset(seed=seed)
    maze_policy.reset(seed)
    while not done:
        plan = maze_policy.plan(observation, keep_trace=False)
        for action in plan.actions[: maze_policy.planner.action_steps]:
            observation, _, terminated, truncated, _ = env.step(int(action))
            maze_policy.observe(action, observation)
            actions.append(int(action))
            done = terminated or truncated
            if done:
                break
    assert actions == expected.actions.tolist()


def test_what_cannot_be_used_is_refused(maze_policy, env):
    observation, _ = env.reset(seed=2000)
    maze_policy.reset()
    with pytest.raises(UserError, match=r"the observation is \['pixels'\], expected the fields state, grid"):
        maze_policy.plan({"pixels": 1})
    with pytest.raises(UserError, match="the observation is int, expected"):
        maze_policy.plan(3)
    other, _ = gymnasium.make("genplan/MazeS7G1-v0").reset(seed=2000)
    with pytest.raises(DataError, match=r"'grid' has shape \(19, 19, 3\), expected \(10, 10, 3\)|'state' holds"):
        maze_policy.plan(other)
    with pytest.raises(UserError, match="before the first plan"):
        maze_policy.observe(0, observation)
    maze_policy.plan(observation)
    with pytest.raises(DataError, match="hold 6, expected 0 to 5"):
        maze_policy.observe(6, observation)
    with pytest.raises(UserError, match=r"there is no planner 'pretrained:Nowhere'"):
        policy.load("pretrained:Nowhere")


def test_a_policy_plans_in_another_task():
    loaded = policy.load("pretrained:LocS10N1", "MazeS7G1")
    observation, _ = gymnasium.make("genplan/MazeS7G1-v0").reset(seed=2000)
    assert loaded.plan(observation).states.max() < 19 * 19 * 4


def test_privileged_planners_are_refused():
    task = tasks.get("MazeS4G1")
    planner = planners.build("LEAP", task.spec, planners.default_settings("LEAP"))
    with pytest.raises(UserError, match="needs privileged goals"):
        Policy(planner, task, {"method": "LEAP"})


@pytest.mark.parametrize(
    ("gym_id", "method"), [("FrozenLake-v1", "GenPlan-M"), ("Pendulum-v1", "GenPlan-M"), ("CartPole-v1", "BC")]
)
def test_policies_without_a_grid(gym_id, method):
    task = tasks.task_from_gym(gym_id)
    planner = planners.build(method, task.spec, planners.default_settings(method)).eval()
    if gym_id == "Pendulum-v1":
        planner.codec.fit(torch.linspace(-2, 2, 50)[:, None])
    own = Policy(planner, task, {"method": method})
    env = task.make_env()
    observation, _ = env.reset(seed=0)
    plan = own.plan(observation)
    assert plan.actions.shape[1:] == task.spec.actions.shape
    assert (plan.states is not None) == (gym_id == "FrozenLake-v1")
    assert (plan.trace is not None) == (method == "GenPlan-M")
    action = plan.actions[0] if task.spec.actions.shape else int(plan.actions[0])
    assert env.action_space.contains(np.asarray(action, np.float32) if task.spec.actions.shape else action)
    own.observe(action, env.step(action)[0])
