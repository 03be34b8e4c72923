"""What planners with a step model share: it is learnt before the training, adapts in the episode, and draws chains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genplan.data.windows import TaskMixture, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.models.step import GridStepModel, StepModel, make_step_model
from genplan.planners.adaptation import Adaptation
from genplan.planners.base import LearnedPlanner
from genplan.planners.chain import Chain
from genplan.planners.memory import PlannerMemory, VisitMemory
from genplan.planners.step_training import fit_step_model
from genplan.spec import PlanSpec
from genplan.types import Observations, Oracle, Plan


class ChainPlanner(LearnedPlanner):
    """A planner that may have a `step_model`; the Config of one that has it says how in `chain`, a ChainConfig."""

    step_model: StepModel | None

    def __init__(self, spec: PlanSpec, config: Any) -> None:
        super().__init__(spec, config)
        self.step_model = None

    @property
    def draws_chains(self) -> bool:
        """Whether plans are drawn by the step model."""
        return self.step_model is not None

    def pretrain(
        self, windows: Windows | TaskMixture, held_out: Windows | TaskMixture, most_steps: int
    ) -> dict[str, float]:
        """The step model, if there is one."""
        if self.step_model is None:
            return {}
        steps = min(self.config.chain.step_model_steps, most_steps)
        return fit_step_model(self.step_model, windows, held_out, steps)

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> PlannerMemory:
        memory, size = super().reset(observations, oracle), len(observations)
        if self.draws_chains and self.config.chain.adapt and isinstance(self.step_model, GridStepModel):
            memory.adaptation = Adaptation(self.spec, self.step_model, size)
            memory.visits = memory.visits or VisitMemory(self.spec, size, self.device, 0.0)
        return memory

    def chain_head(self, observations: Observations, memory: PlannerMemory, ids: Tensor, temperature: float) -> Chain:
        """What draws a chain for each of the episodes `ids`."""
        assert self.step_model is not None
        adaptation = memory.adaptation
        visits = None if adaptation is None or memory.visits is None else memory.visits.counts[ids].sum(-1).float()
        parts = (self.config.chain, temperature, observations, adaptation, ids, visits)
        return Chain(self.spec, self.step_model, *parts)

    def draw_chain(
        self, log_u: Tensor, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor,
        first: Tensor | None, temperature: float,
    ) -> Plan:  # fmt: skip
        """Plans by marginals of actions alone, [n, H, A], in one go.

        first  the action that a plan is to begin with, −1 where there is none
        """
        number, length, _ = log_u.shape
        now = (torch.arange(length, device=log_u.device) == 0).expand(number, -1)
        first = torch.full_like(ids, -1) if first is None else first
        x_0 = {"states": observations[self.spec.state_field or ""][:, None].expand(-1, length),
               "actions": first[:, None].expand(-1, length)}  # fmt: skip
        given = {"states": now, "actions": now & (first >= 0)[:, None]}
        head = self.chain_head(observations, memory, ids, temperature)
        head.start(x_0, given, rng)
        drawn = head.propose({"actions": log_u}, 0, length).tokens
        actions = torch.where(given["actions"], x_0["actions"], drawn["actions"])
        tokens = {"actions": actions} if length == 1 else {**drawn, "actions": actions}  # the current state is known
        nll = -log_u.gather(-1, actions[..., None]).squeeze(-1)
        confidence, actions = nll.neg().exp(), self.codec.decode(actions, None)
        sure = self._sure_steps(confidence)
        return Plan(actions, tokens, energy=nll.sum(1), confidence=confidence, cut=True, sure_steps=sure)

    def _sure_steps(self, confidence: Tensor) -> Tensor:
        """Actions of plans [n, H] before the first that is not sure; at least one."""
        doubtful = confidence < self.config.chain.min_confidence
        doubtful[:, 0] = False
        return torch.where(doubtful.any(1), doubtful.int().argmax(1), confidence.shape[1])


def required_step_model(spec: PlanSpec) -> StepModel:
    """Of methods that are nothing without one."""
    if (model := make_step_model(spec)) is None:
        raise UserError(
            "the method needs a step model, and the task's steps cannot be learnt: expected observed states and "
            "discrete actions, and beside them categories at most; use BC or LEAP-noGC"
        )
    return model
