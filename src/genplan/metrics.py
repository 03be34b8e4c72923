"""Metrics: functions of a finished rollout, how they reduce over episodes, and their 95 % intervals."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genplan.errors import UserError
from genplan.types import Metric, Rollout, Task

NUM_RESAMPLES = 1000


def path_efficiency(success: bool, num_steps: int, reference_steps: int) -> float:
    """Success weighted by path length, S · L / max(L, steps): L is the steps of a reference, at least 1.

    Where the expert itself fails, L is the steps after which its episode ended.
    """
    return success * max(reference_steps, 1) / max(reference_steps, num_steps, 1)


def _spl(reference: str, rollout: Rollout) -> float | None:
    best = rollout.references.get(reference)
    return None if best is None else path_efficiency(rollout.success, rollout.num_steps, best)


def _cells_visited(rollout: Rollout) -> float | None:
    """Distinct cells, whatever the direction; distinct states where there is no grid."""
    stream = rollout.spec.states
    if stream is None or stream.observed is None:
        return None
    return float(len(np.unique(rollout.observations[stream.observed] // stream.directions)))


def _step_agreement(rollout: Rollout) -> float | None:
    """Of the states of the first plan, those that its actions lead to."""
    plan = rollout.first_plan
    return None if plan is None else float((plan.planned == plan.came).sum())


def _plan_agreement(rollout: Rollout) -> float | None:
    plan = rollout.first_plan
    return None if plan is None else float((plan.planned == plan.came).all())


def _arrival(rollout: Rollout) -> float | None:
    """Success of the first plan alone, where the shortest way fits into it."""
    if rollout.first_plan is None or rollout.references.get("shortest") is None:
        return None
    return float(rollout.first_plan.arrival is not None) * _can_arrive(rollout)


def _can_arrive(rollout: Rollout) -> float:
    plan, shortest = rollout.first_plan, rollout.references.get("shortest")
    return float(plan is not None and shortest is not None and shortest <= plan.horizon)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("success", lambda rollout: float(rollout.success), format=".1%", interval="wilson"),
        Metric("spl", functools.partial(_spl, "expert"), label="SPL"),
        Metric("spl_shortest", functools.partial(_spl, "shortest"), label="SPL (shortest)"),
        Metric("steps", lambda rollout: float(rollout.num_steps), higher_is_better=False, format=".1f"),
        Metric("cells_visited", _cells_visited, format=".1f", label="cells visited"),
        Metric(  # of all steps, those that changed nothing observed
            "stalling", lambda rollout: float(rollout.num_steps - int(rollout.changed.sum())),
            weight=lambda rollout: float(rollout.num_steps), higher_is_better=False, format=".0%",
        ),
        Metric("return", lambda rollout: float(rollout.rewards.sum()), format=".2f"),
        Metric("step_agreement", _step_agreement, format=".1%", label="states as planned",
               weight=lambda rollout: float(0 if rollout.first_plan is None else len(rollout.first_plan.planned))),
        Metric("plan_agreement", _plan_agreement, format=".1%", interval="wilson", label="plans that hold"),
        Metric("arrival", _arrival, weight=_can_arrive, format=".1%", interval="wilson", label="arrival"),
        Metric("num_plans", lambda rollout: float(rollout.num_plans), higher_is_better=False, format=".1f",
               label="plans"),
    )
}  # fmt: skip
PLAN_METRICS = ("step_agreement", "plan_agreement", "arrival")  # of first plans
DEFAULTS = ("success", "spl", "steps", "stalling", "return")  # of a task that names none; and of one without success:
DEFAULTS_BY_RETURN = ("return", "steps")


def resolve(task: Task) -> tuple[Metric, ...]:
    """The metrics of a task, the headline first."""
    names = task.metrics or (DEFAULTS_BY_RETURN if task.success is None else DEFAULTS)
    if unknown := [one for one in names if isinstance(one, str) and one not in METRICS]:
        known = ", ".join(METRICS)
        raise UserError(f"task {task.name} names the metric '{unknown[0]}'; known are {known}, or a Metric")
    if wrong := [one for one in names if not isinstance(one, str | Metric)]:
        raise UserError(f"task {task.name} has {wrong[0]!r} as a metric, expected Metric('name', function), or one of "
                        f"{', '.join(METRICS)}")  # fmt: skip
    return tuple(METRICS[one] if isinstance(one, str) else one for one in names)


@dataclass(frozen=True)
class Summary:
    """A metric over many episodes, with its 95 % interval."""

    value: float
    low: float
    high: float


def episode_values(metric: Metric, rollouts: Sequence[Rollout]) -> list[float] | None:
    """What the metric gives for each episode, before it is divided by weights; None if it is not defined for one."""
    values = [value for rollout in rollouts if (value := metric.of(rollout)) is not None]
    if wrong := [one for one in values if not isinstance(one, float | int | np.number) or not math.isfinite(one)]:
        found = " ".join(repr(wrong[0]).split())[:60]
        raise UserError(f"metric '{metric.name}' gives {found} for an episode, expected a finite number, or None where "
                        "it is not defined")  # fmt: skip
    return values if len(values) == len(rollouts) else None


def episode_weights(metric: Metric, rollouts: Sequence[Rollout]) -> list[float] | None:
    return None if metric.weight is None else [metric.weight(rollout) for rollout in rollouts]


def summarize(metric: Metric, rollouts: Sequence[Rollout]) -> Summary | None:
    """The metric over episodes; None if it is not defined for one of them."""
    values = episode_values(metric, rollouts)
    return None if values is None else summarize_values(metric, values, episode_weights(metric, rollouts))


def summarize_values(metric: Metric, values: Sequence[float], weights: Sequence[float] | None = None) -> Summary:
    """The same, from what the episodes gave. A number of distinct values has no interval."""
    if metric.reduction == "distinct":
        distinct = float(len(set(values)))
        return Summary(distinct, distinct, distinct)
    value = sum(values) / ((len(values) if weights is None else sum(weights)) or 1)
    if metric.interval != "wilson":
        return Summary(value, *_bootstrap(values, weights))
    counts = [1] * len(values) if weights is None else weights
    if wrong := [value for value, count in zip(values, counts, strict=True) if not 0 <= value <= count]:
        raise UserError(f"metric '{metric.name}' gives {wrong[0]} for an episode, expected a share from 0 to 1; "
                        "or declare it with interval='bootstrap'")  # fmt: skip
    return Summary(value, *wilson(round(sum(values)), max(round(sum(counts)), 1)))


def wilson(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval for a share."""
    p = successes / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(center - half, 0.0), min(center + half, 1.0)


def _bootstrap(values: Sequence[float], weights: Sequence[float] | None) -> tuple[float, float]:
    """The percentile interval over resampled episodes; the same episodes always give the same one."""
    chosen = _resamples(len(values))
    totals = len(values) if weights is None else np.maximum(np.asarray(weights)[chosen].sum(1), 1e-12)
    low, high = np.percentile(np.asarray(values, np.float64)[chosen].sum(1) / totals, (2.5, 97.5))
    return float(low), float(high)


@functools.lru_cache(4)
def _resamples(n: int) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(n, size=(NUM_RESAMPLES, n), dtype=np.int32)
