"""Requests as batches: plans with all their frames, whole episodes, energy landscapes; and episodes as GIF."""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from genplan.envs.babyai import ACTION_NAMES, DIRECTIONS, EMPTY, babyai_spec
from genplan.envs.grid import carried_name
from genplan.envs.layouts import FixedLayout, layout_text, parse_object
from genplan.envs.wrappers import SlipperyActions
from genplan.errors import ExpertFailure, UserError
from genplan.flow import Rng, Trace
from genplan.planners.base import LearnedPlanner
from genplan.render import frames
from genplan.rollout import EnvBatch, FixedPlan, Steps, Wrapper, open_loop, rollout
from genplan.serve import schema
from genplan.spec import Geometry
from genplan.tasks.grid import bot_expert, observe, privileged_goals
from genplan.types import OpenLoop, Plan, Planner, Task

EXPERT_SECONDS = 3.0  # that the expert may plan in one episode
MIN_PROB = 1e-4  # smaller probabilities look alike in a landscape
MAX_FRAMES = 300  # of a GIF
LABELED_ACTIONS = 10  # of a plan, under a frame
NO_POSE = (-1, -1, 0)  # outside the grid: no agent in the text
WALL = 2  # the number of its type in MiniGrid


def maze_task(maze: schema.Maze, max_steps: int = 400) -> Task:
    """A maze as a task; a LayoutError says why a maze cannot be solved."""
    make = partial(FixedLayout, "\n".join(maze.rows), maze.mission, max_steps)
    env = make()
    spec = babyai_spec(env.width, env.height)
    return Task("maze", make, spec, observe, max_steps, expert=bot_expert, privileged_goals=privileged_goals)


def maze_geometry(task: Task) -> Geometry:
    width, height = task.spec.fields["grid"].shape
    return Geometry(width, height, DIRECTIONS)


@dataclass(frozen=True)
class ResolvedRequest:
    """A request, with the planner and the task that it names."""

    planner: Planner
    task: Task
    seed: int
    action_steps: int | None = None
    slip: float = 0.0


def env_batch(requests: Sequence[ResolvedRequest], wrapper: Wrapper | None = None) -> EnvBatch:
    """The mazes of several requests, all of one size, as one batch."""
    envs = [request.task.make_env() for request in requests]
    return EnvBatch(requests[0].task, [request.seed for request in requests], wrapper, envs)


def _positions(geometry: Geometry, goals: Sequence[int]) -> list[schema.Position]:
    return [geometry.position(goal) for goal in dict.fromkeys(goals)]


def milliseconds(start_time: float) -> float:
    return round(1000 * (time.perf_counter() - start_time), 1)


@torch.inference_mode()
def make_plans(requests: Sequence[ResolvedRequest]) -> Generator[None, None, list[schema.PlanResponse]]:
    """Plans of one learned planner for mazes of one size, with their frames."""
    start_time = time.perf_counter()
    planner, batch = requests[0].planner, env_batch(requests)
    assert isinstance(planner, LearnedPlanner), "only learned planners are asked for plans"
    geometry, ids = maze_geometry(batch.task), torch.arange(len(batch))
    observations, oracle = batch.observations(), batch.oracle if planner.privileged else None
    rng = Rng.of(0, torch.tensor(batch.seeds), torch.zeros_like(ids))
    memory = planner.reset(observations, oracle)
    plan, _ = planner.plan(observations, memory, rng, ids, oracle, keep_trace=planner.keeps_trace)
    executed = [] if plan.trace is None else _execute_candidates(plan.trace, batch)
    responses = []
    for row in ids.tolist():
        state = int(batch.current[row]["state"])
        if plan.trace is not None and plan.candidate_energies is not None and plan.selected is not None:
            energies = plan.candidate_energies[row].tolist()
            first = row * len(energies)
            candidates = [_candidate(geometry, plan.trace, first + index, state, energy, executed[first + index])
                          for index, energy in enumerate(energies)]  # fmt: skip
            selected = int(plan.selected[row]) - row * len(energies)
        else:
            candidates, selected = [_single_frame(plan, row, geometry.pose(state))], 0
        response = schema.PlanResponse(candidates=candidates, selected=selected, milliseconds=milliseconds(start_time),
                                       batch_size=len(batch))  # fmt: skip
        responses.append(response)
    return responses
    yield  # never reached: plans are made in one go


