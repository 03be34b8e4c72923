"""BC: a recurrent policy that does what the demonstrator did. The simplest thing to try, and the one to be beaten.

Details
- The encoder of map and mission is the one of all planners here. A step is what the map looks like from the agent's
  cell, its heading and the action before; a GRU reads the last `context` steps and the current one; a small network
  answers with the current action. What is carried is added to the current step; so is, with a `trail`, what it finds
  among all states visited before, and what was tried in this one: the same memory as that of the other planners.
- The loss is the cross-entropy of the demonstrated actions, at the current step and at those past steps at which the
  map looked as it does now (of the others, the map as it was then is not at hand).
- One action per plan, drawn at `temperature` (0: the likeliest).
- There is no canonical paper; BabyAI's own imitation learner (Chevalier-Boisvert et al., 2019) sees 7×7 cells and has
  an LSTM that runs through the whole episode. Here the past is read anew from the last steps, so that training and
  planning see the same; what is older is in the trail.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.config import BCConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
from genplan.flow import Rng
from genplan.models.encoder import Context, Encoder
from genplan.models.places import Places
from genplan.models.trail import TrailReader
from genplan.planners.learned import Learned, Losses, Memory, cloning_loss, drawn_plan
from genplan.types import Observations, Oracle, Plan


class BehaviourCloning(Learned):
    config: BCConfig

    def __init__(self, spec: PlanSpec, config: BCConfig) -> None:
        super().__init__(spec, config)
        width = config.width
        self.encoder = Encoder(spec, config)
        self.place = Places(spec, width)
        self.before = nn.Embedding(spec.num_actions + 1, width)  # the last: nothing was done before
        self.features = nn.ModuleList(nn.Embedding(size, width) for size in spec.features)
        self.trail = TrailReader(spec, width, config.heads) if config.trail else None
        self.memory = nn.GRU(width, 2 * width, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(2 * width, 4 * width),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(4 * width, spec.num_actions),
        )

    def logits(self, context: Context, features: Tensor | None, past: Past, state: Tensor) -> Tensor:
        """[B, C + 1, actions]: of the past steps and the current one, each knowing the steps before it."""
        states = torch.cat([past.states, state[:, None]], 1)
        nothing = torch.full_like(state, self.spec.num_actions)[:, None]
        before = torch.cat([nothing, torch.where(past.valid, past.actions, self.spec.num_actions)], 1)
        x = self.place(context, states) + self.before(before)
        x = x * torch.cat([past.valid, torch.ones_like(past.valid[:, :1])], 1)[..., None] if past.valid.shape[1] else x
        x = x + context.mission.repeat_interleave(len(state) // len(context.mission), 0)[:, None]
        for place, embed in enumerate(self.features):
            assert features is not None
            x = torch.cat([x[:, :-1], x[:, -1:] + embed(features[:, place])[:, None]], 1)
        if self.trail is not None:
            x = torch.cat([x[:, :-1], x[:, -1:] + self.trail(context, x[:, -1], past)[:, None]], 1)
        read, _ = self.memory(x)
        answer: Tensor = self.head(read)
        return answer

    def loss(self, batch: PlanBatch, rng: Rng) -> Losses:
        context = self.encoder(batch.map, batch.mission, batch.num_maps)
        past = self.tried_in_vain(batch, rng.fold(torch.arange(len(batch), device=batch.map_row.device)))
        answer = self.logits(context, batch.features, past, batch.x_1["states"][:, 0])
        return cloning_loss(answer, batch)

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        context, past = self.recall(observations, memory, rows)
        answer = self.logits(context, observations.features, past, observations.state)[:, -1]
        urge = self.urge(observations, memory, rng, rows)
        return drawn_plan(answer, self.config.temperature, rng, urge), memory
