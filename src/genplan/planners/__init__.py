"""Methods that learn to plan: one file each, with its config and its details; METHODS is the list of them."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from genplan.config import override
from genplan.errors import UserError
from genplan.tasks.files import import_object
from genplan.types import Method

if TYPE_CHECKING:
    from genplan.models.codecs import ActionCodec
    from genplan.planners.base import LearnedPlanner
    from genplan.spec import PlanSpec


def _method(planner: str, *seconds: float) -> Method:
    """With the CPU-seconds of a training step on one core while the other works, by cost class of the task.

    They turn a budget in minutes into steps, so that a cell can be trained again exactly; as they were measured when
    the cells of the method were trained (benchmarks/steps.py; machines differ).
    """
    classes = ("MazeS4G1", "MazeS7G2", "DoorsOrder", "BlockUnlock", "KeyCorridorS3R3", "PushT", "Kitchen")
    return Method(f"genplan.planners.{planner}", step_seconds=dict(zip(classes, seconds, strict=False)))


def _chunk_method(planner: str, pusht: float, kitchen: float) -> Method:
    """For continuous actions alone."""
    return Method(f"genplan.planners.{planner}", continuous=True, step_seconds={"PushT": pusht, "Kitchen": kitchen})


_GENPLAN = _method("genplan:GenPlan", 0.120, 0.225, 0.150, 0.100, 0.092, 0.109, 0.134)
_BC = _method("behavior_cloning:BehaviorCloning", 0.056, 0.125, 0.066, 0.042, 0.040)
_DT = _method("decision_transformer:DecisionTransformer", 0.070, 0.143, 0.083, 0.055, 0.053)
_LEAP = replace(
    _method("leap:Leap", 0.100, 0.180, 0.122, 0.083, 0.077), played_by_row={"iterations": "leap_iterations"}
)
_DP, _REGRESSION = "diffusion_policy:DiffusionPolicy", "regression:Regression"
_CHUNK_METHODS = {
    "VQ-BeT": _chunk_method("vq_bet:VQBeT", 0.082, 0.106),
    "DP-C": _chunk_method(_DP, 0.147, 0.143),
    "DP-T": replace(_chunk_method(_DP, 0.153, 0.149), settings={"denoiser": "transformer"}),
    "Regression": _chunk_method(_REGRESSION, 0.023, 0.023),
    "MIP": replace(_chunk_method(_REGRESSION, 0.036, 0.036), settings={"two_steps": True}),
}
_OWN_GOALS = {"predict_goals": False}  # of methods that predict their goals themselves
_NO_GOALS, _STEP_MODEL = {"privileged_goals": False}, {"step_model": True}

METHODS: Mapping[str, Method] = {
    "GenPlan-M": replace(_GENPLAN, adapts=True),
    "GenPlan-M-noGC": replace(_GENPLAN, settings=_OWN_GOALS, label="GenPlan-M⊖GC", adapts=True),
    # Where actions are codes: goals alone are planned, and the chunk follows from what is observed and the goal.
    "GenPlan-M-G": replace(_GENPLAN, settings={"used_levels": 0}, label="GenPlan-M⊖codes", trained_as="GenPlan-M"),
    "GenPlan-U": replace(_GENPLAN, settings={"source": "uniform"}),
    "BC": _BC,
    "DT": _DT,
    "DT-noGC": replace(_DT, settings=_NO_GOALS, label="DT⊖GC"),
    "LEAP": _LEAP,
    "LEAP-noGC": replace(_LEAP, settings=_NO_GOALS, label="LEAP⊖GC"),
    "LEAP-H": replace(
        _LEAP, settings={**_NO_GOALS, "entropy_bound": 0.3}, label="LEAP⊕H", trained_by_row={"entropy_bound": "entropy"}
    ),
    "BC-step": replace(_BC, settings=_STEP_MODEL, label="BC⊕S", adapts=True),
    **_CHUNK_METHODS,
    **{
        f"{name}-noGC": replace(one, settings={**one.settings, **_OWN_GOALS}, label=f"{name}⊖GC")
        for name, one in _CHUNK_METHODS.items()
    },
    "LEAP-step": replace(_LEAP, settings={**_NO_GOALS, **_STEP_MODEL}, label="LEAP⊖GC⊕S", adapts=True),
}


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
        found = pkgutil.resolve_name(where)
    chosen: type[LearnedPlanner] = found
    return chosen


def codec_class(name: str) -> type[ActionCodec]:
    """A codec of CODECS by name, or `file.py:Class`; a user's own file is run, but only one that the user named."""
    from genplan.models.codecs import CODECS, ActionCodec

    found = import_object(name) if ".py:" in name and name not in CODECS else CODECS.get(name)
    if not (isinstance(found, type) and issubclass(found, ActionCodec)):
        raise UserError(f"'{name}' is no codec; known are {', '.join(CODECS)}, or file.py:Class, of ActionCodec")
    return found


def use_codec(name: str | None) -> None:
    """Let settings name a codec of the user's own, `file.py:Class`: only ever one that the user named."""
    if name is not None and ".py:" in name:
        from genplan.models.codecs import CODECS

        CODECS[name] = codec_class(name)


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
