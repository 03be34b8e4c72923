"""Planners whose plans are one step: policies that answer with the next action, learnt by behavior cloning."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from genplan.flow import Rng, apply_temperature
from genplan.models.encoders import Encoding, StepEncoder, VisitedAttention
from genplan.planners.chained import ChainPlanner
from genplan.planners.memory import PlannerMemory
from genplan.types import Batch, History, Losses, Observations, Plan, WindowNeeds


class OneStepPlanner(ChainPlanner):
    """To be given `logits`; its Config has a `temperature`.

    The loss is the cross-entropy of the demonstrated actions, at the current step and at those past steps at which the
    scene was as it is now and, with privileged goals, the same goals were ahead. Past steps count only where an action
    is a step of the plan by itself: chunks and actions relative to a step are left out.
    """

    current: StepEncoder
    visited: VisitedAttention | None

    def logits(self, encoding: Encoding, current: Observations, history: History, goals: Tensor | None) -> Tensor:
        """[B, C + 1, num_logits], of the past steps and the current one, each knowing the steps before it."""
        raise NotImplementedError

    @property
    def num_logits(self) -> int:
        """Of one step: the tokens of its codes, one code after the other."""
        return math.prod(self.codec.stream.shape) * self.codec.stream.size

    @property
    def needs(self) -> WindowNeeds:
        number = self.codec.chunk if self.step_model is None else 2  # a step model learns where it leads as well
        return super().needs._replace(horizon=number)

    def with_current(self, x: Tensor, encoding: Encoding, current: Observations, history: History) -> Tensor:
        """Steps [B, C + 1, D], with what else is known of the last one: its other fields, and the visit memory."""
        last = self.current(current, x[:, -1])
        if self.visited is not None:
            last = last + self.visited(encoding, last, history)
        return torch.cat([x[:, :-1], last[:, None]], 1)

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        encoding = self.encoder(batch.scene, batch.num_scenes)
        goals = batch.tokens["goals"][:, 0] if self.privileged else None
        rows = rng.fold(torch.arange(len(batch), device=batch.actions.device))
        logits = self.logits(encoding, batch.current, self.with_failed_actions(batch, rows), goals)
        logits = logits.reshape(*logits.shape[:2], *self.codec.stream.shape, -1)
        tokens, counts = self._targets(batch)
        nll = functional.cross_entropy(logits.flatten(0, -2), tokens.flatten(), reduction="none")
        loss = (nll * counts.flatten()).sum() / counts.sum()
        correct = (logits[:, -1].argmax(-1) == tokens[:, -1]).float().mean()
        return Losses(loss, {"loss/actions": loss.detach(), "accuracy/actions": correct})

    def _targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Action tokens [B, C + 1, *codes] of past steps and the current one, and which count in the loss."""
        tokens, valid = (part[:, :1] for part in self.action_tokens(batch))
        history = batch.history
        if self.codec.chunk > 1 or self.spec.actions.origin is not None:
            past = tokens.new_zeros(len(tokens), history.valid.shape[1], *tokens.shape[2:])
            return torch.cat([past, tokens], 1), torch.cat([past.bool(), valid], 1)
        alike = history.valid
        for same in (history.same_scene, history.same_goals if self.privileged else None):
            alike = alike if same is None else alike & same
        past = self.codec.encode(history.actions, None)
        alike = alike.reshape(*alike.shape, *(1 for _ in past.shape[2:])).expand_as(past)
        return torch.cat([past, tokens], 1), torch.cat([alike, valid], 1)

    def make_plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, goals: Tensor | None,
        keep_trace: bool,
    ) -> Plan:  # fmt: skip
        """Drawn from the logits, or with the step model from both, unless another action is to be tried first."""
        encoding, history = self.conditioning(observations, memory, ids)
        logits = self.logits(encoding, observations.only(self.spec.step_fields), history, goals)[:, -1:]
        log_p = logits.reshape(len(ids), 1, *self.codec.stream.shape, -1).log_softmax(-1)
        first = self.exploratory_action(observations, memory, rng, ids)
        if self.step_model is not None:
            return self.draw_chain(log_p, observations, memory, rng, ids, first, self.config.temperature)
        tokens = rng.categorical(apply_temperature(log_p, self.config.temperature))  # [n, 1, *codes]
        if first is not None:
            tokens = torch.where(first[:, None] >= 0, first[:, None], tokens)
        energy = -log_p.gather(-1, tokens[..., None]).flatten(1).sum(-1)
        actions = self.codec.decode(tokens, self.origin(observations))
        confidence = energy.neg().exp()[:, None].expand(-1, actions.shape[1])
        return Plan(actions, {"actions": tokens}, energy=energy, confidence=confidence)
