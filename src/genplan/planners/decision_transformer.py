"""DT: a causal transformer over what was wanted, seen and done (Chen et al., 2021), with goals in place of returns.

Details
- Tokens: the mission; the goals, if the simulator tells them; then state, action, state, action, …, of the last
  `context` steps, and the current state. A token attends to itself and those before it; the answer to a state is an
  action.
- States and goals are what the map looks like at their cells; the encoder of map and mission is the one of all
  planners here. What is carried is added to the current state; so is, with a `trail`, what it finds among all states
  visited before, and what was tried in this one: the same memory as that of the other planners.
- As in the GenPlan paper, goals come from the simulator (`oracle`) in planning, and from what demonstrations reached
  in training; `goals` False leaves them out.
- The loss is the cross-entropy of the demonstrated actions, at the current step and at those past steps at which the
  map looked as it does now and, if goals are told, the same goals were ahead. One action per plan, drawn at
  `temperature`.
- Unlike the original: no returns, one goal token for the whole sequence in place of one per step, learnt positions
  per token, and a pointer into the map in place of an embedding of the observation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.config import DTConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
from genplan.flow import Rng
from genplan.models.encoder import Context, Encoder
from genplan.models.places import Places
from genplan.models.trail import TrailReader
from genplan.planners.learned import Learned, Losses, Memory, cloning_loss, drawn_plan, told_goals
from genplan.types import Observations, Oracle, Plan


class DecisionTransformer(Learned):
    config: DTConfig

    def __init__(self, spec: PlanSpec, config: DTConfig) -> None:
        super().__init__(spec, config)
        width = config.width
        self.needs_oracle = config.goals
        self.encoder = Encoder(spec, config)
        self.place = Places(spec, width)
        self.goal = Places(spec, width, of_goals=True) if config.goals else None
        self.action = nn.Embedding(spec.num_actions, width)
        self.features = nn.ModuleList(nn.Embedding(size, width) for size in spec.features)
        self.trail = TrailReader(spec, width, config.heads) if config.trail else None
        self.position = nn.Embedding(1 + spec.num_goals + 2 * config.context + 1, width)
        block = nn.TransformerEncoderLayer(
            width, config.heads, 4 * width, config.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, config.layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, spec.num_actions)

    def logits(
        self, context: Context, features: Tensor | None, past: Past, state: Tensor, goals: Tensor | None
    ) -> Tensor:
        """[B, C + 1, actions]: at every state, knowing no later token."""
        batch, before = past.states.shape
        seen = self.place(context, torch.cat([past.states, state[:, None]], 1))
        for place, embed in enumerate(self.features):
            assert features is not None
            seen = torch.cat([seen[:, :-1], seen[:, -1:] + embed(features[:, place])[:, None]], 1)
        if self.trail is not None:
            seen = torch.cat([seen[:, :-1], seen[:, -1:] + self.trail(context, seen[:, -1], past)[:, None]], 1)
        done = self.action(past.actions)
        steps = torch.stack([seen[:, :before], done], 2).flatten(1, 2)  # state, action, state, action, …
        tokens = [context.mission.repeat_interleave(batch // len(context.mission), 0)[:, None]]
        if self.goal is not None and goals is not None:
            tokens.append(self.goal(context, goals))
        first = sum(part.shape[1] for part in tokens)
        x = torch.cat([*tokens, steps, seen[:, before:]], 1)
        x = x + self.position.weight[-x.shape[1] :]
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        never = torch.zeros(batch, x.shape[1], dtype=torch.bool, device=x.device)
        never[:, first : first + 2 * before] = (~past.valid).repeat_interleave(2, 1)
        x = self.blocks(x, mask=later, src_key_padding_mask=never)
        answer: Tensor = self.head(x[:, first::2])
        return answer

    def loss(self, batch: PlanBatch, rng: Rng) -> Losses:
        context = self.encoder(batch.map, batch.mission, batch.num_maps)
        goals = batch.x_1["goals"][:, 0] if self.config.goals else None
        past = self.tried_in_vain(batch, rng.fold(torch.arange(len(batch), device=batch.map_row.device)))
        answer = self.logits(context, batch.features, past, batch.x_1["states"][:, 0], goals)
        return cloning_loss(answer, batch, same_goals=self.config.goals)

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        context, past = self.recall(observations, memory, rows)
        goals = told_goals(self.spec, oracle, rows) if self.config.goals else None
        answer = self.logits(context, observations.features, past, observations.state, goals)[:, -1]
        urge = self.urge(observations, memory, rng, rows)
        return drawn_plan(answer, self.config.temperature, rng, urge), memory
