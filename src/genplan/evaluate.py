"""Evaluate a planner on many seeds, with the random policy and the expert on the same ones beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from genplan.errors import ExpertFailure
from genplan.metrics import Summary, episode_values, episode_weights, resolve, summarize
from genplan.render.numbers import format_interval
from genplan.rollout import EnvBatch, Wrapper, open_loop, play
from genplan.types import Metric, Planner, Rollout, Task


class TimedPlanner:
    """A planner that adds up the time spent in it."""

    def __init__(self, planner: Planner) -> None:
        self.seconds = 0.0
        self.privileged, self.action_steps = planner.privileged, planner.action_steps
        self.reset, self.plan = self._timed(planner.reset), self._timed(planner.plan)
        self.observe = self._timed(planner.observe)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start_time = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.seconds += time.perf_counter() - start_time

        return timed


class TimedRollouts(NamedTuple):
    """Episodes, and the time they took."""

    rollouts: list[Rollout]
    seconds: float
    planner_seconds: float


def play_timed(
    planner: Planner, task: Task, seeds: Sequence[int], *, seed: int = 0, wrapper: Wrapper | None = None,
    open_loops: bool = True, **options: Any,
) -> TimedRollouts:  # fmt: skip
    """`rollout.play`, with the time it took; and beside it, not timed, what the first plans are worth by themselves."""
    timed, start_time = TimedPlanner(planner), time.perf_counter()
    rollouts = play(timed, task, seeds, seed=seed, wrapper=wrapper, **options)
    seconds = time.perf_counter() - start_time
    plans = open_loop(planner, EnvBatch(task, seeds, wrapper), seed=seed) if open_loops else None
    if plans is not None:
        rollouts = [dataclasses.replace(one, first_plan=plan) for one, plan in zip(rollouts, plans, strict=True)]
    return TimedRollouts(rollouts, seconds, timed.seconds)


@dataclass(frozen=True)
class Score:
    """Many episodes, summed up."""

    num_episodes: int
    metrics: dict[str, Summary | None]  # the task's, its headline first; None: not defined here
    num_plans: int
    seconds: float
    planner_seconds: float  # of `seconds`, those spent in the planner; the others went into environments

    def value(self, metric: str) -> float | None:
        summary = self.metrics.get(metric)
        return None if summary is None else summary.value


Scores = Mapping[str, Mapping[str, Summary | None]]  # planner -> metric -> what it came to; None: not defined


def score_rows(
    scores: Scores, metrics: Sequence[Metric], whole_shares: bool = False
) -> tuple[list[str], dict[str, list[tuple[str, str]]]]:
    """A table as plain text: its columns, the metrics that any planner has, and value and interval of each by planner.

    whole_shares  intervals of shares without decimals, to save space
    """
    shown = [metric for metric in metrics if any(one.get(metric.name) for one in scores.values())]

    def texts(metric: Metric, one: Summary | None) -> tuple[str, str]:
        form = ".0%" if whole_shares and metric.format.endswith("%") else metric.format
        return ("", "") if one is None else (format(one.value, metric.format), format_interval(one.low, one.high, form))

    rows = {name: [texts(metric, found.get(metric.name)) for metric in shown] for name, found in scores.items()}
    return [metric.label or metric.name for metric in shown], rows


@dataclass(frozen=True)
class Evaluation:
    """A planner on a task, beside the random policy and the expert on the same seeds."""

    task: Task
    rollouts: list[Rollout]
    planner: Score
    random: Score | None
    expert: Score | None

    @property
    def scores(self) -> dict[str, Score]:
        """Whatever was played, by the names that tables have for it."""
        all_ = {"this planner": self.planner, "random policy": self.random, "expert": self.expert}
        return {name: score for name, score in all_.items() if score is not None}


def evaluate(
    planner: Planner,
    task: Task,
    seeds: Sequence[int],
    *,
    baseline: Planner | None,
    action_steps: int | None = None,
    seed: int = 0,
    wrapper: Wrapper | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Everything that a result should be shown with. `on_progress` counts episodes of all three."""
    references: dict[str, Mapping[int, int | None]] = {
        name: {one: steps(one) for one in seeds} for name, steps in task.references.items()
    }

    def timed(who: Planner, **options: Any) -> TimedRollouts:
        return play_timed(who, task, seeds, seed=seed, on_progress=on_progress, **options)

    def score(played: TimedRollouts) -> tuple[list[Rollout], Score]:
        rollouts = [
            dataclasses.replace(one, references={name: steps[one.seed] for name, steps in references.items()})
            for one in played.rollouts
        ]
        metrics = {metric.name: summarize(metric, rollouts) for metric in resolve(task)}
        num_plans = sum(rollout.num_plans for rollout in rollouts)
        return rollouts, Score(len(rollouts), metrics, num_plans, played.seconds, played.planner_seconds)

    of_expert = None
    if task.expert is not None:
        # The expert plays the environment as it is, without slips: its steps are the measure of a good path.
        with contextlib.suppress(ExpertFailure):  # it does not know every seed: there is no such measure then
            played = timed(task.expert(), open_loops=False)
            references["expert"] = {one.seed: one.num_steps for one in played.rollouts}
            _, of_expert = score(played)
    rollouts, of_planner = score(timed(planner, action_steps=action_steps, wrapper=wrapper))
    of_random = None if baseline is None else score(timed(baseline, wrapper=wrapper, open_loops=False))[1]
    return Evaluation(task, rollouts, of_planner, of_random, of_expert)


def to_record(
    name: str,
    task: Task,
    seeds: Sequence[int],
    config: Mapping[str, Any],
    evaluation: Evaluation,
    *,
    action_steps: int | None = None,
    commit: str | None = None,
) -> dict[str, Any]:
    """What was measured, as JSON; shares are from 0 to 1.

    Values of single episodes are what a metric gives before it is divided by its weight: for stalling, the number of
    steps that changed nothing, with the number of steps as its weight.
    """
    text = json.dumps({key: config.get(key) for key in ("method", "planner", "training", "dataset")}, sort_keys=True)
    score, rollouts, metrics = evaluation.planner, evaluation.rollouts, resolve(task)
    planner = config.get("planner", {})
    return {
        "task": task.name,
        "planner": name,
        "method": config.get("method"),
        "preset": planner.get("preset"),
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "commit": commit,
        "first_seed": seeds[0],
        "action_steps": planner.get("action_steps") if action_steps is None else action_steps,
        **dataclasses.asdict(score),
        "plans_per_second": score.num_plans / score.seconds,
        "baselines": {
            baseline: dataclasses.asdict(one)
            for baseline, one in (("random", evaluation.random), ("expert", evaluation.expert))
            if one is not None
        },
        "episodes": {
            "seeds": [rollout.seed for rollout in rollouts],
            "metrics": {metric.name: episode_values(metric, rollouts) for metric in metrics},
            "weights": {metric.name: episode_weights(metric, rollouts) for metric in metrics if metric.weight},
            "references": {key: [rollout.references[key] for rollout in rollouts] for key in rollouts[0].references},
        },
    }
