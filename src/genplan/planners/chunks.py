"""Planners whose plan is one chunk of continuous actions: what they observe, and the goal that they draw."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.errors import UserError
from genplan.flow import Rng, apply_temperature
from genplan.models.chunk_scale import ChunkScale
from genplan.models.codecs import ActionCodec
from genplan.models.encoders import Encoding, SceneEncoder
from genplan.models.stack import ObservationStack
from genplan.planners.base import LearnedPlanner
from genplan.planners.memory import PlannerMemory
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Plan

RNG_GOAL = "goal"  # label of random draws: never renamed


class GoalHead(nn.Module):
    """The next goal, as a class: its logits by what is observed, and what each goal looks like to the rest."""

    def __init__(self, spec: PlanSpec, width: int) -> None:
        super().__init__()
        assert spec.goals is not None
        self.shape, self.size = spec.goals.shape, spec.goals.size
        self.logits = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
            nn.Linear(2 * width, spec.num_goals * self.size),
        )  # fmt: skip
        self.embed = nn.ModuleList(nn.Embedding(self.size, width) for _ in range(spec.num_goals))

    def forward(self, context: Tensor) -> Tensor:
        """[B, D] -> [B, G, S]."""
        answer: Tensor = self.logits(context).reshape(len(context), -1, self.size)
        return answer

    def shown(self, goals: Tensor) -> Tensor:
        """Goals [B, G] -> [B, D], to be added to the context."""
        columns = zip(self.embed, goals.unbind(1), strict=True)
        return torch.stack([embed(column) for embed, column in columns]).sum(0)


class ChunkPlanner(LearnedPlanner):
    """To be given `chunk_loss` and `draw_chunk`. Its Config has `network`, `memory`, `horizon`, `action_steps`,
    `predict_goals` and `goal_temperature`.

    With `predict_goals`, where the task has goals, the goal that is next is learnt as a class from what is observed,
    drawn when planning, and shown to everything else: the same labels that GenPlan's goal stream has.
    """

    options: ClassVar[tuple[str, ...]] = ("action_steps", "goal_temperature")
    size_free = False
    codec: ChunkScale

    def __init__(self, spec: PlanSpec, config: Any) -> None:
        super().__init__(spec, config)
        if spec.grid_field is not None:
            raise UserError("the method knows no states on a grid, found them; use GenPlan-M or BC")
        network, width = self.config.network, self.config.network.hidden_size
        self.encoder = SceneEncoder(spec, network)
        self.stack = ObservationStack(spec, spec.step_fields, network, self.config.memory)
        sees_goals = self.config.predict_goals and spec.goals is not None
        self.goal = GoalHead(spec, width) if sees_goals else None

    def make_codec(self, spec: PlanSpec, config: Any) -> ActionCodec:
        """Numbers, and no codes: a plan is one chunk."""
        return ChunkScale(spec.actions, config.horizon)

    def context(self, encoding: Encoding, current: Observations, history: History, copies: int) -> Tensor:
        """What is observed, [B, D]."""
        context: Tensor = encoding.condition.repeat_interleave(copies, 0) + self.stack(current, history)
        return context

    def chunk_loss(self, context: Tensor, batch: Batch, goals: Tensor | None, valid: Tensor, rng: Rng) -> Losses:
        """Of the chunks [B] that are `valid`; `rng` has a key per window."""
        raise NotImplementedError

    def draw_chunk(self, context: Tensor, history: History, goals: Tensor | None, observations: Observations, rng: Rng
                   ) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
        """Actions [n, H, *A], and the tokens that they were made of, if any."""
        raise NotImplementedError

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        rows = rng.fold(torch.arange(len(batch), device=batch.actions.device))
        encoding = self.encoder(batch.scene, batch.num_scenes)
        context = self.context(encoding, batch.current, batch.history, batch.windows_per_scene)
        valid, goals = batch.valid["actions"].all(1), None
        metrics: dict[str, Tensor] = {}
        total = context.new_zeros(())
        if self.goal is not None:
            goals, known = (part["goals"][:, 0].flatten(1) for part in (batch.tokens, batch.valid))
            logits = self.goal(context)
            nll = functional.cross_entropy(logits.flatten(0, 1), goals.flatten(), reduction="none").view_as(goals)
            metrics["loss/goals"] = (nll * known).sum() / known.sum().clamp(min=1)
            correct = (logits.argmax(-1) == goals) & known
            metrics["accuracy/goals"] = correct.sum() / known.sum().clamp(min=1)
            total = total + metrics["loss/goals"]
            context, valid = context + self.goal.shown(goals), valid & known.all(1)
        found = self.chunk_loss(context, batch, goals, valid, rows)
        metrics = {name: one.detach() for name, one in {**metrics, **found.metrics}.items()}
        return Losses(total + found.total, metrics)

    def make_plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, goals: Tensor | None,
        keep_trace: bool,
    ) -> Plan:  # fmt: skip
        encoding, history = self.conditioning(observations, memory, ids)
        context = self.context(encoding, observations.only(self.spec.step_fields), history, 1)
        tokens: dict[str, Tensor] = {}
        if self.goal is not None:
            probs = apply_temperature(self.goal(context).log_softmax(-1), self.config.goal_temperature)
            drawn = rng.fold(RNG_GOAL).categorical(probs)
            tokens["goals"] = drawn.reshape(len(ids), 1, *self.goal.shape)
            context = context + self.goal.shown(drawn)
        actions, codes = self.draw_chunk(context, history, tokens.get("goals"), observations, rng)
        return Plan(actions, {**tokens, **codes})


def mean_over(errors: Tensor, valid: Tensor) -> Tensor:
    """Of errors [B, …], the mean over the rows that are valid [B]."""
    return (errors.flatten(1).mean(1) * valid).sum() / valid.sum().clamp(min=1)
