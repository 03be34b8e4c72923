"""Regression and MIP: one network that answers with a chunk of actions; and the same one asked twice.

Details
- A network of three layers reads what is observed (the stack of observations that all chunk planners share) and answers
  with the chunk, around the mean chunk and in units of the deviation; the loss is the absolute error.
- MIP, the minimal iterative policy (arXiv 2512.01809): the network also reads a chunk and a time. It learns to answer
  from nothing (zeros, at time 0), and from the demonstrated chunk with noise in it (at time 0.9: nine parts of the
  chunk, one of noise); when planning it answers from nothing, and then from nine tenths of its own answer.
- Deterministic but for the goal, where one is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.flow import Rng
from genplan.models.settings import EncoderConfig, MemoryConfig, at_least
from genplan.planners.chunks import ChunkPlanner, mean_over
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations

RNG_MIX = "mix"  # label of random draws: never renamed
SECOND_TIME = 0.9  # at which the network is asked again


@dataclass(frozen=True)
class RegressionConfig:
    """Of Regression, and with two steps MIP."""

    network: EncoderConfig = field(default_factory=EncoderConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    horizon: int = 8
    action_steps: int = 4
    predict_goals: bool = True
    goal_temperature: float = 1.0
    two_steps: bool = False

    def __post_init__(self) -> None:
        at_least(self, 1, "horizon", "action_steps", most=4096)
        at_least(self, 0, "goal_temperature")


class Regression(ChunkPlanner):
    Config = RegressionConfig
    config: RegressionConfig
    variants = ("two_steps",)

    def __init__(self, spec: PlanSpec, config: RegressionConfig) -> None:
        super().__init__(spec, config)
        width, size = config.network.hidden_size, self.codec.size
        self.before = nn.Linear(size + 1, width) if config.two_steps else None
        layers: list[nn.Module] = [nn.LayerNorm(width)]
        for number in range(3):
            layers += [nn.Linear(4 * width if number else width, 4 * width), nn.GELU(),
                       nn.Dropout(config.network.dropout)]  # fmt: skip
        self.network = nn.Sequential(*layers, nn.Linear(4 * width, size))

    def answer(self, context: Tensor, before: Tensor, time: float) -> Tensor:
        """The chunk [B, chunk · A], given one [B, chunk · A] that is known as far as the time says."""
        if self.before is not None:
            context = context + self.before(functional.pad(before, (0, 1), value=time))
        answer: Tensor = self.network(context)
        return answer

    def chunk_loss(self, context: Tensor, batch: Batch, goals: Tensor | None, valid: Tensor, rng: Rng) -> Losses:
        chunk = self.codec.normalized(batch.actions, self.origin(batch.current))[:, 0]
        loss = mean_over((self.answer(context, torch.zeros_like(chunk), 0.0) - chunk).abs(), valid)
        metrics = {"loss/actions": loss}
        if self.before is not None:
            mixed = SECOND_TIME * chunk + (1 - SECOND_TIME) * rng.fold(RNG_MIX).normal((chunk.shape[1],))
            again = mean_over((self.answer(context, mixed, SECOND_TIME) - chunk).abs(), valid)
            metrics["loss/again"], loss = again, loss + again
        return Losses(loss, metrics)

    def draw_chunk(
        self, context: Tensor, history: History, goals: Tensor | None, observations: Observations, rng: Rng
    ) -> tuple[Tensor, dict[str, Tensor]]:
        chunk = self.answer(context, context.new_zeros(len(context), self.codec.size), 0.0)
        if self.before is not None:
            chunk = self.answer(context, SECOND_TIME * chunk, SECOND_TIME)
        return self.codec.restored(chunk[:, None], self.origin(observations)), {}
