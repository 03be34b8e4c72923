"""VQ-BeT: code words of a chunk, one after the other, and a continuous offset (Lee et al., 2024).

Details
- Codes are residual code words of chunks (`models/residual_codes.py`: clusters), the same that GenPlan's plans are made
  of; with the codec `learned` they are between a learnt encoder and decoder, as the original's. The offset is predicted
  by the same head, from the same labels.
- A causal transformer reads what is observed (one token: the stack of observations that all chunk planners share) and
  the code words so far, and answers with the next; the original's predicts both words of two levels from one token.
- Cross-entropy in place of the focal loss. Codes are drawn at `temperature`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.errors import UserError
from genplan.flow import Rng, apply_temperature
from genplan.models.codecs import ActionCodec, ChunkCodes, make_codec
from genplan.models.settings import CodecConfig, MemoryConfig, NetworkConfig, at_least
from genplan.planners.chunks import ChunkPlanner
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations

RNG_CODE = "code"  # label of random draws: never renamed


@dataclass(frozen=True)
class VQBeTConfig:
    """Of VQ-BeT."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    horizon: int = 8
    action_steps: int = 4
    predict_goals: bool = True
    goal_temperature: float = 1.0
    temperature: float = 0.3

    def __post_init__(self) -> None:
        at_least(self, 1, "horizon", "action_steps", most=4096)
        at_least(self, 0, "goal_temperature", "temperature")


class VQBeT(ChunkPlanner):
    Config = VQBeTConfig
    config: VQBeTConfig
    options = (*ChunkPlanner.options, "temperature", "used_levels")
    codec: ChunkCodes

    def __init__(self, spec: PlanSpec, config: VQBeTConfig) -> None:
        super().__init__(spec, config)
        network, width = config.network, config.network.hidden_size
        levels, number = self.codec.levels, self.codec.stream.size
        self.words = nn.ModuleList(nn.Embedding(number, width) for _ in range(levels - 1))
        self.position = nn.Parameter(0.1 * torch.randn(levels, width))
        block = nn.TransformerEncoderLayer(
            width, network.num_heads, 4 * width, network.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, network.num_layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.heads = nn.ModuleList(nn.Linear(width, number) for _ in range(levels))
        self.offset = self.make_offset_head(sees_goals=config.predict_goals)

    @classmethod
    def resolved(cls, config: VQBeTConfig, spec: PlanSpec) -> VQBeTConfig:
        name = "residual" if config.codec.codec == "auto" else config.codec.codec
        return replace(config, codec=replace(config.codec, codec=name, chunk=config.horizon))

    def make_codec(self, spec: PlanSpec, config: VQBeTConfig) -> ActionCodec:
        codec = make_codec(spec.actions, config.codec)
        if not isinstance(codec, ChunkCodes):
            raise UserError(f"the method is for codes of chunks, found the codec '{config.codec.codec}'; leave it out")
        return codec

    def logits(self, context: Tensor, codes: Tensor) -> Tensor:
        """Of the words of all levels up to one more than codes [B, n] are given: [B, n + 1, K]."""
        number = codes.shape[1]
        read = [word(codes[:, level]) for level, word in enumerate(self.words[:number])]
        x = torch.stack([context, *read], 1) + self.position[: number + 1]
        later = torch.ones(number + 1, number + 1, dtype=torch.bool, device=x.device).triu(1)
        x = self.blocks(x, mask=later)
        return torch.stack([head(x[:, level]) for level, head in enumerate(self.heads[: number + 1])], 1)

    def chunk_loss(self, context: Tensor, batch: Batch, goals: Tensor | None, valid: Tensor, rng: Rng) -> Losses:
        assert self.offset is not None
        streams, known = self.plan_tokens(batch)
        codes = streams["actions"][:, 0]
        logits = self.logits(context, codes[:, :-1])
        nll = functional.cross_entropy(logits.flatten(0, 1), codes.flatten(), reduction="none").view_as(codes)
        loss = (nll.mean(1) * valid).sum() / valid.sum().clamp(min=1)
        offset = self.offset_loss(self.offset, batch, streams, known)
        correct = ((logits.argmax(-1) == codes).float().mean(1) * valid).sum() / valid.sum().clamp(min=1)
        return Losses(loss + offset, {"loss/actions": loss, "loss/offset": offset, "accuracy/actions": correct})

    def draw_chunk(
        self, context: Tensor, history: History, goals: Tensor | None, observations: Observations, rng: Rng
    ) -> tuple[Tensor, dict[str, Tensor]]:
        codes = torch.zeros(len(context), 0, dtype=torch.int64, device=context.device)
        for level in range(self.codec.levels):
            log_p = self.logits(context, codes)[:, -1].log_softmax(-1)
            drawn = rng.fold(RNG_CODE, level).categorical(apply_temperature(log_p, self.config.temperature))
            codes = torch.cat([codes, drawn[:, None]], 1)
        actions = self.decode(codes[:, None], observations, history, goals)
        return actions, {"actions": codes[:, None]}
