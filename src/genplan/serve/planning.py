"""Requests as batches: plans with all their frames, whole episodes, energy landscapes."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT
from torch import Tensor

from genplan.data.tokens import PlanSpec
from genplan.errors import LostError, UserError
from genplan.flow import Rng, Trace
from genplan.planners.genplan import GenPlan
from genplan.planners.learned import Learned
from genplan.planners.reference import Bot
from genplan.serve import schema
from genplan.tasks.batch import EnvBatch
from genplan.tasks.grid import EMPTY_HANDS, goals, observe
from genplan.tasks.layouts import FixedLayout, layout_text
from genplan.tasks.noise import SlipperyActions
from genplan.tasks.task import Task
from genplan.types import Planner

BOT_SECONDS = 3.0  # of the bot's own thinking about one episode
UNSURE = 1e-4  # probabilities below are drawn alike in a landscape


def task_of(maze: schema.Maze, max_steps: int = 400) -> Task:
    """A maze as a task; a LayoutError tells what is impossible about it."""
    text = "\n".join(maze.rows)
    env = FixedLayout(text, maze.mission, max_steps)
    make = partial(FixedLayout, text, maze.mission, max_steps)
    return Task("the maze", make, env.plan_spec, observe, max_steps, Bot, goals=goals)


@dataclass(frozen=True)
class Wanted:
    """A request, with what it resolves to."""

    planner: Planner
    task: Task
    seed: int
    execute: int = 1
    slip: float = 0.0

    @property
    def maze(self) -> tuple[Any, ...]:
        """Rows, mission and step limit: equal where the mazes are."""
        found: tuple[Any, ...] = self.task.make.args  # type: ignore[attr-defined]
        return found


def gathered(requests: Sequence[Wanted], wrap: Any = None) -> tuple[EnvBatch, Tensor]:
    """The mazes of several requests as one batch, and their seeds."""
    seeds = [request.seed for request in requests]
    envs = [request.task.new_env() for request in requests]
    return EnvBatch(requests[0].task, seeds, wrap, envs), torch.tensor(seeds)


def with_options(planner: Learned, options: schema.Options) -> Learned:
    """The planner, used as asked for; options that its method does not have are told."""
    chosen = options.model_dump(exclude_none=True)
    return planner.with_options(**chosen) if chosen else planner


def _places(spec: PlanSpec, tokens: Tensor) -> list[schema.Place]:
    return [spec.position(int(token)) for token in tokens.flatten().tolist()]


def _poses(spec: PlanSpec, tokens: Tensor) -> list[schema.Pose]:
    return [spec.pose(min(int(token), spec.num_states - 1)) for token in tokens.tolist()]


# --- plans -----------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def plans(requests: Sequence[Wanted]) -> Generator[None, None, list[schema.PlanAnswer]]:
    """Plans of one planner for mazes of one size, with their frames."""
    began = time.perf_counter()
    planner = requests[0].planner
    assert isinstance(planner, Learned)
    batch, seeds = gathered(requests)
    rows = torch.arange(len(batch))
    seen, oracle = batch.observations(), batch.oracle
    rng = Rng.of(0, seeds, torch.zeros_like(rows))
    memory = planner.start(seen, oracle)
    if isinstance(planner, GenPlan):
        plan, _ = planner.plan(seen, memory, rng, rows, oracle, keep_trace=True)
    else:
        plan, _ = planner.plan(seen, memory, rng, rows, oracle)
    spec, answers = planner.spec, []
    for row in rows.tolist():
        candidates, chosen = [], 0
        if plan.trace is not None and plan.energies is not None:
            energies = plan.energies[row].tolist()
            candidates = [
                _candidate(spec, plan.trace, row * len(energies) + place, int(seen.state[row]), energy)
                for place, energy in enumerate(energies)
            ]
            chosen = energies.index(min(energies))
        else:  # a method whose plans do not take shape bit by bit
            sure = [1.0] * plan.actions.shape[1] if plan.confidence is None else plan.confidence[row].tolist()
            energy = 0.0 if plan.energy is None else float(plan.energy[row])
            pose = spec.pose(int(seen.state[row]))
            frame = schema.Frame(
                t=1.0, actions=plan.actions[row].tolist(), confidence=sure, path=[pose], goals=[], energy=energy
            )
            candidates = [schema.Candidate(frames=[frame], energy=energy)]
        taken = 1000 * (time.perf_counter() - began)
        answers.append(
            schema.PlanAnswer(candidates=candidates, chosen=chosen, milliseconds=round(taken, 1), batch=len(batch))
        )
    return answers
    yield  # never reached: a plan is made in one go


def _candidate(spec: PlanSpec, trace: Trace, row: int, state: int, energy: float) -> schema.Candidate:
    calls = len(trace.t) - 1
    # What the network expects at every call, and at last what came out.
    expected = {
        name: torch.cat([trace.predicted[name][:, row], trace.tokens[name][-1:, row]]) for name in trace.predicted
    }
    expected["states"][:, 0] = state
    times, actions = trace.t.tolist(), trace.tokens["actions"][:, row].tolist()
    sure, energies = trace.confidence["actions"][:, row].tolist(), trace.energy[:, row].tolist()
    paths = expected["states"].clamp(max=spec.num_states - 1).tolist()
    aims = expected["goals"][:, 0].flatten(1).tolist() if "goals" in expected else [[]] * (calls + 1)
    frames = [
        schema.Frame(
            t=round(times[call], 4),
            actions=[token if token < spec.num_actions else None for token in actions[call]],
            confidence=[round(value, 4) for value in sure[min(call, calls - 1)]],
            path=[spec.pose(token) for token in paths[call]],
            goals=[spec.position(token) for token in dict.fromkeys(aims[call])],
            energy=round(energies[min(call, calls - 1)], 4),
        )
        for call in range(calls + 1)
    ]
    return schema.Candidate(frames=frames, energy=round(energy, 4))


# --- episodes --------------------------------------------------------------------------------------------------------


def bot_steps(task: Task) -> Generator[None, None, int | None]:
    """How many steps the bot needs; None where it fails or takes long (it is made for BabyAI's own rooms)."""
    batch, row = EnvBatch(task, [0]), torch.zeros(1, dtype=torch.int64)
    bot, oracle = Bot(), batch.oracle
    memory = bot.start(batch.observations(), oracle)
    steps, seconds = 0, 0.0
    while seconds < BOT_SECONDS:
        began = time.perf_counter()
        try:
            plan, memory = bot.plan(batch.observations(), memory, Rng.of(0, row), row, oracle)
        except LostError:
            return None
        outcome = batch.step(row, plan.actions[:, 0])
        memory = bot.observe(memory, plan.actions[:, 0], batch.observations(), row)
        steps += 1
        if outcome.done[0]:
            return steps if outcome.success[0] else None
        seconds += time.perf_counter() - began
        yield
    return None


def episodes(requests: Sequence[Wanted]) -> Generator[None, None, list[schema.EpisodeAnswer]]:
    """Whole episodes, step by step, of one planner in mazes of one size."""
    began = time.perf_counter()
    planner, task, slip = requests[0].planner, requests[0].task, requests[0].slip
    batch, seeds = gathered(requests, partial(SlipperyActions, probability=slip) if slip else None)
    spec = task.spec
    running = torch.arange(len(requests))
    oracle = batch.oracle
    memory = planner.start(batch.observations(), oracle)
    starts = [spec.pose(int(seen["state"])) for seen in batch.current]
    steps: list[list[schema.Step]] = [[] for _ in requests]
    made: list[list[schema.ShortPlan]] = [[] for _ in requests]
    queue: list[list[int]] = [[] for _ in requests]
    done_of_plan = [0] * len(requests)
    success = [False] * len(requests)
    while len(running):
        needy = torch.tensor([row for row in running.tolist() if not queue[row]], dtype=torch.int64)
        if len(needy):
            numbers = torch.tensor([len(made[row]) for row in needy.tolist()])
            rng = Rng.of(0, seeds[needy], numbers)
            plan, memory = planner.plan(batch.observations(needy), memory, rng, needy, oracle)
            for place, row in enumerate(needy.tolist()):
                short = schema.ShortPlan(
                    actions=plan.actions[place].tolist(),
                    path=[] if plan.states is None else _poses(spec, plan.states[place]),
                    goals=[] if plan.goals is None else list(dict.fromkeys(_places(spec, plan.goals[place, 0]))),
                    energy=None if plan.energy is None else round(float(plan.energy[place]), 3),
                )
                made[row].append(short)
                queue[row] = short.actions[: requests[row].execute]
                done_of_plan[row] = 0
        actions = torch.tensor([queue[row].pop(0) for row in running.tolist()])
        before = [batch.current[row] for row in running.tolist()]
        outcome = batch.step(running, actions)
        memory = planner.observe(memory, actions, batch.observations(running), running)
        for place, row in enumerate(running.tolist()):
            now, number = batch.current[row], len(made[row]) - 1
            done_of_plan[row] += 1
            path = made[row][number].path
            steps[row].append(
                schema.Step(
                    action=int(actions[place]),
                    pose=spec.pose(int(now["state"])),
                    expected=path[done_of_plan[row]] if done_of_plan[row] < len(path) else None,
                    carrying=_carried(now["features"]),
                    changes=_changes(before[place]["map"], now["map"]),
                    plan=number,
                )
            )
            success[row] = outcome.success[place]
        running = running[torch.tensor([not done for done in outcome.done])]
        yield
    bots: dict[Any, int | None] = {}
    for request in requests:
        if request.maze not in bots:
            bots[request.maze] = yield from bot_steps(request.task)
    taken = round(1000 * (time.perf_counter() - began), 1)
    return [
        schema.EpisodeAnswer(
            start=starts[row], steps=steps[row], plans=made[row], success=success[row],
            bot_steps=bots[requests[row].maze], milliseconds=taken,
        )
        for row in range(len(requests))
    ]  # fmt: skip


def _carried(features: Any) -> str:
    if tuple(int(number) for number in features) == EMPTY_HANDS:
        return ""
    kind, colour = (int(number) for number in features)
    return f"{IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}"


def _changes(before: Any, after: Any) -> list[schema.Change]:
    found = np.argwhere((before != after).any(-1))
    if not len(found):
        return []
    rows = layout_text(after, (-1, -1, 0)).split("\n")
    return [schema.Change(place=(int(x), int(y)), code=rows[y][2 * x : 2 * x + 2]) for x, y in found]


# --- landscapes ------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def landscape(planner: Learned, task: Task, goal: schema.Place | None) -> schema.LandscapeAnswer:
    """The energy of moving to each cell: −log of its largest probability at any step of the plan, from pure noise."""
    if not isinstance(planner, GenPlan):
        raise UserError("this method does not predict states, so it has no landscape; choose a GenPlan planner")
    spec, row = planner.spec, torch.zeros(1, dtype=torch.int64)
    batch = EnvBatch(task, [0])
    seen = batch.observations()
    context, past = planner.recall(seen, planner.start(seen), row)
    x_0 = planner.path.noise(spec.shapes(planner.config.horizon), Rng.of(0, row))
    x_0["states"][:, 0] = seen.state
    if goal is not None and "goals" in x_0:
        width, height = task.spec.map_shape or (0, 0)
        if not (0 <= goal[0] < width and 0 <= goal[1] < height):
            raise UserError(f"the goal {tuple(goal)} is outside the map, expected x below {width} and y below {height}")
        x_0["goals"][:] = spec.cell(*goal)
    logits = planner.network(context, seen.features, past, 1)(x_0, torch.zeros(1))["states"]
    chance = logits.softmax(-1).reshape(-1, spec.num_cells, spec.num_headings).sum(-1)[1:].amax(0)
    energy = -chance.clamp(min=UNSURE).log()
    width, height = task.spec.map_shape or (0, 0)
    walls = batch.current[0]["map"][:, :, 0] == 2
    return schema.LandscapeAnswer(
        energy=[
            [None if walls[x, y] else round(float(energy[spec.cell(x, y)]), 3) for x in range(width)]
            for y in range(height)
        ]
    )
