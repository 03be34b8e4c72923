"""BC: a recurrent policy that does what the demonstrator did. The simplest thing to try, and the one to be beaten.

Details
- The encoder of the scene is the one of all planners here. A step is what the grid looks like at the agent's cell with
  its direction (without a grid: all step fields), and the action before; a GRU reads the past steps of the context and
  the current one; a small network answers with the current action's tokens. What is carried is added to the current
  step; so is, with visit memory, what it finds among all states visited before, and what was done in this one.
- The loss is the cross-entropy of the demonstrated actions, at the current step and at those past steps at which the
  scene was as it is now (of the others, the scene as it was then is not at hand).
- One step per plan, drawn at `temperature` (0: the likeliest).
- BC⊕S (`step_model`) learns GenPlan's model of one step before, and draws its action by a chain of one step (chain.py):
  the log-probability is added to what the step model says of the action before what is ahead, and to what was observed
  in the episode (adaptation.py). It looks no further: what a preparation is good for, it does not see.
- There is no canonical paper; BabyAI's own imitation learner (Chevalier-Boisvert et al., 2019) sees 7×7 cells and has
  an LSTM that runs through the whole episode. Here the past is read anew from the last steps, so that training and
  planning see the same; what is older is in the visit memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from genplan.models import encoders
from genplan.models.settings import CodecConfig, EncoderConfig, MemoryConfig, at_least
from genplan.planners.chain import OPTIONS, ChainConfig
from genplan.planners.chained import required_step_model
from genplan.planners.one_step import OneStepPlanner
from genplan.spec import PlanSpec
from genplan.types import History, Observations


@dataclass(frozen=True)
class BCConfig:
    """Of BC, behavior cloning; with `step_model` BC⊕S."""

    network: EncoderConfig = field(default_factory=EncoderConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    temperature: float = 0.5
    step_model: bool = False
    chain: ChainConfig = field(default_factory=ChainConfig)  # with the step model; no states or costs are predicted

    def __post_init__(self) -> None:
        at_least(self, 0, "temperature")


class BehaviorCloning(OneStepPlanner):
    Config = BCConfig
    config: BCConfig
    options = (*OneStepPlanner.options, *OPTIONS)
    variants = ("step_model",)

    def __init__(self, spec: PlanSpec, config: BCConfig) -> None:
        super().__init__(spec, config)
        network, width = config.network, config.network.hidden_size
        self.encoder = encoders.SceneEncoder(spec, network)
        self.step = encoders.StepEmbedding(spec, network)
        self.previous_action = encoders.ActionEmbedding(spec.actions, width, num_extra=1)
        self.current = encoders.StepEncoder(spec, encoders.current_fields(spec), network)
        self.visited = encoders.VisitedAttention(spec, network) if config.memory.visit_memory else None
        self.gru = nn.GRU(width, 2 * width, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(2 * width, 4 * width), nn.GELU(), nn.Dropout(network.dropout),
            nn.Linear(4 * width, self.num_logits),
        )  # fmt: skip
        self.size_free = spec.grid_field is not None
        self.step_model = required_step_model(spec) if config.step_model else None

    def logits(
        self, encoding: encoders.Encoding, current: Observations, history: History, goals: Tensor | None
    ) -> Tensor:
        x = self.step(encoding, history, current)
        padding = history.actions.new_zeros(len(x), 1, *history.actions.shape[2:])
        done = torch.cat([history.valid.new_zeros(len(x), 1), history.valid], 1)
        x = x + self.previous_action(torch.cat([padding, history.actions], 1), done)
        x = x * torch.cat([history.valid, history.valid.new_ones(len(x), 1)], 1)[..., None]
        x = x + encoding.condition.repeat_interleave(len(x) // len(encoding.condition), 0)[:, None]
        read, _ = self.gru(self.with_current(x, encoding, current, history))
        answer: Tensor = self.head(read)
        return answer
