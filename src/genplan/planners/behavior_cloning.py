"""BC: a recurrent policy that does what the demonstrator did. The simplest thing to try, and the one to be beaten.

Details
- The encoder of the scene is the one of all planners here. A step is what the grid looks like at the agent's cell with
  its direction (without a grid: all step fields), and the action before; a GRU reads the past steps of the context and
  the current one; a small network answers with the current action's tokens. What is carried is added to the current
  step; so is, with visit memory, what it finds among all states visited before, and what was done in this one.
- The loss is the cross-entropy of the demonstrated actions, at the current step and at those past steps at which the
  scene was as it is now (of the others, the scene as it was then is not at hand).
- One step per plan, drawn at `temperature` (0: the likeliest).
- There is no canonical paper; BabyAI's own imitation learner (Chevalier-Boisvert et al., 2019) sees 7×7 cells and has
  an LSTM that runs through the whole episode. Here the past is read anew from the last steps, so that training and
  planning see the same; what is older is in the visit memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from genplan.flow import Rng
from genplan.models.codecs import CodecConfig
from genplan.models.encoders import ActionEmbedding, SceneEncoder, StepEmbedding, StepEncoder, current_fields
from genplan.models.encoding import Encoding
from genplan.models.grid import VisitedAttention
from genplan.planners.base import (
    EncoderConfig,
    LearnedPlanner,
    MemoryConfig,
    at_least,
    bc_loss,
    past_and_current,
    sample_action,
)
from genplan.planners.memory import PlannerMemory
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Oracle, Plan, WindowNeeds


@dataclass(frozen=True)
class BCConfig:
    """Of BC, behavior cloning."""

    network: EncoderConfig = field(default_factory=EncoderConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    temperature: float = 0.5

    def __post_init__(self) -> None:
        at_least(self, 0, "temperature")


class BehaviorCloning(LearnedPlanner):
    Config = BCConfig
    config: BCConfig

    def __init__(self, spec: PlanSpec, config: BCConfig) -> None:
        super().__init__(spec, config)
        width, sizes = config.network.hidden_size, config.network.sizes
        self.encoder = SceneEncoder(spec, sizes)
        self.step = StepEmbedding(spec, sizes)
        self.previous_action = ActionEmbedding(spec.actions, width, num_extra=1)
        self.current = StepEncoder(spec, current_fields(spec), sizes)
        self.visited = VisitedAttention(spec, width, config.network.num_heads) if config.memory.visit_memory else None
        self.gru = nn.GRU(width, 2 * width, batch_first=True)
        codes = self.codec.stream
        self.head = nn.Sequential(
            nn.Linear(2 * width, 4 * width),
            nn.GELU(),
            nn.Dropout(config.network.dropout),
            nn.Linear(4 * width, torch.Size(codes.shape).numel() * codes.size),
        )
        self.size_free = spec.grid_field is not None

    @property
    def needs(self) -> WindowNeeds:
        return super().needs._replace(horizon=self.codec.chunk)

    def logits(self, encoding: Encoding, current: Observations, history: History) -> Tensor:
        """[B, C + 1, *codes, S]: of the past steps and the current one, each knowing the steps before it."""
        x = self.step(encoding, history, current)
        none = torch.zeros_like(history.valid[:, :1]) if history.valid.shape[1] else history.valid.new_zeros(len(x), 1)
        padding = history.actions.new_zeros(len(x), 1, *history.actions.shape[2:])
        before, done = torch.cat([padding, history.actions], 1), torch.cat([none, history.valid], 1)
        x = x + self.previous_action(before, done)
        if history.valid.shape[1]:
            x = x * torch.cat([history.valid, torch.ones_like(history.valid[:, :1])], 1)[..., None]
        x = x + encoding.condition.repeat_interleave(len(x) // len(encoding.condition), 0)[:, None]
        last = self.current(current, x[:, -1])
        if self.visited is not None:
            last = last + self.visited(encoding, last, history)
        x = torch.cat([x[:, :-1], last[:, None]], 1)
        read, _ = self.gru(x)
        answer: Tensor = self.head(read)
        codes = self.codec.stream
        return answer.reshape(*answer.shape[:2], *codes.shape, codes.size)

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        encoding = self.encoder(batch.scene, batch.num_scenes)
        rows = rng.fold(torch.arange(len(batch), device=batch.actions.device))
        history = self.with_failed_actions(batch, rows, batch.actions[:, 0])
        return bc_loss(self.logits(encoding, batch.current, history), *past_and_current(self, batch))

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, PlannerMemory]:  # fmt: skip
        observations, ids, rng = observations.to(self.device), ids.to(self.device), Rng(rng.key.to(self.device))
        encoding, history = self.conditioning(observations, memory, ids)
        current = observations.only(self.spec.step_fields)
        logits = self.logits(encoding, current, history)[:, -1]
        first = self.exploratory_action(observations, memory, rng, ids)
        return sample_action(self, logits, current, rng, first), memory