def _single_frame(plan: Plan, row: int, pose: schema.Pose) -> schema.Candidate:
    """A plan of a method without denoising steps."""
    confidence = [1.0] * plan.actions.shape[1] if plan.confidence is None else plan.confidence[row].tolist()
    energy = 0.0 if plan.energy is None else float(plan.energy[row])
    actions = plan.actions[row].tolist()
    frame = schema.Frame(t=1.0, actions=actions, confidence=confidence, states=[pose], goals=[], energy=energy)
    return schema.Candidate(frames=[frame], energy=energy, executed=[], arrival=None)


def _execute_candidates(trace: Trace, batch: EnvBatch) -> Sequence[OpenLoop | None]:
    """What all candidates of all rows do; None of a method that predicts no states."""
    final = {name: tokens[-1] for name, tokens in trace.tokens.items()}
    rows = torch.arange(len(batch)).repeat_interleave(len(final["actions"]) // len(batch))
    return open_loop(FixedPlan(Plan(final["actions"], final)), batch.copy(rows)) or [None] * len(rows)


def _executed(geometry: Geometry, state: int, found: OpenLoop | None) -> dict[str, Any]:
    """The fields of `schema.Executed`."""
    states = [] if found is None else [state, *found.came.tolist()]
    return {"executed": list(map(geometry.pose, states)), "arrival": found and found.arrival}


def _candidate(
    geometry: Geometry, trace: Trace, row: int, state: int, energy: float, executed: OpenLoop | None
) -> schema.Candidate:
    # The most likely tokens at every call, and the final ones.
    expected = {name: torch.cat([one[:, row], trace.tokens[name][-1:, row]]) for name, one in trace.predicted.items()}
    expected["states"][:, 0] = state
    times, actions, states = trace.t.tolist(), trace.tokens["actions"][:, row].tolist(), expected["states"].tolist()
    confidence, energies = trace.confidence["actions"][:, row].tolist(), trace.energy[:, row].tolist()
    goals = expected["goals"][:, 0].flatten(1).tolist() if "goals" in expected else [[]] * len(times)
    frames_ = [
        schema.Frame(
            t=round(times[call], 4),
            actions=[token if token < len(ACTION_NAMES) else None for token in actions[call]],
            confidence=[round(value, 4) for value in confidence[min(call, len(times) - 2)]],
            states=[geometry.pose(token) for token in states[call]],
            goals=_positions(geometry, goals[call]),
            energy=round(energies[min(call, len(times) - 2)], 4),
        )
        for call in range(len(times))
    ]
    return schema.Candidate(frames=frames_, energy=round(energy, 4), **_executed(geometry, state, executed))


def expert_steps(task: Task) -> Generator[None, None, int | None]:
    """How many steps the expert needs; None where it fails or takes too long (it is made for BabyAI's own rooms)."""
    batch, num_steps, seconds, start_time = EnvBatch(task, [0]), 0, 0.0, time.perf_counter()
    try:
        for steps in rollout(bot_expert(), batch):
            num_steps += 1
            seconds += time.perf_counter() - start_time
            if steps.result.done[0]:
                return num_steps if steps.result.success[0] else None
            if seconds >= EXPERT_SECONDS:
                return None
            yield
            start_time = time.perf_counter()
    except ExpertFailure:
        return None
    return None


def play_episodes(requests: Sequence[ResolvedRequest]) -> Generator[None, None, list[schema.EpisodeResponse]]:
    """Whole episodes of one planner in mazes of one size; yields after every step."""
    start_time = time.perf_counter()
    planner, slip = requests[0].planner, requests[0].slip
    batch = env_batch(requests, partial(SlipperyActions, probability=slip) if slip else None)
    geometry = maze_geometry(batch.task)
    starts = [geometry.pose(int(observation["state"])) for observation in batch.current]
    episodes = [schema.EpisodeResponse(start=pose, steps=[], plans=[], success=False, expert_steps=None, milliseconds=0)
                for pose in starts]  # fmt: skip
    for steps in rollout(planner, batch, action_steps=requests[0].action_steps, execute=True):
        if steps.plan is not None:
            for index, row in enumerate(steps.planned_ids.tolist()):
                executed = None if steps.executed is None else steps.executed[index]
                episodes[row].plans.append(_plan_summary(geometry, steps.plan, index, executed))
        for index, row in enumerate(steps.ids.tolist()):
            episodes[row].steps.append(_step(geometry, steps, index, batch.current[row], episodes[row].plans))
            episodes[row].success = steps.result.success[index]
        yield
    reference: dict[Hashable, int | None] = {}
    for request, episode in zip(requests, episodes, strict=True):
        maze = request.task.make.args  # type: ignore[attr-defined]  # its text, mission and limit of steps
        if maze not in reference:
            reference[maze] = yield from expert_steps(request.task)
        episode.expert_steps = reference[maze]
    for episode in episodes:
        episode.milliseconds = milliseconds(start_time)
    return episodes


def _plan_summary(geometry: Geometry, plan: Plan, row: int, executed: OpenLoop | None) -> schema.PlanSummary:
    states = [] if plan.states is None else plan.states[row].tolist()
    return schema.PlanSummary(
        actions=plan.actions[row].tolist(),
        states=[geometry.pose(token) for token in states],
        goals=[] if plan.goals is None else _positions(geometry, plan.goals[row, 0].flatten().tolist()),
        energy=None if plan.energy is None else round(float(plan.energy[row]), 3),
        **_executed(geometry, states[0] if states else 0, executed),
    )


def _step(
    geometry: Geometry, steps: Steps, index: int, observation: Any, plans: Sequence[schema.PlanSummary]
) -> schema.Step:
    number, planned = steps.plan_index[index], steps.plan_step[index] + 1
    states = plans[number].states
    return schema.Step(
        action=int(steps.actions[index]),
        pose=geometry.pose(int(observation["state"])),
        expected=states[planned] if planned < len(states) else None,
        carrying=carried_name(observation["carrying"]),
        changes=_changes(steps.before[index]["grid"], observation["grid"]),
        plan=number,
    )


def _changes(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> list[schema.CellChange]:
    positions = np.argwhere((before != after).any(-1))
    if not len(positions):
        return []
    rows = layout_text(after, NO_POSE).split("\n")
    return [schema.CellChange(position=(int(x), int(y)), code=rows[y][2 * x : 2 * x + 2]) for x, y in positions]


def episode_gif(task: Task, episode: schema.EpisodeResponse) -> bytes:
    """An episode with the plan of each step drawn over it; of a long one, every second step, or third, and so on."""
    return frames.gif(_episode_frames(task, episode, every=-(-len(episode.steps) // MAX_FRAMES)))


def _episode_frames(task: Task, episode: schema.EpisodeResponse, every: int) -> Iterator[Image.Image]:
    geometry = maze_geometry(task)
    image, pose = np.array(task.make_env().reset(seed=0)[0]["image"]), episode.start
    begun: dict[int, int] = {}  # at which step each plan was made
    for number, step in enumerate(episode.steps):
        done = number - begun.setdefault(step.plan, number)
        if number % every == 0:
            plan = episode.plans[step.plan]
            states, came = ([geometry.state(*one) for one in poses[done:]] for poses in (plan.states, plan.executed))
            goals = [geometry.cell(*position) for position in plan.goals]
            labels = [ACTION_NAMES[action] for action in plan.actions[:LABELED_ACTIONS]]
            left = None if plan.arrival is None else plan.arrival - done
            frame = frames.draw_path(frames.draw_grid(image, pose), task.spec, states, goals, (), came, left)
            yield frames.add_caption(frame, labels, [k == done for k in range(len(labels))], f"step {number}")
        pose = step.pose
        for change in step.changes:
            cell = parse_object(change.code)
            image[change.position] = (EMPTY, 0, 0) if cell is None else cell.encode()
    outcome = f"{'solved' if episode.success else 'not solved'} after {len(episode.steps)} steps"
    yield frames.add_caption(frames.draw_grid(image, pose), [], [], outcome)


def landscape(planner: LearnedPlanner, task: Task, goal: schema.Position | None) -> schema.LandscapeResponse:
    """The energy of moving to each cell: −log of its largest probability at any step of the plan, from pure noise."""
    batch, geometry = EnvBatch(task, [0]), maze_geometry(task)
    width, height, directions = geometry
    if goal is not None and not (0 <= goal[0] < width and 0 <= goal[1] < height):
        raise UserError(f"the goal {tuple(goal)} is outside the map, expected x below {width} and y below {height}")
    probs = planner.state_probs(batch.observations(), None if goal is None else geometry.cell(*goal))
    if probs is None:
        raise UserError("this method does not predict states, so it has no landscape; choose a GenPlan planner")
    cells = probs.reshape(-1, geometry.num_cells, directions).sum(-1)[1:].amax(0)
    energy = -cells.clamp(min=MIN_PROB).log().reshape(height, width)
    walls = batch.current[0]["grid"][..., 0].T == WALL
    return schema.LandscapeResponse(energy=[
        [None if wall else round(value, 3) for wall, value in zip(*row, strict=True)]
        for row in zip(walls.tolist(), energy.tolist(), strict=True)
    ])  # fmt: skip
