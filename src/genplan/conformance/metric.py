"""Rules for metrics, on episodes of the random policy and of the expert of a task."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from genplan.conformance.rules import Rule, Skipped, expect
from genplan.planners.reference import RandomPolicy
from genplan.rollout import play
from genplan.types import VALIDATION_SEEDS, Metric, Rollout, Task

SEEDS = VALIDATION_SEEDS[:4]


@dataclass(frozen=True)
class MetricCase:
    """A metric on a task."""

    metric: Metric
    task: Task

    @cached_property
    def rollouts(self) -> list[Rollout]:
        players = [RandomPolicy(self.task.spec.actions), *([] if self.task.expert is None else [self.task.expert()])]
        found = [one for player in players for one in play(player, self.task, SEEDS)]
        return [replace(one, references={"expert": found[-1].num_steps}) for one in found]


def values_are_finite_or_none(case: MetricCase) -> None:
    """Of every finished episode, it is a finite number, or None where it is not defined."""
    for rollout in case.rollouts:
        value = case.metric.of(rollout)
        is_number = isinstance(value, int | float | np.integer | np.floating)
        expect(value is None or (is_number and math.isfinite(value)), f"{value!r} on seed {rollout.seed}",
               "a finite number, or None", "return None where it is not defined")  # fmt: skip


def the_same_episode_has_the_same_value(case: MetricCase) -> None:
    """It depends on the episode alone."""
    for rollout in case.rollouts:
        a, b = case.metric.of(rollout), case.metric.of(rollout)
        expect(a == b, f"{a} and {b} for the episode of seed {rollout.seed}", "the same twice", "keep no state in it")


def the_rollout_stays_as_it_is(case: MetricCase) -> None:
    """It does not write to the episode that it is handed."""
    for rollout in case.rollouts:
        columns = {name: getattr(rollout, name) for name in ("actions", "rewards", "changed")}
        columns |= {**rollout.observations, **rollout.infos}
        before = {name: column.copy() for name, column in columns.items()}
        case.metric.of(rollout)
        for name, column in columns.items():
            same = np.array_equal(column, before[name], equal_nan=True)
            expect(same, f"other {name} after it was measured", "the same", "copy() before writing")


def shares_lie_within_0_and_1(case: MetricCase) -> None:
    """With Wilson's interval, values are shares of one episode each."""
    if case.metric.interval != "wilson":
        raise Skipped("its interval is a bootstrap")
    for rollout in case.rollouts:
        value = case.metric.of(rollout)
        expect(value is None or 0 <= value <= 1, f"{value} on seed {rollout.seed}", "0 to 1 for the interval 'wilson'",
               "use interval='bootstrap'")  # fmt: skip


def weights_are_not_negative(case: MetricCase) -> None:
    """What an episode counts is a finite number of at least 0."""
    if (weight := case.metric.weight) is None:
        raise Skipped("every episode counts alike")
    for found in map(weight, case.rollouts):
        expect(math.isfinite(found) and found >= 0, f"the weight {found}", "at least 0", "look at `weight`")


def it_can_be_shown(case: MetricCase) -> None:
    """Its interval is known, and its format fits a number."""
    expect(case.metric.interval in ("wilson", "bootstrap"), f"the interval '{case.metric.interval}'",
           "wilson or bootstrap", "use wilson for shares and bootstrap otherwise")  # fmt: skip
    try:
        format(0.5, case.metric.format)
    except ValueError:
        expect(False, f"the format '{case.metric.format}'", "one of a number, such as .1%", "see format()")


RULES: tuple[Rule, ...] = (
    values_are_finite_or_none, the_same_episode_has_the_same_value, the_rollout_stays_as_it_is,
    shares_lie_within_0_and_1, weights_are_not_negative, it_can_be_shown,
)  # fmt: skip
