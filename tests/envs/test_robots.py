"""Robot environments: seeds, ends, what is told, and recorded demonstrations that come true when they are replayed."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from genplan import tasks
from genplan.data.importers import replay
from genplan.envs import KITCHEN_TASKS, ROBOTS, make_robot
from genplan.errors import UserError
from genplan.metrics import resolve, summarize
from genplan.names import load_planner
from genplan.rollout import play
from genplan.tasks.robots import order_of_tasks

pytest.importorskip("gym_pusht")
pytest.importorskip("gymnasium_robotics")
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def recorded(name, format_, task):
    from genplan.data.importers import IMPORTERS

    path = DATA / name
    if not path.exists():
        pytest.skip("the recordings are not here")
    return list(IMPORTERS[format_][1](path, tasks.get(task)))


@pytest.mark.parametrize("name", ROBOTS)
def test_the_same_seed_gives_the_same_episode(name):
    task, seen = tasks.get(name), []
    actions = np.random.default_rng(0).uniform(
        task.spec.actions.low, task.spec.actions.high, (20, *task.spec.actions.shape)
    )
    for seed in (3, 3, 4):
        env = task.make_env()
        raw, _ = env.reset(seed=seed)
        seen.append(np.stack([raw, *(env.step(action)[0] for action in actions)]))
        task.spec.fields["observation"].check(seen[-1], "what is observed", (21,))
        env.close()
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


@pytest.mark.parametrize("name", ROBOTS)
def test_bounds_limits_and_registration(name):
    task = tasks.get(name)
    env = gymnasium.make(f"genplan/{name}-v0").unwrapped
    assert np.allclose(env.action_space.low, task.spec.actions.low)
    assert np.allclose(env.action_space.high, task.spec.actions.high)
    env.reset(seed=0)
    ends = [env.step(np.zeros(task.spec.actions.shape))[2:4] for _ in range(task.max_steps)]
    assert not any(terminated for terminated, _ in ends)  # whatever is reached, as published
    assert [truncated for _, truncated in ends] == [False] * (task.max_steps - 1) + [True]
    env.close()


def test_metrics_of_a_random_policy():
    for name in ROBOTS:
        task = tasks.get(name)
        rollouts = play(load_planner("random:uniform", task), task, [2000, 2001])
        assert all(one.num_steps == task.max_steps for one in rollouts)
        found = {metric.name: summarize(metric, rollouts).value for metric in resolve(task)}
        if name == "PushT":
            assert 0 <= found["final_coverage"] <= found["max_coverage"] < 1
            assert found["final_iou"] <= found["final_coverage"]
            assert found["final_speed"] > 0
        else:
            assert found["tasks"] <= 1
            assert found["orders"] in (1, 2)


def test_pusht_begins_where_it_is_told():
    task = tasks.get("PushT")
    env = task.make_env()
    raw, _ = env.reset(seed=7)
    for _ in range(30):
        raw, *_ = env.step([300, 300])
    again, _ = env.reset(seed=8, options={"start": {"observation": raw}})
    assert np.abs(again - raw).max() < 1e-3
    from genplan.envs.pusht import observed  # not above: the simulator is imported when an environment is made

    start = np.array([100.0, 400.0, 256.0, 300.0, 1.5])
    for seed in (0, 1):
        assert np.abs(make_robot("PushT", start=start).reset(seed=seed)[0] - observed(start)).max() < 1e-3


def test_recorded_demonstrations_come_true():
    """PushT: every position of the agent; Kitchen: all tasks that were completed, in spite of the sensors' noise."""
    episodes = recorded("pusht/pusht_lowdim.npz", "pusht", "PushT")
    assert (len(episodes), sum(map(len, episodes))) == (206, 25_650)
    assert all(one.last_repeated and np.isnan(one.rewards).all() for one in episodes)
    assert np.mean([replay(tasks.get("PushT"), one)["coverage"][-1] for one in episodes[:6]]) > 0.85
    episodes = recorded("kitchen/kitchen_replay_frankakitchen_v1.npz", "kitchen", "Kitchen")
    assert len(episodes) == 563
    for one in episodes[:40:20]:
        completed = replay(tasks.get("Kitchen"), one)["completed"]
        assert order_of_tasks(completed) == tuple(goal.token for goal in one.subgoals)
        assert len(one.subgoals) == 4


def test_orders_of_tasks():
    assert order_of_tasks([0, 0, 4, 4, 5, 7]) == (2, 0, 1)
    assert order_of_tasks([0, 0]) == ()
    assert len(KITCHEN_TASKS) == tasks.get("Kitchen").spec.goals.size


def test_without_the_extra_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(ROBOTS, "PushT", type(ROBOTS["PushT"])("PushT", "genplan.nowhere:Env", 300, "gym-pusht", ""))
    with pytest.raises(UserError, match=r"pip install 'genplan\[robots\]'"):
        make_robot("PushT")
