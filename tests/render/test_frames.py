"""Animations: the denoising of a plan, and episodes, with and without a grid."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from genplan import planners, policy, tasks
from genplan.envs.grid import render_grid
from genplan.errors import UserError
from genplan.planners.reference import random_policy
from genplan.render import frames
from genplan.rollout import play


@pytest.fixture(scope="module")
def maze_policy():
    return policy.load("pretrained:MazeS4G1")


def test_the_denoising_of_a_plan(maze_policy):
    task = maze_policy.task
    env = task.make_env()
    observation = task.observe(env, env.reset(seed=2000)[0])
    maze_policy.reset()
    trace = maze_policy.plan(observation, iterations=4).trace
    frame = frames.render_frame(task, env, observation)
    assert frame.size == (frames.MAX_SIDE, frames.MAX_SIDE)
    pictures = frames.plan_frames(task.spec, frame, observation, trace, mask=task.spec.actions.n)
    assert len(pictures) == 5
    assert pictures[0].size == (frame.width, frame.height + frames.CAPTION_HEIGHT)
    assert np.array(pictures[0]).tobytes() != np.array(pictures[-1]).tobytes()


def test_an_episode_is_that_of_an_evaluation(maze_policy):
    planner, task = maze_policy.planner, maze_policy.task
    (rollout,) = play(planner, task, [2000])
    pictures, outcome = frames.episode_frames(planner, task, 2000)
    assert len(pictures) == rollout.num_steps + 1
    assert outcome == f"solved in {rollout.num_steps} steps"
    first, outcome = frames.episode_frames(planner, task, 2000, action_steps=2, limit=3)
    assert len(first) == 4
    assert outcome == "its first 3 steps"
    assert Image.open(io.BytesIO(frames.gif(first))).n_frames == 4


def test_what_comes_before_is_slower():
    pictures = [Image.new("RGB", (4, 4), color) for color in ("red", "blue", "green", "white")]
    for before, durations in ((2, [700, 1600, 350, 1600]), (0, [350, 350, 350, 1600]), (4, [700, 700, 700, 1600])):
        animation = Image.open(io.BytesIO(frames.gif(pictures[before:], pictures[:before])))
        found = []
        for number in range(animation.n_frames):
            animation.seek(number)
            found.append(animation.info["duration"])
        assert found == durations


def test_paths_and_goals_are_drawn(maze_policy):
    spec = maze_policy.task.spec
    env = maze_policy.task.make_env()
    raw, _ = env.reset(seed=2000)
    blank = frames.draw_grid(raw["image"], raw["pose"])
    tile = frames.MAX_SIDE // 10
    assert (np.array(blank) == render_grid(raw["image"], raw["pose"], tile)).all()
    geometry = spec.geometry
    states = [geometry.state(1, 1, 0), geometry.state(2, 1, 0), geometry.state(2, 2, 1)]
    drawn = np.array(frames.draw_path(blank, spec, states, [geometry.cell(3, 3)]))
    changed = (drawn != np.array(blank)).any(-1)
    assert changed[tile : 2 * tile, 2 * tile : 3 * tile].any()
    assert changed[3 * tile : 4 * tile, 3 * tile : 4 * tile].any()
    assert not changed[5 * tile :].any()
    assert (np.array(frames.draw_path(blank, spec, [], [])) == np.array(blank)).all()
    # What the actions do where it differs, and what is behind the arrival; what agrees changes nothing.
    same = frames.draw_path(blank, spec, states, [geometry.cell(3, 3)], executed=states, arrival=2)
    assert (np.array(same) == drawn).all()
    apart = np.array(frames.draw_path(blank, spec, states, [], executed=[states[0], states[0]], arrival=1))

    def has_color(x, y, color):
        return bool((apart[y * tile : (y + 1) * tile, x * tile : (x + 1) * tile] == color).all(-1).any())

    assert has_color(1, 1, frames.EXECUTED_COLOR)
    assert has_color(2, 1, frames.PATH_COLOR)
    assert has_color(2, 2, frames.MUTED)
    assert not has_color(2, 2, frames.PATH_COLOR)


def test_tasks_without_a_grid_are_drawn_by_their_environment():
    task = tasks.task_from_gym("FrozenLake-v1", render_mode="rgb_array", is_slippery=False)
    planner = random_policy("uniform", task.spec.actions, None)
    pictures, outcome = frames.episode_frames(planner, task, 1, limit=2)
    assert len(pictures) == 3
    assert pictures[0].height > frames.CAPTION_HEIGHT
    assert "steps" in outcome or outcome == "not solved"
    blind = tasks.task_from_gym("FrozenLake-v1", render_mode="ansi")
    with pytest.raises(UserError, match="render_mode of its environment is ansi, expected rgb_array"):
        frames.episode_frames(planner, blind, 1)


def test_continuous_actions_and_returns():
    task = replace(tasks.task_from_gym("Pendulum-v1", render_mode="rgb_array"), max_steps=3)
    planner = planners.build("GenPlan-M", task.spec, planners.default_settings("GenPlan-M")).eval()
    planner.codec.fit(torch.linspace(-2, 2, 50)[:, None])
    pictures, outcome = frames.episode_frames(planner, task, 1, action_steps=2)
    assert len(pictures) == 4
    assert outcome.startswith("return -")
    own = policy.Policy(planner, task, {"method": "GenPlan-M"})
    env = task.make_env()
    observation = task.observe(env, env.reset(seed=0)[0])
    trace = own.plan(observation, iterations=3).trace
    frame = frames.render_frame(task, env, observation)
    codes = frames.plan_frames(task.spec, frame, observation, trace, mask=planner.codec.stream.size)
    assert len(codes) == 4


def test_planned_actions_are_drawn_where_they_lie():
    pytest.importorskip("gym_pusht")
    task = tasks.get("PushT")
    blank = Image.new("RGB", (100, 100), "white")
    drawn = np.array(frames.draw_actions(blank, task, np.array([[51.2, 51.2], [460.8, 51.2]])))
    changed = (drawn != 255).any(-1)
    assert changed[10, 10:90].all()
    assert not changed[20:].any()
    assert drawn[10, 8].sum() < drawn[10, 92].sum()  # what is further ahead is fainter
    other = tasks.get("Kitchen")
    assert frames.draw_actions(blank, other, np.zeros((2, 9))) is blank


def test_an_episode_of_a_robot_is_thinned_out_and_small():
    pytest.importorskip("gym_pusht")
    task = tasks.get("PushT")
    pictures, outcome = frames.episode_frames(random_policy("uniform", task.spec.actions, None), task, 1)
    assert len(pictures) == frames.MAX_PICTURES + 1
    assert outcome == "not solved"
    assert len(frames.gif(pictures)) < 1_000_000


def test_without_a_renderer_one_is_told_what_to_do(monkeypatch):
    pytest.importorskip("gymnasium_robotics")
    task = tasks.get("Kitchen")
    env = task.make_env()
    observation = task.observe(env, env.reset(seed=0)[0])
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(
        UserError, match=r"Kitchen cannot be drawn: .*; install libegl1 .*; .* leave out --gif"
    ) as caught:
        frames.render_frame(task, env, observation)
    assert "\n" not in str(caught.value)
