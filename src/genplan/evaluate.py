"""Roll out any planner on many episodes at once: one batched plan for all that need one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import torch

from genplan.flow import Rng
from genplan.tasks.batch import EnvBatch
from genplan.tasks.task import Task
from genplan.types import EpisodeResult, Planner


@torch.no_grad()
def rollout(
    planner: Planner,
    task: Task,
    seeds: Sequence[int],
    *,
    execute: int | None = None,
    seed: int = 0,
    wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] | None = None,
    tick: Callable[[int], None] | None = None,
) -> list[EpisodeResult]:
    """One episode per seed, in this order.

    execute  actions of a plan that are executed before the next plan (all of them by default)
    seed     of the planner's own chance; a row's key is (seed, episode seed, plan number), whatever the batch
    tick     is told how many episodes ended, after every step
    """
    if execute is not None and execute < 1:
        raise ValueError(f"execute is {execute}, expected at least 1 action per plan")
    batch = EnvBatch(task, seeds, wrap)
    oracle = batch.oracle if planner.needs_oracle else None
    size = len(batch)
    memory = planner.start(batch.observations(), oracle)
    episodes = torch.tensor(list(seeds))
    queue: list[list[int]] = [[] for _ in range(size)]
    plans = torch.zeros(size, dtype=torch.int64)
    stalled, success = [0] * size, [False] * size
    taken: list[list[int]] = [[] for _ in range(size)]
    visited = [{int(observation["state"])} for observation in batch.current]
    running = torch.arange(size)
    while len(running):
        needy = torch.tensor([row for row in running.tolist() if not queue[row]], dtype=torch.int64)
        if len(needy):
            rng = Rng.of(seed, episodes[needy], plans[needy])
            plan, memory = planner.plan(batch.observations(needy), memory, rng, needy, oracle)
            plans[needy] += 1
            for row, actions in zip(needy.tolist(), plan.actions[:, :execute].tolist(), strict=True):
                queue[row] = actions
        actions = torch.tensor([queue[row].pop(0) for row in running.tolist()])
        outcome = batch.step(running, actions)
        memory = planner.observe(memory, actions, batch.observations(running), running)
        for place, row in enumerate(running.tolist()):
            success[row] = outcome.success[place]
            stalled[row] += not outcome.changed[place]
            visited[row].add(int(batch.current[row]["state"]))
            taken[row].append(int(actions[place]))
        alive = torch.tensor([not done for done in outcome.done])
        if tick is not None and not bool(alive.all()):
            tick(int((~alive).sum()))
        running = running[alive]
    batch.close()
    return [
        EpisodeResult(
            seed=batch.seeds[row],
            success=success[row],
            steps=batch.steps[row],
            plans=int(plans[row]),
            stalled=stalled[row],
            cells=len(visited[row]),
            actions=tuple(taken[row]),
        )
        for row in range(size)
    ]
