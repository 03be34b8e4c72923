"""DT: a causal transformer over what was wanted, observed and done (Chen et al., 2021), with goals in place of returns.

Details
- Tokens: the mission; the goals, if the simulator tells them; then state, action, state, action, …, of the past steps
  of the context, and the current state. A token attends to itself and those before it; a state's answer is an action.
- States and goals are what the grid looks like at their cells (without a grid, a state is all step fields); the encoder
  of the scene is the one of all planners here. What is carried is added to the current state; so is, with visit memory,
  what it finds among all states visited before, and what was done in this one.
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

from genplan.models import encoders
from genplan.models.settings import CodecConfig, MemoryConfig, NetworkConfig, at_least
from genplan.planners.one_step import OneStepPlanner
from genplan.spec import PlanSpec
from genplan.types import History, Observations


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


class DecisionTransformer(OneStepPlanner):
    Config = DTConfig
    config: DTConfig
    variants = ("privileged_goals",)

    def __init__(self, spec: PlanSpec, config: DTConfig) -> None:
        super().__init__(spec, config)
        network, memory, width = config.network, config.memory, config.network.hidden_size
        self.encoder = encoders.SceneEncoder(spec, network)
        self.step = encoders.StepEmbedding(spec, network)
        self.goal = encoders.LocationEmbedding(spec.streams["goals"], width) if config.privileged_goals else None
        self.action = encoders.ActionEmbedding(spec.actions, width)
        self.current = encoders.StepEncoder(spec, encoders.current_fields(spec), network)
        self.visited = encoders.VisitedAttention(spec, network) if memory.visit_memory else None
        self.position = nn.Embedding(1 + spec.num_goals + 2 * memory.num_past + 1, width)
        block = nn.TransformerEncoderLayer(
            width, network.num_heads, 4 * width, network.dropout, "gelu", batch_first=True, norm_first=True
        )
        layers = network.num_layers
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, self.num_logits)
        self.size_free = spec.grid_field is not None

    def logits(
        self, encoding: encoders.Encoding, current: Observations, history: History, goals: Tensor | None
    ) -> Tensor:
        batch, before = history.valid.shape
        states = self.with_current(self.step(encoding, history, current), encoding, current, history)
        done = self.action(history.actions)
        steps = torch.stack([states[:, :before], done], 2).flatten(1, 2)  # state, action, state, action, …
        tokens = [encoding.condition.repeat_interleave(batch // len(encoding.condition), 0)[:, None]]
        if self.goal is not None:
            tokens.append(self.goal(encoding, goals))
        first = sum(part.shape[1] for part in tokens)
        x = torch.cat([*tokens, steps, states[:, before:]], 1)
        x = x + self.position.weight[-x.shape[1] :]
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        never = torch.zeros(batch, x.shape[1], dtype=torch.bool, device=x.device)
        never[:, first : first + 2 * before] = (~history.valid).repeat_interleave(2, 1)
        x = self.blocks(x, mask=later, src_key_padding_mask=never)
        answer: Tensor = self.head(x[:, first::2])
        return answer
