"""The one loop over environments: batches equal rows, plans are followed, and wrong plans are refused."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

from genplan import tasks
from genplan.envs.wrappers import SlipperyActions
from genplan.errors import UserError
from genplan.rollout import EnvBatch, open_loop, play, rollout
from genplan.tasks.files import task_from_gym
from genplan.types import TEST_SEEDS, Plan


class Drawing:
    """Draws whole plans at random; remembers how it was called."""

    privileged = False
    action_steps = None

    def __init__(self, horizon=5, size=6):
        self.horizon, self.size, self.asked = horizon, size, []

    def reset(self, observations, oracle=None):
        assert oracle is None
        self.observed = observations["state"].clone() if "state" in observations else None
        return 0

    def plan(self, observations, memory, rng, ids, oracle=None):
        assert len(observations) == len(ids) == len(rng.key)
        if self.observed is not None:
            assert torch.equal(observations["state"], self.observed[ids])
        self.asked.append(ids.tolist())
        return Plan(rng.integers(self.size, (self.horizon,))), memory + 1

    def observe(self, memory, actions, observations, ids):
        assert len(actions) == len(ids) == len(observations)
        if self.observed is not None:
            self.observed[ids] = observations["state"]
        return memory


class Box(Drawing):
    def plan(self, observations, memory, rng, ids, oracle=None):
        return Plan(rng.uniform((self.horizon, 1)) * 4 - 2), memory


def same(a, b):
    numbers = ("seed", "success", "num_plans", "terminated", "truncated")
    arrays = ("actions", "rewards", "changed")
    return (
        all(getattr(a, name) == getattr(b, name) for name in numbers)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays)
        and all(np.array_equal(a.observations[name], b.observations[name]) for name in a.observations)
    )


@pytest.mark.parametrize("name", ["LocS10N10G2", "FrozenLake-v1", "CartPole-v1", "Pendulum-v1"])
def test_a_row_alone_equals_a_row_in_a_batch(name):
    task = tasks.get(name) if name in tasks.TASKS else task_from_gym(name)
    planner = Box() if task.spec.actions.n is None else Drawing(size=task.spec.actions.n)
    together = play(planner, task, TEST_SEEDS[:5], seed=3)
    for number, seed in enumerate(TEST_SEEDS[:5]):
        (alone,) = play(planner, task, [seed], seed=3)
        assert same(alone, together[number])
    assert not all(map(same, play(planner, task, TEST_SEEDS[:5], seed=4), together))


def test_what_is_recorded_is_what_happened():
    """Replayed in an environment of its own, an episode gives the same observations, rewards and end."""
    for name in ("LocS10N10G2", "Pendulum-v1"):
        task = tasks.get(name) if name in tasks.TASKS else task_from_gym(name)
        ended = []
        played = play(Box() if name == "Pendulum-v1" else Drawing(), task, range(3), on_progress=ended.append)
        assert sum(ended) == 3
        for result in played:
            env = task.make_env()
            seen = task.observe(env, env.reset(seed=result.seed)[0])
            for step in range(result.num_steps):
                for field in task.spec.step_fields:
                    assert np.array_equal(result.observations[field][step], seen[field])
                raw, reward, terminated, truncated, _ = env.step(result.actions[step])
                seen = task.observe(env, raw)
                assert reward == result.rewards[step]
                last = step == result.num_steps - 1
                assert bool(terminated or truncated) == last
            assert (result.terminated, result.truncated) == (terminated, truncated and not terminated)


def test_plans_are_executed_as_far_as_asked():
    task = tasks.get("LocS10N1")
    whole = play(Drawing(), task, TEST_SEEDS[:4])
    assert all(result.num_plans == -(-result.num_steps // 5) for result in whole)
    some = play(Drawing(), task, TEST_SEEDS[:4], action_steps=2)
    assert all(result.num_plans == -(-result.num_steps // 2) for result in some)
    planner = Drawing()
    planner.action_steps = 3
    own = play(planner, task, TEST_SEEDS[:4])
    assert all(result.num_plans == -(-result.num_steps // 3) for result in own)
    with pytest.raises(ValueError, match="action_steps is 0, expected at least 1"):
        play(Drawing(), task, [1], action_steps=0)
    with pytest.raises(UserError, match="0 seeds"):
        play(Drawing(), task, [])


def test_steps_say_which_plan_they_follow():
    task = dataclasses.replace(tasks.get("MazeS7G1"), max_steps=7)
    batch, plans = EnvBatch(task, [2000, 2001]), {}
    for number, steps in enumerate(rollout(Drawing(), batch, action_steps=[2, 5])):
        assert steps.plan_index == [number // 2, number // 5]
        assert steps.plan_step == [number % 2, number % 5]
        assert (steps.plan is None) == (len(steps.planned_ids) == 0)
        for index, row in enumerate(steps.planned_ids.tolist()):
            plans[row] = steps.plan.actions[index]
        for row in steps.ids.tolist():
            assert steps.actions[row] == plans[row][steps.plan_step[row]]
            if steps.before[row]["state"] != batch.current[row]["state"]:
                assert steps.result.changed[row]
            assert steps.observations["state"][row] == batch.current[row]["state"]
        assert torch.is_grad_enabled()  # outside the planner
    assert number == 6
    assert steps.result.done == steps.result.truncations == [True, True]


def test_rows_that_are_done_are_not_stepped():
    task = tasks.get("LocS10N1")
    planner = task.expert()
    batch = EnvBatch(task, TEST_SEEDS[:6])
    left = list(range(6))
    for steps in rollout(planner, batch):
        assert steps.ids.tolist() == left
        left = [row for row, done in zip(left, steps.result.done, strict=True) if not done]
    assert not left
    assert all(play(planner, task, TEST_SEEDS[:6], wrapper=lambda env: SlipperyActions(env, 0.1)))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("LocS10N1", torch.zeros(2, 3), "actions of torch.float32, expected a tensor of whole numbers"),
        ("LocS10N1", [[1], [1]], "actions of list, expected a tensor of whole numbers"),
        ("LocS10N1", torch.zeros(2, 3, dtype=torch.bool), "actions of torch.bool"),
        ("LocS10N1", torch.zeros(3, 3, dtype=torch.int64), r"shape \(3, 3\), expected \(2, H\): one line per row"),
        ("LocS10N1", torch.zeros(2, 0, dtype=torch.int64), "of at least one action"),
        ("LocS10N1", torch.zeros(2, dtype=torch.int64), r"shape \(2,\), expected \(2, H\)"),
        ("LocS10N1", torch.full((2, 3), 6), "returned hold 6, expected 0 to 5"),
        ("LocS10N1", torch.full((2, 3), -1), "returned hold -1, expected 0 to 5"),
        ("Pendulum-v1", torch.zeros(2, 3, 1, dtype=torch.int64), "expected a tensor of floating point numbers"),
        ("Pendulum-v1", torch.zeros(2, 3), r"shape \(2, 3\), expected \(2, H, 1\)"),
        ("Pendulum-v1", torch.zeros(2, 3, 2), r"shape \(2, 3, 2\), expected \(2, H, 1\)"),
        ("Pendulum-v1", torch.full((2, 3, 1), 2.5), r"hold 2\.5, expected \(-2\.0,\) to \(2\.0,\)"),
        ("Pendulum-v1", torch.full((2, 3, 1), torch.nan), "not finite, expected finite numbers"),
    ],
)
def test_wrong_plans_are_refused(name, wrong, message):
    class Wrong(Drawing):
        def plan(self, *arguments):
            return Plan(wrong), None

    task = tasks.get(name) if name in tasks.TASKS else task_from_gym(name)
    with pytest.raises(UserError, match=message):
        play(Wrong(), task, [2000, 2001])


def test_a_plan_without_memory_is_refused():
    class Wrong(Drawing):
        def plan(self, *arguments):
            return Plan(torch.zeros(1, 1, dtype=torch.int64))

    with pytest.raises(UserError, match="returned Plan, expected a pair: a Plan, and the memory"):
        play(Wrong(), tasks.get("LocS10N1"), [2000])


def test_wrong_observations_are_refused():
    task = tasks.get("LocS10N1")
    wrong = dataclasses.replace(task, observe=lambda env, raw: {"state": 1})
    with pytest.raises(
        UserError, match=r"observe\(\) of task LocS10N1 gives state, expected a dict .*: state, grid, mission"
    ):
        EnvBatch(wrong, [2000])
    wrong = dataclasses.replace(task, observe=lambda env, raw: {**task.observe(env, raw), "state": 400})
    with pytest.raises(UserError, match=r"'state', as observe\(\) .* holds 400, expected 0 to 399"):
        EnvBatch(wrong, [2000])


class Counting(gymnasium.wrappers.TransformReward):
    """Adds the speed to info, and doubles rewards."""

    def __init__(self, env):
        super().__init__(env, lambda reward: 2 * reward)

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"speed": abs(observation[1])}


def test_infos_and_success_at_any_step():
    made = task_from_gym("CartPole-v1", max_steps=12)
    task = dataclasses.replace(
        made,
        make=lambda: Counting(made.make()),
        infos=("speed",),
        success=lambda reward, done, info: info["speed"] > 0.3,
    )
    played = play(Drawing(size=2), task, range(10))
    for result in played:
        speeds = np.abs(result.observations["observation"][1:, 1])
        assert np.allclose(result.infos["speed"], speeds)
        assert result.success == (speeds > 0.3).any()
        assert set(result.rewards) == {2.0}
        assert result.truncated == (result.num_steps == 12 and not result.terminated)
    with pytest.raises(UserError, match="keeps 'height' of info, which has speed"):
        play(Drawing(size=2), dataclasses.replace(task, infos=("height",)), [0])
    judged_by_return = play(Drawing(size=2), made, range(3))
    assert not any(result.success for result in judged_by_return)


class Turning(Drawing):
    """Plans left turns, and one state of the plan wrong."""

    def __init__(self, wrong, cut=True, horizon=4):
        super().__init__(horizon)
        self.wrong, self.cut = wrong, cut

    def plan(self, observations, memory, rng, ids, oracle=None):
        self.asked.append(ids.tolist())
        states = observations["state"][:, None]
        turned = states // 4 * 4 + (states - torch.arange(self.horizon)) % 4
        if self.wrong is not None:
            turned[:, self.wrong] += 4
        actions = torch.zeros_like(turned)
        return Plan(actions, {"states": turned, "actions": actions}, cut=self.cut), memory


def plan_steps(planner, **options):
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=8)
    return [steps.plan_step[0] for steps in rollout(planner, EnvBatch(task, [2000]), **options)]


def test_a_plan_is_dropped_at_the_first_state_that_does_not_come():
    assert plan_steps(Turning(None)) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert plan_steps(Turning(2)) == [0, 1] * 4
    assert plan_steps(Turning(1)) == [0] * 8
    assert plan_steps(Turning(3)) == [0, 1, 2, 0, 1, 2, 0, 1]
    assert plan_steps(Turning(0)) == [0, 1, 2, 3, 0, 1, 2, 3]  # that one is no prediction
    assert plan_steps(Turning(3), action_steps=2) == [0, 1] * 4
    assert plan_steps(Turning(2), action_steps=[3]) == [0, 1] * 4


def test_a_plan_that_is_not_to_be_cut_is_executed_to_its_end():
    assert plan_steps(Turning(2, cut=False)) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert plan_steps(Turning(2), cut=False) == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_plan_is_executed_as_far_as_it_is_sure():
    planner = Turning(None)
    plan = planner.plan

    def sure_of(number):
        def made(*arguments):
            found, memory = plan(*arguments)
            return dataclasses.replace(found, sure_steps=torch.tensor([number])), memory

        return made

    planner.plan = sure_of(3)
    assert plan_steps(planner) == [0, 1, 2, 0, 1, 2, 0, 1]
    assert plan_steps(planner, action_steps=2) == [0, 1] * 4
    assert plan_steps(planner, cut=False) == [0, 1, 2, 3, 0, 1, 2, 3]
    planner.plan = sure_of(1)
    assert plan_steps(planner) == [0] * 8


def test_rows_are_cut_by_themselves():
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=6)
    planner = Turning(None)
    plan = planner.plan

    def wrong_in_one(observations, memory, rng, ids, oracle=None):
        made, memory = plan(observations, memory, rng, ids)
        made.states[ids == 1, 2] += 4
        return made, memory

    planner.plan = wrong_in_one
    list(rollout(planner, EnvBatch(task, [2000, 2001])))
    assert planner.asked == [[0, 1], [1], [0, 1]]


def test_the_first_plan_is_compared_up_to_its_end_or_that_of_the_episode():
    task = tasks.get("LocS10N1")
    for wrong, expected in ((None, [True, True, True]), (2, [True, False, True])):
        for one in open_loop(Turning(wrong), EnvBatch(task, TEST_SEEDS[:2])):
            assert one.horizon == 4
            assert (one.planned == one.came).tolist() == expected
            assert one.arrival is None
    short = dataclasses.replace(task, max_steps=2)
    assert [len(one.came) for one in open_loop(Turning(None), EnvBatch(short, TEST_SEEDS[:2]))] == [2, 2]
    assert [len(one.planned) for one in open_loop(Turning(None, horizon=1), EnvBatch(task, TEST_SEEDS[:2]))] == [0, 0]
    assert open_loop(Drawing(), EnvBatch(task, TEST_SEEDS[:2])) is None  # predicts no states
    assert open_loop(Drawing(size=2), EnvBatch(task_from_gym("CartPole-v1"), TEST_SEEDS[:2])) is None


def test_copies_are_played_on_apart():
    batch = EnvBatch(tasks.get("LocS10N1"), [2000, 2001])
    batch.step(torch.arange(2), torch.tensor([0, 1]))
    twin = batch.copy(torch.tensor([1, 1, 0]))
    before, start = batch.observations(), twin.observations()
    assert start["state"].tolist() == before["state"][[1, 1, 0]].tolist()
    assert (twin.seeds, twin.num_steps) == ([2001, 2001, 2000], [1, 1, 1])
    twin.step(torch.arange(3), torch.tensor([0, 1, 0]))
    turned = twin.observations()["state"] - start["state"] // 4 * 4
    assert turned.tolist() == [(int(state) + by) % 4 for state, by in zip(start["state"], (-1, 1, -1), strict=True)]
    assert torch.equal(batch.observations()["state"], before["state"])
    assert batch.num_steps == [1, 1]


def test_plans_are_executed_beforehand_if_asked():
    """In copies: the episodes are the same, also with plans in the middle of them, and by rows that replan apart."""
    task = dataclasses.replace(tasks.get("LocS10N1"), max_steps=7)

    def played(**options):
        return list(rollout(Turning(2), EnvBatch(task, [2000, 2001]), action_steps=[3, 4], cut=False, **options))

    plain, executed = played(), played(execute=True)
    for number, (one, other) in enumerate(zip(plain, executed, strict=True)):
        assert torch.equal(one.observations["state"], other.observations["state"])
        assert one.executed is None
        assert (other.executed is None) == (other.plan is None)
        for found, row in zip(other.executed or [], other.planned_ids.tolist(), strict=True):
            came = [int(step.observations["state"][row]) for step in plain[number : number + 3]]
            assert found.came.tolist() == came
            assert (found.planned - found.came).tolist() == [0, 4, 0][: len(came)]


def test_a_plan_that_is_the_way_of_the_expert_arrives():
    task = tasks.get("LocS10N1")
    (way,) = play(task.expert(), task, [2000])
    planner, states = Drawing(), torch.from_numpy(way.observations["state"])[None, :-1]
    actions = torch.from_numpy(way.actions)[None]
    planner.plan = lambda *_: (Plan(actions, {"states": states}), 0)
    (one,) = open_loop(planner, EnvBatch(task, [2000]))
    assert one.arrival == way.num_steps
    assert one.horizon == way.num_steps
    assert one.planned.tolist() == one.came.tolist() == way.observations["state"][1:-1].tolist()
    planner.plan = lambda *_: (Plan(actions[:, :-1], {"states": states[:, :-1]}), 0)
    assert open_loop(planner, EnvBatch(task, [2000]))[0].arrival is None
