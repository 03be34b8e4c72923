"""Stitched demonstrations: nobody recorded them, yet every step happened, and they do what their missions say."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from genplan.data.transforms import Stitch, extend_episodes
from genplan.errors import UserError

from .worlds import FLOOR, ahead, get_key, go_to, grid_spec, number_spec, numbers, step

SPEC = grid_spec(10, 10)
MISSION = SPEC.fields["mission"]


@pytest.fixture(scope="module")
def room():
    return go_to(SPEC, 150)


@pytest.fixture(scope="module")
def stitched(room):
    return Stitch(60, "and").episodes(SPEC, room, np.random.default_rng(0))


def mission(episode):
    return MISSION.decode(episode.observations["mission"][0])


def target(episode, number=0):
    """What the goal object looks like."""
    return tuple(episode.observations["grid"][0][SPEC.geometry.position(episode.subgoals[number].token)])


def test_a_stitched_demonstration_can_be_played_and_does_what_its_mission_says(stitched):
    for episode in stitched:
        seen = episode.observations
        grid, pose = seen["grid"][0].copy(), SPEC.geometry.pose(int(seen["state"][0]))
        reached = []
        for number, action in enumerate(episode.actions.tolist()):
            pose = step(grid, [FLOOR, 0], pose, action)
            assert SPEC.geometry.state(*pose) == seen["state"][number + 1]
            if number in [goal.step for goal in episode.subgoals]:
                reached.append(SPEC.geometry.cell(*ahead(pose)))
        assert reached == [goal.token for goal in episode.subgoals]
        assert episode.subgoals[-1].step == len(episode) - 1
        assert (seen["grid"] == grid).all()
        assert {name: len(column) for name, column in seen.items()} == dict.fromkeys(SPEC.fields, len(episode) + 1)
        for name, field in SPEC.fields.items():
            field.check(seen[name], name, (len(episode) + 1,))


def test_every_step_happened_in_a_demonstration(room, stitched):
    def steps(episode):
        states = pairwise(episode.observations["state"].tolist())
        return {(before, action, after) for action, (before, after) in zip(episode.actions, states, strict=True)}

    happened = set().union(*map(steps, room))
    assert all(steps(episode) <= happened for episode in stitched)


def test_some_have_splices_and_some_two_goals_in_any_order(room, stitched):
    assert len(stitched) > 50
    assert max(map(len, stitched)) > max(map(len, room))
    recorded = {tuple(episode.observations["state"]) for episode in room}
    again = sum(tuple(episode.observations["state"]) in recorded for episode in stitched)
    assert again < 6  # somebody may have walked so by chance
    two = [episode for episode in stitched if len(episode.subgoals) == 2]
    assert 0.3 < len(two) / len(stitched) <= 0.55
    assert all((" and " in mission(episode)) == (len(episode.subgoals) == 2) for episode in stitched)
    alone = {target(episode): mission(episode) for episode in room}
    named = [mission(episode).split(" and ").index(alone[target(episode)]) for episode in two]
    assert 0.2 < np.mean(named) < 0.8


def test_the_same_seed_stitches_the_same(room, stitched):
    again = extend_episodes([Stitch(60, "and")], SPEC, room, np.random.default_rng(0))
    assert again[: len(room)] == room
    for one, other in zip(stitched, again[len(room) :], strict=True):
        assert one.subgoals == other.subgoals
        assert all(np.array_equal(one.observations[name], other.observations[name]) for name in SPEC.fields)


def test_nothing_is_invented(room, stitched):
    for episode in stitched:
        assert np.isnan(episode.rewards).all()
        assert episode.seed is None
        assert episode.success
        assert not episode.terminations.any()  # as in the demonstrations here
    ended = [replace(one, terminations=np.arange(len(one)) == len(one) - 1) for one in room]
    for episode in Stitch(10, "and").episodes(SPEC, ended, np.random.default_rng(0)):
        assert episode.terminations.tolist() == [False] * (len(episode) - 1) + [True]


def test_missions_that_are_too_long_together_are_not_joined(room):
    short = grid_spec(10, 10, max_words=7)
    cut = [
        replace(one, observations={**one.observations, "mission": one.observations["mission"][:, :7]}) for one in room
    ]
    made = Stitch(20, "and").episodes(short, cut, np.random.default_rng(0))
    assert made
    assert all(len(episode.subgoals) == 1 for episode in made)


def test_what_cannot_be_stitched_is_refused(room):
    rng = np.random.default_rng(0)
    for episodes in (
        get_key(SPEC, 8),  # keys are taken, doors opened
        go_to(SPEC, 8, walls=20),  # every room is another: nobody else was there
        [replace(one, subgoals=()) for one in room],  # nobody knows what was wanted
    ):
        expected = f"5 episodes are to be stitched, and of the {len(episodes)} demonstrations no two"
        with pytest.raises(UserError, match=expected):
            Stitch(5).episodes(SPEC, episodes, rng)
    with pytest.raises(UserError, match="cannot be joined by 'sowie'"):
        Stitch(5, "sowie").episodes(SPEC, room, rng)
    with pytest.raises(UserError, match="'stitch' needs observed states that point at a grid"):
        Stitch(5).episodes(number_spec(), [numbers([0, 1], [0])], rng)
