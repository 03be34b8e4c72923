"""Robot tasks: PushT and Franka Kitchen, as planners see them, with the published measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from genplan.envs import KITCHEN_TASKS, PUSHT_POINTS, ROBOTS, make_robot
from genplan.spec import Actions, Field, Observation, PlanSpec, Stream
from genplan.types import Metric, Rollout, Task

OBSERVED = "observation"
AGENT = 18  # in PushT's observation the agent follows nine points of the block
SIDE = 512  # of PushT's board
SOLVED = 0.95  # of PushT's place covered
PUSHT_GOALS = ("push", "rest")
REST = PUSHT_GOALS.index("rest")
LAST_STEPS = 50  # in which a planner should come to rest
MOST_COUNTED = 4  # demonstrations complete four tasks, and the published number of tasks is capped there
JOINTS = 9
JOINT_LOW = (-2.9, -1.8, -2.9, -3.1, -2.9, 0.0, -2.9, 0.0, 0.0)
JOINT_HIGH = (2.9, 1.8, 2.9, 0.0, 2.9, 3.8, 2.9, 0.04, 0.04)
SENSOR_NOISE = {"name": "sensor_noise", "field": OBSERVED, "std": 0.01, "first": 0, "number": JOINTS}


def _observe(env: Any, raw: Any) -> Observation:
    return {OBSERVED: np.asarray(raw, np.float32)}


def _info(key: str, reduce: Callable[[Any], Any]) -> Callable[[Rollout], float]:
    return lambda rollout: float(reduce(rollout.infos[key]))


# --- PushT -----------------------------------------------------------------------------------------------------------

PUSHT_METRICS = (
    Metric("final_coverage", _info("coverage", lambda one: one[-1]), label="final coverage"),
    Metric("max_coverage", _info("coverage", max), label="maximum coverage"),
    Metric("final_iou", _info("iou", lambda one: one[-1]), label="final IoU"),
    Metric("success", _info("coverage", lambda one: max(one) > SOLVED), format=".1%", interval="wilson"),
    Metric("final_speed", _info("speed", lambda one: one[-LAST_STEPS:].mean()), label="speed at the end",
           higher_is_better=False, format=".2f"),
)  # fmt: skip


def _solved(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    return bool(info["coverage"] > SOLVED)


def pusht_task() -> Task:
    actions = Actions(low=(0, 0), high=(SIDE, SIDE), origin=(OBSERVED, AGENT), names=("x", "y"))
    return Task(
        name="PushT",
        make=partial(make_robot, "PushT"),
        spec=PlanSpec(
            {OBSERVED: Field("vector", (20,))}, actions, {"goals": Stream(len(PUSHT_GOALS), (1,), names=PUSHT_GOALS)}
        ),
        observe=_observe,
        max_steps=ROBOTS["PushT"].max_steps,
        success=_solved,
        infos=("coverage", "iou", "speed"),
        metrics=PUSHT_METRICS,
        action_points=lambda actions: actions / SIDE,
        dataset="genplan/PushT/human-v0",
        transforms=(
            {"name": "finish", "env": "PushT", "steps": 8, "info": "coverage", "least": 0.9},
            {"name": "hold_last", "steps": 24, "goal": REST},
            {"name": "reflection", "field": OBSERVED, "body": PUSHT_POINTS, "size": SIDE},
        ),
        budget_minutes=10.0,
    )


# --- Franka Kitchen --------------------------------------------------------------------------------------------------


def order_of_tasks(completed: Any) -> tuple[int, ...]:
    """The tasks in the order of their completion, from the bits that `info` has at every step."""
    order: list[int] = []
    for bits in np.asarray(completed, np.int64).tolist():
        order += [task for task in range(len(KITCHEN_TASKS)) if bits >> task & 1 and task not in order]
    return tuple(order)


def _num_tasks(completed: Any) -> int:
    return int(completed[-1]).bit_count()


def _order_as_number(completed: Any) -> int:
    """Of the first four tasks: a digit each."""
    return sum((task + 1) * 8**place for place, task in enumerate(order_of_tasks(completed)[:MOST_COUNTED]))


def _at_least(number: int) -> Metric:
    of = _info("completed", lambda one: _num_tasks(one) >= number)
    return Metric(f"p{number}", of, format=".2f", interval="wilson")


KITCHEN_METRICS = (
    Metric("tasks", _info("completed", lambda one: min(_num_tasks(one), MOST_COUNTED)), format=".2f"),
    Metric("tasks_uncapped", _info("completed", _num_tasks), format=".2f", label="tasks, uncapped"),
    *map(_at_least, range(1, MOST_COUNTED + 1)),
    Metric("orders", _info("completed", _order_as_number), format=".0f", reduction="distinct"),
)


def kitchen_task() -> Task:
    return Task(
        name="Kitchen",
        make=partial(make_robot, "Kitchen"),
        spec=PlanSpec(
            {OBSERVED: Field("vector", (30,))},
            Actions(low=JOINT_LOW, high=JOINT_HIGH, origin=(OBSERVED, 0)),
            {"goals": Stream(len(KITCHEN_TASKS), (1,), names=KITCHEN_TASKS)},
        ),
        observe=_observe,
        max_steps=ROBOTS["Kitchen"].max_steps,
        success=None,
        infos=("completed",),
        metrics=KITCHEN_METRICS,
        dataset="genplan/Kitchen/human-v0",
        transforms=({"name": "hold_last", "steps": 8}, SENSOR_NOISE),
        budget_minutes=10.0,
    )


_TASKS = {"PushT": pusht_task, "Kitchen": kitchen_task}


def robot_task(name: str) -> Task:
    """A task of the table of robots. Its simulator is imported when an environment is made."""
    return _TASKS[name]()
