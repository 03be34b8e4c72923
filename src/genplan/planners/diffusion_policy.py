"""Diffusion Policy: a chunk of actions is denoised from normal noise (Chi et al., 2023), by a U-Net or a transformer.

Details
- The noise schedule, its loss (predict the noise that was added) and the deterministic sampler (DDIM) are those of the
  library diffusers: squared cosine, 100 steps in training, `inference_steps` when planning.
- DP-C: a U-Net over the steps of the chunk, modulated by what is observed and by the time (FiLM). DP-T: a transformer
  whose tokens are the steps of the chunk, with causal masks, which attends to what is observed and to the time.
- What is observed is the stack of observations that all chunk planners share; the original reads its observations by a
  network of the same kind. Chunks are around the mean chunk, in units of the deviation (the original scales to −1 … 1).
- Smaller than the original (0.3 to 1 million weights; 9 to 80 there), to be trained within the same CPU-minutes as the
  other methods here. Eight actions are predicted and four executed (the original: 16 and 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.models.encoders import TimeEncoder
from genplan.models.settings import MemoryConfig, NetworkConfig, at_least
from genplan.models.unet import ConditionalUnet
from genplan.planners.chunks import ChunkPlanner, mean_over
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations

TRAIN_STEPS = 100
RNG_TIME, RNG_ADDED, RNG_START = "time", "added", "start"  # labels of random draws: never renamed


@dataclass(frozen=True)
class DPConfig:
    """Of DP-C and DP-T, diffusion policies."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    denoiser: Literal["unet", "transformer"] = "unet"
    horizon: int = 8
    action_steps: int = 4
    predict_goals: bool = True
    goal_temperature: float = 1.0
    inference_steps: int = 10  # calls of the network when planning

    def __post_init__(self) -> None:
        at_least(self, 1, "horizon", "action_steps", most=4096)
        at_least(self, 1, "inference_steps", most=TRAIN_STEPS)
        at_least(self, 0, "goal_temperature")


class ChunkTransformer(nn.Module):
    """Noisy actions [B, T, A] and a condition [B, D] -> [B, T, A]; a step of the chunk sees those before it."""

    mask: Tensor

    def __init__(self, size: int, network: NetworkConfig, length: int) -> None:
        super().__init__()
        width = network.hidden_size
        self.read, self.out = nn.Linear(size, width), nn.Linear(width, size)
        self.position = nn.Parameter(0.1 * torch.randn(length, width))
        layer = nn.TransformerDecoderLayer(
            width, network.num_heads, 4 * width, network.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, network.num_layers, nn.LayerNorm(width))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, actions: Tensor, condition: Tensor) -> Tensor:
        x = self.read(actions) + self.position
        answer: Tensor = self.out(self.layers(x, condition[:, None], tgt_mask=self.mask))
        return answer


class DiffusionPolicy(ChunkPlanner):
    Config = DPConfig
    config: DPConfig
    options = (*ChunkPlanner.options, "inference_steps")
    variants = ("denoiser",)

    def __init__(self, spec: PlanSpec, config: DPConfig) -> None:
        super().__init__(spec, config)
        width, size = config.network.hidden_size, len(spec.actions.low)
        self.time = TimeEncoder(width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.Mish(), nn.Linear(2 * width, width))
        self.denoiser: nn.Module
        if config.denoiser == "unet":
            channels = (width, 2 * width) if config.horizon > 1 else (width,)
            self.denoiser = ConditionalUnet(size, width, channels)
        else:
            self.denoiser = ChunkTransformer(size, config.network, config.horizon)
        self.scheduler = _ddim()

    def predict(self, noisy: Tensor, context: Tensor, step: Tensor) -> Tensor:
        """The noise in chunks [B, chunk · A] at steps [B] of the schedule."""
        condition = context + self.mix(context + self.time(step / TRAIN_STEPS))
        answer: Tensor = self.denoiser(noisy.reshape(len(noisy), self.config.horizon, -1), condition)
        return answer.flatten(1)

    def chunk_loss(self, context: Tensor, batch: Batch, goals: Tensor | None, valid: Tensor, rng: Rng) -> Losses:
        chunk = self.codec.normalized(batch.actions, self.origin(batch.current))[:, 0]
        step = rng.fold(RNG_TIME).integers(TRAIN_STEPS)
        noise = rng.fold(RNG_ADDED).normal((chunk.shape[1],))
        noisy = self.scheduler.add_noise(chunk, noise, step)
        loss = mean_over((self.predict(noisy, context, step) - noise) ** 2, valid)
        return Losses(loss, {"loss/actions": loss})

    def draw_chunk(
        self, context: Tensor, history: History, goals: Tensor | None, observations: Observations, rng: Rng
    ) -> tuple[Tensor, dict[str, Tensor]]:
        chunk = rng.fold(RNG_START).normal((self.codec.size,))
        self.scheduler.set_timesteps(self.config.inference_steps, device=chunk.device)
        for step in self.scheduler.timesteps:
            noise = self.predict(chunk, context, step.expand(len(chunk)))
            chunk = self.scheduler.step(noise, step, chunk).prev_sample
        return self.codec.restored(chunk[:, None], self.origin(observations)), {}


def _ddim() -> Any:
    try:
        from diffusers.schedulers.scheduling_ddim import DDIMScheduler
    except ModuleNotFoundError as error:
        raise UserError(
            "diffusion policies need the schedules of diffusers; install it with: pip install 'genplan[robots]'"
        ) from error
    return DDIMScheduler(
        TRAIN_STEPS,
        beta_schedule="squaredcos_cap_v2",
        clip_sample=True,
        clip_sample_range=5.0,
        prediction_type="epsilon",
    )
