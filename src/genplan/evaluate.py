"""Roll out any planner on many episodes at once: one batched plan for all that need one; and judge what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch

from genplan.errors import UserError
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
    headings = task.spec.num_headings
    visited = [{int(observation["state"]) // headings} for observation in batch.current]
    running = torch.arange(size)
    while len(running):
        needy = torch.tensor([row for row in running.tolist() if not queue[row]], dtype=torch.int64)
        if len(needy):
            rng = Rng.of(seed, episodes[needy], plans[needy])
            found = planner.plan(batch.observations(needy), memory, rng, needy, oracle)
            planned, memory = _checked(found, len(needy), task.spec.num_actions)
            plans[needy] += 1
            for row, actions in zip(needy.tolist(), planned[:, :execute].tolist(), strict=True):
                queue[row] = actions
        actions = torch.tensor([queue[row].pop(0) for row in running.tolist()])
        outcome = batch.step(running, actions)
        memory = planner.observe(memory, actions, batch.observations(running), running)
        for place, row in enumerate(running.tolist()):
            success[row] = outcome.success[place]
            stalled[row] += not outcome.changed[place]
            visited[row].add(int(batch.current[row]["state"]) // headings)
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


def _checked(found: Any, rows: int, num_actions: int) -> tuple[torch.Tensor, Any]:
    """The actions [rows, H] and the memory that `plan` returned; planners of one's own make mistakes."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise UserError(f"plan() returned {type(found).__name__}, expected a pair: a Plan, and the memory")
    actions = getattr(found[0], "actions", None)
    if not isinstance(actions, torch.Tensor) or actions.is_floating_point():
        kind = actions.dtype if isinstance(actions, torch.Tensor) else type(actions).__name__
        raise UserError(f"plan() returned actions of {kind}, expected a tensor of whole numbers")
    if actions.ndim != 2 or len(actions) != rows or not actions.shape[1]:
        expected = f"({rows}, H): one line per row that was asked for, of at least one action"
        raise UserError(f"plan() returned actions of shape {tuple(actions.shape)}, expected {expected}")
    low, high = int(actions.min()), int(actions.max())
    if low < 0 or high >= num_actions:
        raise UserError(f"plan() returned actions from {low} to {high}, expected 0 to {num_actions - 1}")
    return actions, found[1]


def wilson(successes: int, number: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval for a share."""
    p = successes / number
    centre = (p + z * z / (2 * number)) / (1 + z * z / number)
    half = z * math.sqrt(p * (1 - p) / number + z * z / (4 * number * number)) / (1 + z * z / number)
    return max(centre - half, 0.0), min(centre + half, 1.0)


class Stopwatch:
    """A planner that adds up the time spent in it."""

    def __init__(self, planner: Planner) -> None:
        self.planner, self.needs_oracle, self.seconds = planner, planner.needs_oracle, 0.0

    def start(self, *arguments: Any) -> Any:
        return self._timed(self.planner.start, *arguments)

    def plan(self, *arguments: Any) -> Any:
        return self._timed(self.planner.plan, *arguments)

    def observe(self, *arguments: Any) -> Any:
        return self._timed(self.planner.observe, *arguments)

    def _timed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.seconds += time.perf_counter() - began


@dataclass(frozen=True)
class Played:
    """Episodes, and what they took."""

    results: list[EpisodeResult]
    seconds: float
    planner_seconds: float


def rollout_timed(planner: Planner, task: Task, seeds: Sequence[int], **options: Any) -> Played:
    """`rollout`, with what it took."""
    watch, began = Stopwatch(planner), time.perf_counter()
    results = rollout(watch, task, seeds, **options)
    return Played(results, time.perf_counter() - began, watch.seconds)


def efficiency(result: EpisodeResult, best: int) -> float:
    """Success weighted by path length, S · L / max(L, steps): L is the length of a good path."""
    return result.success * max(best, 1) / max(best, result.steps, 1)


@dataclass(frozen=True)
class Score:
    """What many episodes come to. Rates are shares from 0 to 1."""

    episodes: int
    success: float
    success_interval: tuple[float, float]
    spl: float | None  # None where no expert tells the length of a good path
    mean_steps: float
    stall: float
    cells: float
    plans: int
    seconds: float
    planner_seconds: float  # of `seconds`, those spent in the planner; the others went into environments

    @staticmethod
    def of(played: Played, expert_steps: Mapping[int, int] | None) -> Score:
        """SPL is the mean of what `efficiency` gives, against the expert's steps on that seed."""
        results = played.results
        number = len(results)
        spl = None
        if expert_steps is not None:
            spl = sum(efficiency(result, expert_steps[result.seed]) for result in results) / number
        won = sum(result.success for result in results)
        steps = sum(result.steps for result in results)
        return Score(
            episodes=number,
            success=won / number,
            success_interval=wilson(won, number),
            spl=spl,
            mean_steps=steps / number,
            stall=sum(result.stalled for result in results) / max(steps, 1),
            cells=sum(result.cells for result in results) / number,
            plans=sum(result.plans for result in results),
            seconds=played.seconds,
            planner_seconds=played.planner_seconds,
        )


@dataclass(frozen=True)
class Evaluation:
    """A planner on a task, beside the blind walk and the expert on the same seeds."""

    results: list[EpisodeResult]
    planner: Score
    walk: Score | None
    bot: Score | None


def evaluate(
    planner: Planner,
    task: Task,
    seeds: Sequence[int],
    *,
    walk: Planner | None,
    execute: int | None = None,
    seed: int = 0,
    wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] | None = None,
    tick: Callable[[int], None] | None = None,
) -> Evaluation:
    """Everything that a result should be shown with. `tick` counts episodes of all three."""

    def play(who: Planner, **options: Any) -> Played:
        return rollout_timed(who, task, seeds, seed=seed, tick=tick, **options)

    expert_steps: dict[int, int] | None = None
    bot = blind = None
    if task.expert is not None:
        # The expert plays the world as it is, without slips: its steps are the measure of a good path.
        expert = play(task.expert())
        expert_steps = {result.seed: result.steps for result in expert.results}
        bot = Score.of(expert, expert_steps)
    played = play(planner, execute=execute, wrap=wrap)
    if walk is not None:
        blind = Score.of(play(walk, wrap=wrap), expert_steps)
    return Evaluation(played.results, Score.of(played, expert_steps), blind, bot)
