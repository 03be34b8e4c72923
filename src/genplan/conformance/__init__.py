"""Conformance: rules that whatever is added must keep, and their check of a user's own task, planner, method, …

Each kind has one file of rules; `check` decides which by what is handed to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genplan import names, tasks
from genplan.conformance import metric, planner, task
from genplan.conformance.codec import check_codec
from genplan.conformance.method import check_method
from genplan.conformance.rules import Finding, apply_rules
from genplan.errors import UserError
from genplan.models.codecs import CODECS, ActionCodec
from genplan.planners import METHODS
from genplan.planners.base import LearnedPlanner
from genplan.tasks.files import import_object
from genplan.types import Method, Metric, Task

__all__ = ["TASK", "Finding", "check", "check_codec", "check_method"]
TASK = "MazeS4G1"  # of planners and metrics, if no other is named


def check(name: str, task_name: str | None = None) -> Iterator[Finding]:
    """All rules of what `name` names: file.py:Thing, or a task, method or codec that ships.

    task_name  the task on which a planner or metric is checked
    """
    known: dict[str, Any] = {**METHODS, **CODECS}
    found = known.get(name) or (import_object(name) if ".py:" in name else tasks.get(name))
    is_method = isinstance(found, type) and (issubclass(found, LearnedPlanner) or hasattr(found, "Config"))
    if isinstance(found, Task):
        yield from apply_rules(task.RULES, task.TaskCase(found))
    elif isinstance(found, Metric):
        yield from apply_rules(metric.RULES, metric.MetricCase(found, tasks.get(task_name or TASK)))
    elif isinstance(found, type) and issubclass(found, ActionCodec):
        yield from check_codec(name)
    elif is_method or isinstance(found, Method):
        yield from check_method(name)
    elif callable(found) or any(hasattr(found, method) for method in ("plan", "reset", "observe")):
        chosen = tasks.get(task_name or TASK)
        try:
            loaded = names.load_planner(name, chosen)
        except UserError as error:
            yield Finding("is a planner", "", "broken", str(error))
        else:
            yield from apply_rules(planner.RULES, planner.PlannerCase(loaded, chosen))
    else:
        raise UserError(f"'{name}' is a {type(found).__name__}, expected a Task, a Metric or a planner, or a class of "
                        "LearnedPlanner (a method) or ActionCodec")  # fmt: skip
