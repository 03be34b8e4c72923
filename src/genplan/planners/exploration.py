"""Exploration around any planner: where nothing new comes of what is done, another action is tried.

Learned planners have it built in (`--exploration` sets it), so that a plan is made around the action that is tried. Any
other is asked for its plan as ever, and where an action is to be tried instead, that action is all that is planned.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.planners.memory import VisitMemory
from genplan.spec import PlanSpec
from genplan.types import Memory, Observations, Oracle, Plan, Planner


class _Explored(NamedTuple):
    own: Memory  # the planner's
    visits: VisitMemory
    last: Observations


class ExploringPlanner:
    """A planner that now and then tries another action. One action is executed per plan."""

    action_steps = 1

    def __init__(self, planner: Planner, spec: PlanSpec, exploration: float) -> None:
        if spec.state_field is None or spec.actions.n is None:
            raise UserError("exploration counts states and actions; expected a task with observed states and discrete "
                            f"actions, found the fields {', '.join(spec.fields)}; leave --exploration out")  # fmt: skip
        if exploration <= 0:
            raise UserError(f"exploration is {exploration}, expected more than 0; leave it out for none")
        self.planner, self.spec, self.exploration = planner, spec, exploration
        self.privileged = planner.privileged

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> _Explored:
        own = self.planner.reset(observations, oracle)
        device = observations[self.spec.state_field or ""].device
        visits = VisitMemory(self.spec, len(observations), device, self.exploration)
        last = Observations({name: one.clone() for name, one in observations.fields.items()})
        return _Explored(own, visits, last)

    def plan(
        self, observations: Observations, memory: _Explored, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, _Explored]:
        plan, own = self.planner.plan(observations, memory.own, rng, ids, oracle)
        tried = memory.visits.exploratory_action(ids, observations[memory.visits.state], rng)
        if bool((tried >= 0).any()):
            plan = Plan(plan.actions[:, :1].where((tried < 0)[:, None], tried[:, None]))
        return plan, memory._replace(own=own)

    def observe(self, memory: _Explored, actions: Tensor, observations: Observations, ids: Tensor) -> _Explored:
        own = self.planner.observe(memory.own, actions, observations, ids)
        memory.visits.update(ids, memory.last[ids], actions, observations)
        for name, kept in memory.last.fields.items():
            kept[ids] = observations[name]
        return memory._replace(own=own)
