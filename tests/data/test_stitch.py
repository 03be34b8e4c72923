"""Stitched demonstrations: nobody walked them, yet every step happened, and they do what their missions say."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from genplan import runs
from genplan.config import METHODS, TrainConfig
from genplan.data.demos import Recipe, collect
from genplan.data.stitch import Stitcher
from genplan.errors import UserError
from genplan.tasks.layouts import FixedLayout


@pytest.fixture(scope="module")
def room(datasets):
    return collect(Recipe("LocS10N1", 150), workers=1)


@pytest.fixture(scope="module")
def stitched(room):
    return Stitcher(room.spec, room.episodes, "and").make(60, np.random.default_rng(0))


def test_a_stitched_demonstration_can_be_walked_and_does_what_it_was_told(room, stitched):
    for episode in stitched:
        env = FixedLayout.of(episode.maps[0], room.spec.pose(episode.states[0]), episode.mission)
        env.reset()
        ends = []
        reached = []
        for step, action in enumerate(episode.actions):
            observation, _, terminated, _, _ = env.step(action)
            assert room.spec.state(*observation["pose"]) == episode.states[step + 1]
            assert np.array_equal(observation["image"], episode.maps[step + 1])
            ends.append(terminated)
            if step in [goal.step for goal in episode.subgoals]:
                reached.append(room.spec.cell(*env.front_pos))
        assert ends == [False] * (len(ends) - 1) + [True]
        assert reached == [goal.token for goal in episode.subgoals]


def test_every_step_happened_in_a_demonstration(room, stitched):
    happened = {
        (before, action, after)
        for episode in room.episodes
        for action, (before, after) in zip(episode.actions, pairwise(episode.states), strict=True)
    }
    for episode in stitched:
        assert set(zip(episode.states[:-1], episode.actions, episode.states[1:], strict=True)) <= happened


def test_some_have_bends_and_some_two_errands_in_any_order(room, stitched):
    assert len(stitched) > 50
    assert max(map(len, stitched)) > max(map(len, room.episodes))
    ways = {tuple(episode.states) for episode in room.episodes}
    assert sum(tuple(episode.states) in ways for episode in stitched) < 6  # somebody may have walked so by chance
    two = [episode for episode in stitched if len(episode.subgoals) == 2]
    assert 0.3 < len(two) / len(stitched) <= 0.55
    assert all((" and " in episode.mission) == (len(episode.subgoals) == 2) for episode in stitched)
    named = []
    for episode in two:
        first = episode.maps[0][room.spec.position(episode.subgoals[0].token)]
        alone = {tuple(e.maps[0][room.spec.position(e.subgoals[0].token)]): e.mission for e in room.episodes}
        named.append(episode.mission.split(" and ").index(alone[tuple(first)]))
    assert 0.2 < np.mean(named) < 0.8


def test_the_same_seed_stitches_the_same(room, stitched):
    again = Stitcher(room.spec, room.episodes, "and").make(60, np.random.default_rng(0))
    for one, other in zip(stitched, again, strict=True):
        assert (one.mission, one.subgoals) == (other.mission, other.subgoals)
        assert np.array_equal(one.states, other.states)


def test_what_cannot_be_stitched_is_left_alone(maze, blocked, room):
    rng = np.random.default_rng(0)
    assert Stitcher(blocked.spec, blocked.episodes).make(5, rng) == []  # keys are taken, doors opened
    assert Stitcher(maze.spec, maze.episodes).make(5, rng) == []  # every maze is another: nobody else was there
    bare = [dataclasses.replace(episode, maps=None) for episode in room.episodes]
    assert Stitcher(room.spec, bare).make(5, rng) == []


def test_missions_that_are_too_long_together_are_not_joined(room):
    short = dataclasses.replace(room.spec, max_words=10)
    made = Stitcher(short, room.episodes, "and").make(20, np.random.default_rng(0))
    assert made
    assert all(len(episode.subgoals) == 1 for episode in made)


def test_a_training_that_cannot_stitch_says_so(maze, tmp_path):
    training = TrainConfig(steps=1, stitch=10)
    with pytest.raises(UserError, match="stitch is 10, and of the 28 demonstrations of MazeS4G1 no two"):
        runs.begin(tmp_path, "MazeS4G1", METHODS["BC"], training, maze.name)


def test_a_word_that_nobody_knows_is_refused(room):
    with pytest.raises(UserError, match="cannot be joined by 'sowie'"):
        Stitcher(room.spec, room.episodes, "sowie")
    with pytest.raises(UserError, match="join is 'and' and stitch is 0"):
        TrainConfig(join="and")
    with pytest.raises(UserError, match="stitch is -1"):
        TrainConfig(stitch=-1)
