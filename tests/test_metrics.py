"""Metrics against closed forms."""

import dataclasses

import numpy as np
import pytest

from genplan import tasks
from genplan.envs.babyai import babyai_spec
from genplan.errors import UserError
from genplan.metrics import METRICS, resolve, summarize, wilson
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Metric, OpenLoop, Rollout, Task


def rollout(steps=4, success=True, changed=None, states=None, spec=None, **more):
    states = np.arange(steps + 1) if states is None else np.array(states)
    return Rollout(
        seed=0, spec=spec or babyai_spec(5, 5), observations={"state": states}, actions=np.zeros(steps, np.int64),
        rewards=np.full(steps, 0.5), terminated=success, truncated=not success, success=success,
        changed=np.ones(steps, bool) if changed is None else np.array(changed), num_plans=2, **more,
    )  # fmt: skip


def value(name, rollouts):
    return summarize(METRICS[name], rollouts).value


def test_success_and_wilson():
    found = summarize(METRICS["success"], [rollout(success=number < 95) for number in range(100)])
    assert found.value == 0.95
    assert (round(found.low, 3), round(found.high, 3)) == (0.888, 0.978)
    assert (found.low, found.high) == wilson(95, 100)
    assert wilson(0, 10)[0] == 0
    # Ends of the interval solve |p − x| = z · sqrt(x (1 − x) / n).
    for end in wilson(7, 20):
        assert abs(7 / 20 - end) == pytest.approx(1.959964 * (end * (1 - end) / 20) ** 0.5)


def test_spl_is_success_weighted_by_path_length():
    played = [
        rollout(steps=8, references={"expert": 4, "shortest": 2}),
        rollout(steps=4, references={"expert": 6, "shortest": 4}),  # better than the expert: 1, and not more
        rollout(steps=9, success=False, references={"expert": 3, "shortest": 3}),
        rollout(steps=1, references={"expert": 0, "shortest": 1}),  # a length is at least 1
    ]
    assert value("spl", played) == (4 / 8 + 1 + 0 + 1) / 4
    assert value("spl_shortest", played) == (2 / 8 + 1 + 0 + 1) / 4
    lacking = [*played, rollout(references={"expert": 3, "shortest": None})]
    assert summarize(METRICS["spl_shortest"], lacking) is None  # not defined for one, and so for none
    assert summarize(METRICS["spl"], [rollout()]) is None


def test_stalling_is_pooled_over_all_steps():
    played = [rollout(steps=2, changed=[False, False]), rollout(steps=6, changed=[True] * 5 + [False])]
    assert value("stalling", played) == 3 / 8  # not the mean of 2/2 and 1/6
    assert value("steps", played) == 4
    assert value("num_plans", played) == 2
    assert value("return", played) == (1 + 3) / 2


def test_cells_are_counted_whatever_the_direction():
    assert value("cells_visited", [rollout(states=[0, 1, 2, 3, 4])]) == 2  # four directions of one cell, and the next
    plain = PlanSpec({"state": Field("category", sizes=(9,))}, Actions(2), {"states": Stream(9, observed="state")})
    assert value("cells_visited", [rollout(states=[0, 1, 2, 2, 1], spec=plain)]) == 3
    blind = PlanSpec({"state": Field("category", sizes=(9,))}, Actions(2))
    assert summarize(METRICS["cells_visited"], [rollout(spec=blind)]) is None


def test_bootstrap_intervals():
    steps = np.random.default_rng(1).integers(1, 40, 250)
    played = [rollout(steps=int(number)) for number in steps]
    found = summarize(METRICS["steps"], played)
    error = steps.std() / 250**0.5
    assert found.low == pytest.approx(steps.mean() - 1.96 * error, abs=0.4 * error)
    assert found.high == pytest.approx(steps.mean() + 1.96 * error, abs=0.4 * error)
    assert found == summarize(METRICS["steps"], played)  # of the same episodes, always the same
    same = summarize(METRICS["steps"], [rollout(steps=3)] * 5)
    assert (same.value, same.low, same.high) == (3, 3, 3)


def test_metrics_of_a_task():
    task = tasks.get("MazeS4G1")
    assert [one.name for one in resolve(task)] == list(task.metrics)
    own = Metric("first", lambda one: float(one.rewards[0]))
    assert [one.name for one in resolve(dataclasses.replace(task, metrics=("success", own)))] == ["success", "first"]
    by_return = Task("x", task.make, task.spec, task.observe, 5, success=None)
    assert [one.name for one in resolve(by_return)] == ["return", "steps"]
    with pytest.raises(UserError, match="names the metric 'sucess'; known are success"):
        resolve(dataclasses.replace(task, metrics=("sucess",)))


def test_shares_are_checked_and_weighted():
    share = Metric("doors", lambda one: 1.0, weight=lambda one: 4.0, interval="wilson")
    found = summarize(share, [rollout(steps=3)] * 10)
    assert found.value == 0.25
    assert found.low < 0.25 < found.high < 0.42  # ten of forty
    with pytest.raises(UserError, match=r"metric 'far' gives 3\.0 for an episode, expected a share from 0 to 1"):
        summarize(Metric("far", lambda one: 3.0, interval="wilson"), [rollout(steps=3)])


def first_plan(planned, came, arrival=None, horizon=4):
    return OpenLoop(horizon, np.array(planned), np.array(came), arrival)


def test_plans_hold_if_all_their_states_come():
    played = [
        rollout(first_plan=first_plan([1, 2, 3], [1, 2, 3])),
        rollout(first_plan=first_plan([1, 2, 3], [1, 5, 5])),
        rollout(first_plan=first_plan([1], [1])),  # the episode ended there
        rollout(first_plan=first_plan([], [])),  # or with the first step
    ]
    assert value("plan_agreement", played) == 3 / 4
    assert value("step_agreement", played) == (3 + 1 + 1) / (3 + 3 + 1)
    assert value("step_agreement", played[3:]) == 0
    for name in ("plan_agreement", "step_agreement", "arrival"):
        assert summarize(METRICS[name], [*played, rollout()]) is None


def test_arrival_counts_where_the_shortest_way_fits_into_a_plan():
    played = [
        rollout(first_plan=first_plan([1], [1], arrival), references={"shortest": shortest})
        for arrival, shortest in ((4, 4), (None, 2), (None, 5), (3, 3))
    ]
    found = summarize(METRICS["arrival"], played)
    assert found.value == 2 / 3  # five steps are too many for four actions
    assert (found.low, found.high) == wilson(2, 3)
    unknown = rollout(first_plan=first_plan([1], [1]), references={"shortest": None})
    assert summarize(METRICS["arrival"], [*played, unknown]) is None
