"""PushT on the page: chunks that a planner considers in a state, and whole episodes that begin in it."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from genplan import tasks
from genplan.envs import ROBOTS, make_robot
from genplan.flow import Rng
from genplan.planners.base import LearnedPlanner
from genplan.planners.memory import PlannerMemory
from genplan.rollout import rollout
from genplan.serve import schema
from genplan.serve.planning import ResolvedRequest, env_batch, milliseconds
from genplan.tasks.robots import OBSERVED
from genplan.types import Observations, Plan, Task

NAME = "PushT"


def pusht_task(start: schema.Start, max_steps: int = 300) -> Task:
    """PushT as a task whose episodes begin in a state."""
    return replace(tasks.get(NAME), make=partial(make_robot, NAME, start=start), max_steps=max_steps)


def first_state(seed: int) -> schema.StartResponse:
    """Of the task's own episode of a seed."""
    env = make_robot(NAME)
    try:
        return schema.StartResponse(start=_state(env.reset(seed=seed)[0]), max_steps=ROBOTS[NAME].max_steps)
    finally:
        env.close()


def _state(observation: Any) -> schema.State:
    from genplan.envs.pusht import state_of  # not above: mazes are played without the extra `robots` too

    agent_x, agent_y, x, y, angle = state_of(observation).tolist()
    return (round(agent_x, 2), round(agent_y, 2), round(x, 2), round(y, 2), round(angle, 4))


def _points(actions: Tensor) -> list[schema.Point]:
    """Of a chunk [H, 2]."""
    return [(round(x, 1), round(y, 1)) for x, y in actions.tolist()]


def _energy(energies: Tensor | None, index: int) -> float | None:
    return None if energies is None else round(float(energies[index]), 3)


@torch.inference_mode()
def make_plans(
    requests: Sequence[ResolvedRequest], samples: int
) -> Generator[None, None, list[schema.PushTPlanResponse]]:
    """For every request several plans of one learned planner; the first is what its episode begins with, and the
    others have the random draws of its later plans."""
    start_time = time.perf_counter()
    planner, batch, number = requests[0].planner, env_batch(requests), len(requests)
    assert isinstance(planner, LearnedPlanner), "only learned planners are asked for plans"
    rows = torch.arange(number).repeat_interleave(samples)
    ids, observations = torch.arange(len(rows)), batch.observations(rows)
    memory = planner.reset(observations)
    rng = Rng.of(0, torch.tensor(batch.seeds)[rows], torch.arange(samples).repeat(number))
    plan, _ = planner.plan(observations, memory, rng, ids, keep_trace=planner.keeps_trace)
    chunks, energies, selected, frames = _considered(planner, plan, observations, memory)
    per_request, size = len(chunks) // number, len(chunks) // len(rows)
    responses = []
    for first in range(0, len(chunks), per_request):
        candidates = [schema.Chunk(actions=_points(chunks[row]), energy=_energy(energies, row))
                      for row in range(first, first + per_request)]  # fmt: skip
        best = int(selected[first // size])
        responses.append(schema.PushTPlanResponse(
            candidates=candidates, selected=best - first, frames=[_points(frame[best]) for frame in frames],
            milliseconds=milliseconds(start_time), batch_size=number,
        ))  # fmt: skip
    return responses
    yield  # never reached: plans are made in one go


def _considered(
    planner: LearnedPlanner, plan: Plan, observations: Observations, memory: PlannerMemory
) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:
    """All candidates of the plans [B] as chunks [B · C, H, 2], their energies, which of them the plans are [B], and the
    chunks that were most likely at every network call."""
    if plan.trace is None or plan.selected is None or plan.candidate_energies is None:
        return plan.actions.cpu(), plan.energy, torch.arange(len(plan.actions)), []
    trace, device = plan.trace, planner.device
    rows = torch.arange(len(plan.actions), device=device).repeat_interleave(plan.candidate_energies.shape[1])
    shown, history = observations.to(device)[rows], memory.history[rows]

    def decoded(tokens: Mapping[str, Tensor]) -> Tensor:
        return planner.decode(tokens["actions"], shown, history, tokens.get("goals")).cpu()

    final, calls = ({name: x[-1] for name, x in trace.tokens.items()}, range(len(trace.t) - 1))
    frames = [decoded({name: x[call] for name, x in trace.predicted.items()}) for call in calls]
    chunks, selected = decoded(final), plan.selected.cpu()
    chunks[selected] = plan.actions.cpu()  # to the last digit what is executed
    return chunks, plan.candidate_energies.flatten(), selected, [*frames, chunks]


def play_episodes(requests: Sequence[ResolvedRequest]) -> Generator[None, None, list[schema.PushTEpisodeResponse]]:
    """Whole episodes of one planner; yields after every step."""
    start_time, batch = time.perf_counter(), env_batch(requests)
    starts = [_state(observation[OBSERVED]) for observation in batch.current]
    episodes = [schema.PushTEpisodeResponse(start=start, steps=[], plans=[], success=False, milliseconds=0)
                for start in starts]  # fmt: skip
    for steps in rollout(requests[0].planner, batch, action_steps=requests[0].action_steps):
        if steps.plan is not None:
            for index, row in enumerate(steps.planned_ids.tolist()):
                chunk = schema.Chunk(
                    actions=_points(steps.plan.actions[index]), energy=_energy(steps.plan.energy, index)
                )
                episodes[row].plans.append(chunk)
        for index, row in enumerate(steps.ids.tolist()):
            episodes[row].steps.append(schema.PushTStep(
                state=_state(batch.current[row][OBSERVED]), coverage=round(steps.result.infos[index]["coverage"], 4),
                plan=steps.plan_index[index], plan_step=steps.plan_step[index],
            ))  # fmt: skip
            episodes[row].success |= steps.result.success[index]
        yield
    for episode in episodes:
        episode.milliseconds = milliseconds(start_time)
    return episodes
