"""Erased loops: what is left still leads to the end, and what was gained on the way stays."""

import numpy as np
import pytest

from genplan import tasks
from genplan.data.transforms import TRANSFORMS, EraseLoops, extend_episodes
from genplan.errors import UserError
from genplan.types import SubGoal

from ..demonstrated import demonstrations
from .worlds import (
    DOOR,
    FORWARD,
    KEY,
    LEFT,
    PICKUP,
    RIGHT,
    TOGGLE,
    empty_room,
    go_to,
    grid_spec,
    number_spec,
    numbers,
    play,
    step,
)

SPEC = grid_spec(8, 8)
START = (2, 2, 0)  # faces right
THERE_AND_BACK = (FORWARD, RIGHT, RIGHT, FORWARD)
TURNING_LEFT = play(SPEC, empty_room(8, 8), START, [LEFT, FORWARD], "", ())


def erase(*episodes, spec=SPEC):
    return EraseLoops().episodes(spec, episodes, np.random.default_rng(0))


def walk(*actions, subgoals=(), things=()):
    grid = empty_room(8, 8)
    for (x, y), look in dict(things).items():
        grid[x, y] = look
    return play(SPEC, grid, START, actions, "", subgoals)


def assert_replays(episode):
    """It is what the world does, step by step."""
    seen = episode.observations
    grid, carrying, pose = seen["grid"][0].copy(), seen["carrying"][0].copy(), SPEC.geometry.pose(int(seen["state"][0]))
    for number, action in enumerate(episode.actions.tolist()):
        pose = step(grid, carrying, pose, action)
        assert SPEC.geometry.state(*pose) == seen["state"][number + 1]
        assert np.array_equal(grid, seen["grid"][number + 1])
        assert np.array_equal(carrying, seen["carrying"][number + 1])


def test_what_was_walked_for_nothing_is_left_out():
    episode = walk(*THERE_AND_BACK, RIGHT, RIGHT, FORWARD, FORWARD)
    (erased,) = erase(episode)
    assert erased.actions.tolist() == [FORWARD, FORWARD]
    assert erased.actions.dtype == episode.actions.dtype
    assert {name: (one.dtype, len(one)) for name, one in erased.observations.items()} == {
        name: (one.dtype, 3) for name, one in episode.observations.items()
    }
    assert_replays(erased)


def test_turns_that_were_demonstrated_stand_for_a_loop():
    episode = walk(*THERE_AND_BACK, RIGHT, FORWARD)
    (erased,) = erase(episode)
    assert erased.actions.tolist() == [RIGHT, RIGHT, RIGHT, FORWARD]  # nobody ever turned left
    assert np.isnan(erased.rewards[:2]).all()
    assert not erased.terminations[:2].any()
    assert_replays(erased)
    erased, other = erase(episode, TURNING_LEFT)
    assert erased.actions.tolist() == [LEFT, FORWARD]
    assert other is TURNING_LEFT
    assert_replays(erased)
    straight = walk(FORWARD, FORWARD)
    assert erase(straight)[0] is straight


def test_a_door_that_is_used_later_stays_open_and_another_was_never_opened():
    door = {(3, 2): (DOOR, 1, 1)}
    around = (TOGGLE, RIGHT, FORWARD, RIGHT, RIGHT, FORWARD)
    used = walk(*around, RIGHT, FORWARD, things=door)
    (erased,) = erase(used)
    assert erased.actions.tolist() == [TOGGLE, FORWARD]
    assert erased.observations["grid"][:, 3, 2, 2].tolist() == [1, 0, 0]
    assert_replays(erased)
    erased = erase(walk(*around, LEFT, LEFT, FORWARD, things=door))[0]
    assert erased.actions.tolist() == [RIGHT, FORWARD]
    assert erased.observations["grid"][:, 3, 2, 2].tolist() == [1, 1, 1]
    assert_replays(erased)


def test_loops_in_which_something_is_gained_are_kept():
    fetched = walk(FORWARD, PICKUP, RIGHT, RIGHT, FORWARD, things={(4, 2): (KEY, 1, 0)})
    assert fetched.observations["carrying"][-1, 0] == KEY
    assert erase(fetched)[0] is fetched
    reached = walk(*THERE_AND_BACK, subgoals=(SubGoal(1, 5, "target"),))
    assert erase(reached)[0] is reached
    assert len(erase(walk(*THERE_AND_BACK))[0]) < len(reached)


def test_subgoals_point_at_the_steps_that_reach_them():
    goals = (SubGoal(6, 7, "target"), SubGoal(8, 9, "target"))
    episode = walk(*THERE_AND_BACK, RIGHT, RIGHT, FORWARD, FORWARD, RIGHT, subgoals=goals)
    (erased,) = erase(episode)
    assert erased.actions.tolist() == [FORWARD, FORWARD, RIGHT]
    assert erased.subgoals == (SubGoal(0, 7, "target"), SubGoal(2, 9, "target"))


def test_shortest_ways_have_no_loops():
    episodes = go_to(SPEC, 20, walls=6)
    assert all(one is other for one, other in zip(erase(*episodes), episodes, strict=True))


def test_episodes_of_the_bot_without_loops_succeed_in_the_simulator():
    """Played from the same seed, every step shows what the rebuilt episode says, and the last one succeeds."""
    task, recorded = tasks.get("MazeClose"), demonstrations("MazeClose")[:30]
    erased = erase(*recorded, spec=task.spec)
    assert sum(len(one) < len(other) for one, other in zip(erased, recorded, strict=True)) > 5
    env = task.make_env()
    for episode, original in zip(erased, recorded, strict=True):
        seen = task.observe(env, env.reset(seed=original.seed)[0])
        for number, action in enumerate(episode.actions.tolist()):
            for name in task.spec.fields:
                assert np.array_equal(seen[name], episode.observations[name][number])
            raw, reward, terminated, _, info = env.step(action)
            seen = task.observe(env, raw)
            assert task.success(reward, terminated, info) == (number == len(episode) - 1)
        assert seen["state"] == episode.observations["state"][-1]
        assert [one.token for one in episode.subgoals] == [one.token for one in original.subgoals]
        assert episode.subgoals[-1].step == len(episode) - 1
        for goal, before in zip(episode.subgoals, original.subgoals, strict=True):
            assert episode.observations["state"][goal.step] == original.observations["state"][before.step]
            assert episode.actions[goal.step] == original.actions[before.step]


def test_erased_episodes_take_the_place_of_the_others():
    episode = walk(*THERE_AND_BACK, RIGHT, RIGHT, FORWARD)
    made = extend_episodes([EraseLoops()], SPEC, [episode, TURNING_LEFT], np.random.default_rng(0))
    assert [len(one) for one in made] == [1, 2]
    assert TRANSFORMS["erase_loops"] is EraseLoops


def test_a_grid_with_directions_is_needed():
    with pytest.raises(UserError, match="erase_loops"):
        erase(numbers([0, 1], [0]), spec=number_spec())
