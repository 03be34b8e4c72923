"""The denoiser of plans without a grid, or with several code tokens per action: one token per position of each stream.

Plan tokens attend to each other, and to context tokens that are computed once per plan: the scene (words, grids), the
current step, past steps with their actions, and visited states. Interface as in `denoiser.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.models.codecs import ActionCodec
from genplan.models.denoiser import Denoiser
from genplan.models.encoders import ActionEmbedding, Encoding, LocationEmbedding, StepEncoder, TimeEncoder
from genplan.models.layer import Layer, Pair, attention_mask, keys_and_values
from genplan.models.settings import MemoryConfig, NetworkConfig
from genplan.models.stack import ObservationStack
from genplan.spec import PlanSpec, Stream
from genplan.types import History, Observations


@dataclass(frozen=True)
class PreparedSequence:
    """What the denoiser needs of observations and history, computed once per plan."""

    weights: list[list[Pair]]  # per layer
    context_kv: list[Pair]  # per layer, [B, heads, N, D / heads]
    context_mask: Tensor | None  # [B, 1, 1, N]: −inf for past steps and states that never were
    condition: Tensor  # [B, 1, D]: added to every token

    def part(self, ids: Tensor, copies: int) -> PreparedSequence:
        rows = ids.repeat_interleave(copies)
        return replace(
            self,
            context_kv=[(keys[rows], values[rows]) for keys, values in self.context_kv],
            context_mask=None if self.context_mask is None else self.context_mask[rows],
            condition=self.condition[rows],
        )


class SequenceDenoiser(nn.Module):
    size_free = False  # tables know the number of states

    def __init__(
        self, spec: PlanSpec, network: NetworkConfig, memory: MemoryConfig, horizon: int, codes: Stream, chunk: int = 1
    ) -> None:
        """`codes`: the action tokens of a step of the plan, which stands for `chunk` actions."""
        super().__init__()
        width, layers, self.heads = network.hidden_size, network.num_layers, network.num_heads
        self.streams = {**spec.streams, "actions": codes}
        self.shapes = {name: (horizon // chunk, *stream.shape) for name, stream in self.streams.items()}
        self.tokens = nn.ModuleDict({name: nn.Embedding(one.size + 1, width) for name, one in self.streams.items()})
        counts = {name: torch.Size(shape).numel() for name, shape in self.shapes.items()}
        self.positions = nn.ParameterDict({name: 0.5 * torch.randn(count, width) for name, count in counts.items()})
        self.time = TimeEncoder(width)
        self.stack, self.current, self.past_action = None, None, None
        if memory.frame_stack:
            self.stack = ObservationStack(spec, spec.step_fields, network, memory)
        else:
            self.current = StepEncoder(spec, spec.step_fields, network)
            self.past_action = ActionEmbedding(spec.actions, width) if memory.num_past else None
        self.past_step = nn.Embedding(memory.num_past + 1, width)
        self.action_counts = nn.Linear(spec.actions.n or 1, width, bias=False) if memory.visit_memory else None
        self.visited = nn.Embedding(self.streams["states"].size, width) if memory.visit_memory else None
        self.context_kv_proj = nn.Linear(width, 2 * layers * width)
        self.layers = nn.ModuleList(Layer(width, network.num_heads, network.dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.state = spec.state_field if spec.grid_field is not None else None
        self.location = LocationEmbedding(spec.streams["states"], width) if self.state is not None else None
        self.heads_out = nn.ModuleDict({name: nn.Linear(width, one.size) for name, one in self.streams.items()})

    def prepare(self, encoding: Encoding, current: Observations, history: History, copies: int) -> PreparedSequence:
        """Everything that does not depend on x_t or t. Rows are windows, `copies` in turn for each scene."""
        scene = torch.cat([encoding.condition[:, None], *encoding.grids.values()], 1).repeat_interleave(copies, 0)
        if self.current is None:
            assert self.stack is not None
            now = self.stack(current, history)
        else:
            now = self.current(current, self.past_step.weight[-1].expand(len(scene), -1))
        if self.location is not None and self.state is not None:  # what the grid shows where the agent is
            now = now + self.location(encoding, current[self.state][:, None])[:, 0]
        if self.action_counts is not None and history.action_counts is not None:
            now = now + self.action_counts((1 + history.action_counts).to(now.dtype).log2())
        parts, shown = [scene, now[:, None]], [history.valid.new_ones(len(scene), scene.shape[1] + 1)]
        if self.current is not None and self.past_action is not None:
            past = self.current(history.steps, self.past_step.weight[:-1].expand(len(scene), -1, -1))
            parts.append(past + self.past_action(history.actions))
            shown.append(history.valid)
        if self.visited is not None and history.visited_states is not None and history.visited_mask is not None:
            parts.append(self.visited(history.visited_states).repeat_interleave(copies, 0))
            shown.append(history.visited_mask)
        context = torch.cat(parts, 1)
        mask = attention_mask(torch.cat(shown, 1), context)
        return PreparedSequence(
            weights=[layer.weights() for layer in self.layers],  # type: ignore[operator]
            context_kv=keys_and_values(self.context_kv_proj, context, self.heads),
            context_mask=None if mask is None else mask[:, None, None, :],
            condition=(encoding.condition.repeat_interleave(copies, 0) + now)[:, None],
        )

    def forward(
        self, x_t: Mapping[str, Tensor], t: Tensor, prepared: PreparedSequence, actions_only: bool = False,
        query_step: Tensor | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """x_t int64 [B, *shape] per stream, t [B] -> logits per stream [B, *shape, S].

        With `query_step` [B], of that action token alone, [B, 1, S].
        """
        parts = [self.tokens[name](x_t[name].flatten(1)) + self.positions[name] for name in self.streams]
        x = torch.cat(parts, 1) + prepared.condition + self.time(t)[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(x, prepared.weights[number], prepared.context_kv[number], prepared.context_mask)
        pieces = torch.split(self.norm(x), [part.shape[1] for part in parts], 1)
        logits = {}
        for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True):
            if name == "actions" and query_step is not None:
                rows = torch.arange(len(piece), device=piece.device)
                logits[name] = self.heads_out[name](piece[rows, query_step, None])
            elif name == "actions" or not actions_only:
                logits[name] = self.heads_out[name](piece).unflatten(1, shape)
        return logits


def make_denoiser(
    spec: PlanSpec, network: NetworkConfig, memory: MemoryConfig, horizon: int, codec: ActionCodec, num_extra: int = 0
) -> Denoiser | SequenceDenoiser:
    """Pointers into the grid where states point at one and an action is one token; else one token per position.

    `num_extra` action tokens are the method's own, such as the end of a plan.
    """
    codes = replace(codec.stream, size=codec.stream.size + num_extra)
    if spec.grid_field is not None and not codes.shape and codec.chunk == 1:
        return Denoiser(spec, network, memory, horizon, codes.size)
    if horizon % codec.chunk:
        raise UserError(f"the horizon is {horizon}, expected a multiple of the codec's chunk, {codec.chunk}")
    return SequenceDenoiser(spec, network, memory, horizon, codes, codec.chunk)
