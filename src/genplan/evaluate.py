"""Evaluate a planner on many seeds, with the random policy and the expert on the same ones beside it.

In one process; or in several, each with a batch of some of the seeds, where a simulator is slow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from genplan import names
from genplan.envs.wrappers import SlipperyActions
from genplan.errors import ExpertFailure, UserError
from genplan.jobs import Executor, Job, Report
from genplan.metrics import Summary, episode_values, episode_weights, resolve, summarize
from genplan.models.codecs import CODECS
from genplan.planners import use_codec
from genplan.render.numbers import format_interval
from genplan.rollout import EnvBatch, Wrapper, open_loop, play
from genplan.tasks.files import user_code_errors
from genplan.types import Metric, Planner, Rollout, Task

# Seeds of one job: matrices of very few rows are multiplied by another routine, which rounds the last digits otherwise.
MIN_PART, MAX_PART = 8, 25


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
    planner: Planner, task: Task, seeds: Sequence[int], *, baseline: Planner | None, action_steps: int | None = None,
    seed: int = 0, wrapper: Wrapper | None = None, on_progress: Callable[[int], None] | None = None,
) -> Evaluation:  # fmt: skip
    """Everything that a result should be shown with. `on_progress` counts episodes of all three."""
    players = _players(planner, task, baseline, action_steps, wrapper)
    timed = {one: _timed(one, *players[one], task, seeds, on_progress, seed) for one in players}
    return _evaluation(task, seeds, timed)


def _players(
    planner: Planner, task: Task, baseline: Planner | None, action_steps: int | None, wrapper: Wrapper | None
) -> dict[str, tuple[Planner, dict[str, Any]]]:
    """Who plays, and how."""
    who = {"planner": planner, "random": baseline, "expert": task.expert and task.expert()}
    how: dict[str, dict[str, Any]] = {
        "planner": {"action_steps": action_steps, "wrapper": wrapper},
        "random": {"wrapper": wrapper, "open_loops": False},
        "expert": {"open_loops": False},  # the environment as it is, without slips: its steps measure a good path
    }
    return {name: (one, how[name]) for name, one in who.items() if one is not None}


def _timed(
    player: str, who: Planner, how: Mapping[str, Any], task: Task, seeds: Sequence[int],
    on_progress: Callable[[int], None] | None, seed: int = 0,
) -> TimedRollouts | None:  # fmt: skip
    """None of an expert that does not know every seed: there is no measure by it then."""
    with contextlib.suppress(*((ExpertFailure,) if player == "expert" else ())):
        return play_timed(who, task, seeds, seed=seed, on_progress=on_progress, **how)
    return None


def _evaluation(task: Task, seeds: Sequence[int], played: Mapping[str, TimedRollouts | None]) -> Evaluation:
    references: dict[str, Mapping[int, int | None]] = {
        name: {one: steps(one) for one in seeds} for name, steps in task.references.items()
    }
    if (of_expert := played.get("expert")) is not None:
        references["expert"] = {one.seed: one.num_steps for one in of_expert.rollouts}
    scores, rollouts = dict[str, Score](), list[Rollout]()
    for player, timed in played.items():
        if timed is None:
            continue
        own = [dataclasses.replace(one, references={name: steps[one.seed] for name, steps in references.items()})
               for one in timed.rollouts]  # fmt: skip
        rollouts = own if player == "planner" else rollouts
        metrics = {metric.name: summarize(metric, own) for metric in resolve(task)}
        num_plans = sum(rollout.num_plans for rollout in own)
        scores[player] = Score(len(own), metrics, num_plans, timed.seconds, timed.planner_seconds)
    return Evaluation(task, rollouts, scores["planner"], scores.get("random"), scores.get("expert"))


@dataclass(frozen=True)
class EvalConfig:
    """What is evaluated, by names and settings, so that any process can load it."""

    planner: str
    task: str | None = None
    method: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # settings of the planner
    untrained: bool = False  # the same planner with randomly initialized weights
    baseline: str | None = None  # the random policy
    slip: float = 0.0  # probability that another action happens than the one chosen

    def __post_init__(self) -> None:
        if not 0 <= self.slip <= 1:
            raise UserError(f"slip is {self.slip}, expected 0 to 1")

    def load(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `evaluate` is called with, but for the seeds; and the planner's config."""
        planner, config, task = names.load_for_eval(self.planner, self.task, self.options, self.method)
        if self.slip and task.spec.actions.n is None:
            raise UserError(f"slip is {self.slip}, and the actions of {task.name} are continuous: there is no other to "
                            "happen")  # fmt: skip
        return {
            "planner": names.untrained_control(planner, config) if self.untrained else planner,
            "task": task,
            "baseline": names.load_baseline(self.baseline, task, config),
            "action_steps": self.options.get("action_steps"),
            "wrapper": partial(SlipperyActions, probability=self.slip) if self.slip else None,
        }, config


def evaluate_parts(
    config: EvalConfig, task: Task, seeds: Sequence[int], executor: Executor, workers: int,
    on_progress: Callable[[int], None],
) -> Evaluation:  # fmt: skip
    """`evaluate` by the processes of an executor, as many as `workers`, in parts of the seeds; times are added up.

    The results are the same: chance is keyed by seed, whatever the batch.
    """
    num_parts = max(-(-len(seeds) // MAX_PART), min(workers, len(seeds) // MIN_PART))
    parts = [part.tolist() for part in np.array_split(seeds, num_parts)]
    codecs = [name for name in CODECS if ".py:" in name]  # files that the user named
    jobs = [Job(f"{player} {part[0]}", play_part, (player, part, config, codecs))
            for player in ("planner", "random", *(("expert",) if task.expert else ())) for part in parts]  # fmt: skip
    results, counted = dict[str, list[TimedRollouts | None]](), dict.fromkeys((job.key for job in jobs), 0)
    for event in executor.run(jobs):
        player, part = event.job.arguments[:2]
        if event.type == "failed":
            raise UserError(f"seeds {part[0]}–{part[-1]} are not played: {event.reason}")
        if event.type == "done":
            results.setdefault(player, []).append(event.result)
        on_progress(round(event.fraction * len(part)) - counted[event.job.key])
        counted[event.job.key] = round(event.fraction * len(part))
    return _evaluation(task, seeds, {player: _merged(of_parts, seeds) for player, of_parts in results.items()})


def play_part(player: str, seeds: Sequence[int], config: EvalConfig, codecs: Sequence[str], report: Report) -> (
    TimedRollouts | None
):  # fmt: skip
    """The job of one player on some of the seeds."""
    for name in codecs:
        use_codec(name)
    arguments, _ = config.load()
    ended: list[int] = []

    def on_progress(number: int) -> None:
        ended.append(number)
        report(sum(ended) / len(seeds))

    with user_code_errors(config.planner):
        return _timed(player, *_players(**arguments)[player], arguments["task"], seeds, on_progress)


def _merged(parts: Sequence[TimedRollouts | None], seeds: Sequence[int]) -> TimedRollouts | None:
    known = [one for one in parts if one is not None]
    if len(known) < len(parts):
        return None
    rollouts = {rollout.seed: rollout for one in known for rollout in one.rollouts}
    seconds, planner_seconds = (sum(times) for times in zip(*(one[1:] for one in known), strict=True))
    return TimedRollouts([rollouts[seed] for seed in seeds], seconds, planner_seconds)


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
