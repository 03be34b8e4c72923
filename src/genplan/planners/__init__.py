"""Methods that learn to plan: one file each, with its config and its details; METHODS is the list of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genplan.config import override
from genplan.errors import UserError
from genplan.tasks.files import import_object
from genplan.types import Method

if TYPE_CHECKING:
    from genplan.planners.base import LearnedPlanner
    from genplan.spec import PlanSpec

# CPU-seconds of a training step on one core, by cost class of the task (benchmarks/steps.py, and a twelfth more for the
# job on the other core). They turn a budget in minutes into steps, so that a cell can be trained again exactly.
_CLASSES = ("MazeS4G1", "MazeS7G2", "DoorsOrder", "BlockUnlock", "KeyCorridorS3R3")
_GENPLAN = dict(zip(_CLASSES, (0.134, 0.257, 0.168, 0.113, 0.105), strict=True))
_BC = dict(zip(_CLASSES, (0.075, 0.167, 0.095, 0.060, 0.055), strict=True))
_DT = dict(zip(_CLASSES, (0.090, 0.185, 0.113, 0.075, 0.072), strict=True))
_LEAP = dict(zip(_CLASSES, (0.121, 0.222, 0.152, 0.103, 0.095), strict=True))
_LEAP_ROW = {"iterations": "leap_iterations"}

METHODS: Mapping[str, Method] = {
    "GenPlan-M": Method("genplan.planners.genplan:GenPlan", step_seconds=_GENPLAN),
    "GenPlan-U": Method("genplan.planners.genplan:GenPlan", {"source": "uniform"}, step_seconds=_GENPLAN),
    "BC": Method("genplan.planners.behavior_cloning:BehaviorCloning", step_seconds=_BC),
    "DT": Method("genplan.planners.decision_transformer:DecisionTransformer", step_seconds=_DT),
    "DT-noGC": Method(
        "genplan.planners.decision_transformer:DecisionTransformer", {"privileged_goals": False}, "DT⊖GC",
        step_seconds=_DT,
    ),
    "LEAP": Method("genplan.planners.leap:Leap", played_by_row=_LEAP_ROW, step_seconds=_LEAP),
    "LEAP-noGC": Method(
        "genplan.planners.leap:Leap", {"privileged_goals": False}, "LEAP⊖GC", played_by_row=_LEAP_ROW,
        step_seconds=_LEAP,
    ),
    "LEAP-H": Method(
        "genplan.planners.leap:Leap", {"privileged_goals": False, "entropy_bound": 0.3}, "LEAP⊕H",
        trained_by_row={"entropy_bound": "entropy"}, played_by_row=_LEAP_ROW, step_seconds=_LEAP,
    ),
}  # fmt: skip


def find_method(name: str) -> Method:
    """A method by name: one of METHODS, or `file.py:Class` for a learned planner of one's own."""
    if name in METHODS:
        return METHODS[name]
    if ".py:" in name:
        return Method(name)
    raise UserError(f"there is no method '{name}'; known are {', '.join(METHODS)}, or file.py:Class for your own")


def planner_class(name: str) -> type[LearnedPlanner]:
    """The class of a method; a user's own file is run, but only one that the user named."""
    where = find_method(name).planner
    if ".py:" in where:
        found: Any = import_object(where)
        for attribute in ("Config", "loss", "plan"):
            if not hasattr(found, attribute):
                raise UserError(f"'{where}' has no {attribute}, expected a subclass of LearnedPlanner with its Config")
    else:
        module, _, attribute = where.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    chosen: type[LearnedPlanner] = found
    return chosen


def config_class(name: str) -> type[Any]:
    return planner_class(name).Config


def default_settings(name: str) -> Any:
    """The config that makes a planner this method."""
    return override(config_class(name)(), **find_method(name).settings)


def build(name: str, spec: PlanSpec, config: Any, seed: int = 0) -> LearnedPlanner:
    """A planner that has learnt nothing, with the initial weights of a seed."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return planner_class(name)(spec, config)
