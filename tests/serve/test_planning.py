"""Plans, episodes and landscapes without a server."""

import io

import pytest
import torch
from PIL import Image

pytest.importorskip("fastapi")

from genplan import planners
from genplan.checkpoint import load_planner, pretrained
from genplan.errors import ExpertFailure, UserError
from genplan.flow import Trace
from genplan.planners.base import LearnedPlanner
from genplan.serve import api, planning, schema
from genplan.tasks.grid import bot_expert
from genplan.types import Plan

ROWS = ["############", "##>>..DGAR##", "##..KY######", "############"]
MAZE = schema.Maze(rows=ROWS, mission="go to the red ball")


def finish(work):
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def learned(method, task):
    return planners.build(method, task.spec, planners.default_settings(method)).eval()


@pytest.mark.parametrize("method", ["BC", "DT", "LEAP", "LEAP-noGC"])
def test_methods_without_denoising_steps_have_one_frame(method):
    task = planning.maze_task(MAZE)
    planner = learned(method, task)
    request = planning.ResolvedRequest(planner, task, 0)
    first, second = finish(planning.make_plans([request, request]))
    assert first.candidates == second.candidates
    assert first.batch_size == 2
    (frame,) = first.candidates[first.selected].frames
    assert len(frame.actions) == len(frame.confidence) > 0
    assert frame.states == [(1, 1, 0)]
    assert (first.candidates[0].executed, first.candidates[0].arrival) == ([], None)
    (episode,) = finish(planning.play_episodes([planning.ResolvedRequest(planner, planning.maze_task(MAZE, 5), 0)]))
    assert len(episode.steps) <= 5
    with pytest.raises(UserError, match="does not predict states"):
        planning.landscape(planner, task, None)


def test_a_goal_outside_the_map_is_refused():
    planner, _ = load_planner(pretrained()["MazeS4G1"])
    task = planning.maze_task(MAZE)
    with pytest.raises(UserError, match=r"the goal \(6, 0\) is outside the map, expected x below 6 and y below 4"):
        planning.landscape(planner.for_spec(task.spec), task, (6, 0))


def test_what_the_actions_do_comes_beside_what_is_planned():
    """The plan walks on before the door is open, and says something of what is behind the arrival."""
    task = planning.maze_task(MAZE)
    planned, actions = [(x, 1, 0) for x in (1, 2, 3, 3, 4, 4)], [2, 2, 5, 2, 0, 0]
    came = [(x, 1, 0) for x in (1, 2, 2, 2, 3)]
    states = [planning.maze_geometry(task).state(*pose) for pose in planned]

    class Planned(LearnedPlanner):
        privileged, keeps_trace, action_steps = False, True, 6

        def __init__(self): ...

        def reset(self, *arguments): ...

        def plan(self, observations, memory, rng, ids, *arguments, **options):
            size = len(ids)
            whole = {"states": torch.tensor([states] * size), "actions": torch.tensor([actions] * size)}
            each = {name: tokens[None] for name, tokens in whole.items()}
            twice = {name: torch.cat([tokens, tokens]) for name, tokens in each.items()}
            trace = Trace(torch.tensor([0.0, 1.0]), twice, each, each, torch.zeros(1, size))
            energies = torch.zeros(size), torch.zeros(size, 1)
            return Plan(whole["actions"], whole, *energies, trace=trace, selected=ids), None

        def observe(self, *arguments): ...

    request = planning.ResolvedRequest(Planned(), task, 0)
    for response in finish(planning.make_plans([request, request])):
        (candidate,) = response.candidates
        assert candidate.frames[-1].states == planned
        assert (candidate.executed, candidate.arrival) == (came, 4)
    (episode,) = finish(planning.play_episodes([request]))
    assert (episode.plans[0].executed, episode.plans[0].arrival) == (came, 4)
    assert [episode.start, *(step.pose for step in episode.steps)] == came
    assert planning.episode_gif(task, episode)


def test_the_expert_may_fail_or_take_too_long(monkeypatch):
    task = planning.maze_task(MAZE)
    assert finish(planning.expert_steps(task)) == 5  # it explores: 3 would do
    monkeypatch.setattr(planning, "EXPERT_SECONDS", 0.0)
    assert finish(planning.expert_steps(task)) is None

    class Failing:
        privileged, action_steps = True, None

        def reset(self, *arguments):
            raise ExpertFailure("lost")

    monkeypatch.setattr(planning, "bot_expert", Failing)
    assert finish(planning.expert_steps(task)) is None


def test_long_gifs_skip_frames(monkeypatch):
    task = planning.maze_task(MAZE)
    (episode,) = finish(planning.play_episodes([planning.ResolvedRequest(bot_expert(), task, 0)]))
    assert episode.success
    assert [change.code for step in episode.steps for change in step.changes] == ["OG"]
    assert Image.open(io.BytesIO(planning.episode_gif(task, episode))).n_frames == len(episode.steps) + 1
    monkeypatch.setattr(planning, "MAX_FRAMES", 2)
    assert Image.open(io.BytesIO(planning.episode_gif(task, episode))).n_frames == 3


def test_routes_are_plain_functions():
    assert api.check(MAZE).possible
    locked = schema.Maze(rows=[row.replace("DG", "LG") for row in ROWS], mission=MAZE.mission)
    assert "out of reach" in api.check(locked).reason
    assert api.maze(schema.MazeRequest(task="KeyCorridorS3R3", seed=2000)).max_steps == 499
