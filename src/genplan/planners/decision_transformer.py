"""DT: a causal transformer over what was wanted, observed and done (Chen et al., 2021), with goals in place of returns.

Details
- Tokens: the mission; the goals, if the simulator tells them; then state, action, state, action, …, of the past steps
  of the context, and the current state. A token attends to itself and those before it; the answer to a state is an
action. - States and goals are what the grid looks like at their cells (without a grid, a state is all step fields); the
  encoder of the scene is the one of all planners here. What is carried is added to the current state; so is, with visit
  memory, what it finds among all states visited before, and what was done in this one.
- As in the GenPlan paper, goals come from the simulator (`oracle`) in planning, and from what demonstrations reached in
  training; `privileged_goals` False leaves them out.
- The loss is the cross-entropy of the demonstrated actions, at the current step and at those past steps at which the
  scene was as it is now and, with goals, the same goals were ahead. One step per plan, drawn at `temperature`.
- Unlike the original: no returns, one goal token for the whole sequence in place of one per step, learnt positions per
  token, and a pointer into the grid in place of an embedding of the observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.models.codecs import CodecConfig
from genplan.models.encoders import ActionEmbedding, SceneEncoder, StepEmbedding, StepEncoder, current_fields
from genplan.models.encoding import Encoding
from genplan.models.grid import LocationEmbedding, VisitedAttention
from genplan.planners.base import (
    LearnedPlanner,
    MemoryConfig,
    NetworkConfig,
    at_least,
    bc_loss,
    past_and_current,
    privileged_goals,
    sample_action,
)
from genplan.planners.memory import PlannerMemory
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Oracle, Plan, WindowNeeds


@dataclass(frozen=True)
class DTConfig:
    """Of DT, the decision transformer."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    subgoal_types: tuple[str, ...] = ("target",)
    privileged_goals: bool = True  # from the simulator
    temperature: float = 0.5

    def __post_init__(self) -> None:
        at_least(self, 0, "temperature")


class DecisionTransformer(LearnedPlanner):
    Config = DTConfig
    config: DTConfig

    def __init__(self, spec: PlanSpec, config: DTConfig) -> None:
        super().__init__(spec, config)
        if config.privileged_goals and spec.goals is None:
            raise UserError("DT gets its goals from the simulator, and the task has no goals; use DT-noGC")
        network, memory = config.network, config.memory
        width, sizes = network.hidden_size, network.sizes
        self.privileged = config.privileged_goals
        self.encoder = SceneEncoder(spec, sizes)
        self.step = StepEmbedding(spec, sizes)
        self.goal = None
        if config.privileged_goals and spec.goals is not None:
            self.goal = LocationEmbedding(spec.goals, width)
        self.action = ActionEmbedding(spec.actions, width)
        self.current = StepEncoder(spec, current_fields(spec), sizes)
        self.visited = VisitedAttention(spec, width, network.num_heads) if memory.visit_memory else None
        self.position = nn.Embedding(1 + spec.num_goals + 2 * memory.num_past + 1, width)
        block = nn.TransformerEncoderLayer(
            width, network.num_heads, 4 * width, network.dropout, "gelu", batch_first=True, norm_first=True
        )
        layers = network.num_layers
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        codes = self.codec.stream
        self.head = nn.Linear(width, torch.Size(codes.shape).numel() * codes.size)
        self.size_free = spec.grid_field is not None

    @property
    def needs(self) -> WindowNeeds:
        return super().needs._replace(horizon=self.codec.chunk)

    def logits(self, encoding: Encoding, current: Observations, history: History, goals: Tensor | None) -> Tensor:
        """[B, C + 1, *codes, S]: at every state, knowing no later token."""
        batch, before = history.valid.shape
        x = self.step(encoding, history, current)
        last = self.current(current, x[:, -1])
        if self.visited is not None:
            last = last + self.visited(encoding, last, history)
        states = torch.cat([x[:, :-1], last[:, None]], 1)
        done = self.action(history.actions)
        steps = torch.stack([states[:, :before], done], 2).flatten(1, 2)  # state, action, state, action, …
        tokens = [encoding.condition.repeat_interleave(batch // len(encoding.condition), 0)[:, None]]
        if self.goal is not None and goals is not None:
            tokens.append(self.goal(encoding, goals))
        first = sum(part.shape[1] for part in tokens)
        x = torch.cat([*tokens, steps, states[:, before:]], 1)
        x = x + self.position.weight[-x.shape[1] :]
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        never = torch.zeros(batch, x.shape[1], dtype=torch.bool, device=x.device)
        never[:, first : first + 2 * before] = (~history.valid).repeat_interleave(2, 1)
        x = self.blocks(x, mask=later, src_key_padding_mask=never)
        answer: Tensor = self.head(x[:, first::2])
        codes = self.codec.stream
        return answer.reshape(*answer.shape[:2], *codes.shape, codes.size)

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        encoding = self.encoder(batch.scene, batch.num_scenes)
        goals = batch.tokens["goals"][:, 0] if self.config.privileged_goals else None
        rows = rng.fold(torch.arange(len(batch), device=batch.actions.device))
        history = self.with_failed_actions(batch, rows, batch.actions[:, 0])
        logits = self.logits(encoding, batch.current, history, goals)
        return bc_loss(logits, *past_and_current(self, batch, same_goals=self.config.privileged_goals))

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, PlannerMemory]:  # fmt: skip
        goals = privileged_goals(self.spec, oracle, ids).to(self.device) if self.config.privileged_goals else None
        observations, ids, rng = observations.to(self.device), ids.to(self.device), Rng(rng.key.to(self.device))
        encoding, history = self.conditioning(observations, memory, ids)
        current = observations.only(self.spec.step_fields)
        logits = self.logits(encoding, current, history, goals)[:, -1]
        first = self.exploratory_action(observations, memory, rng, ids)
        return sample_action(self, logits, current, rng, first), memory
