"""The denoiser of plans without a grid, or with several code tokens per action: one token per position of each stream.

Plan tokens attend to each other, and to context tokens that are computed once per plan: the scene (words, grids), the
current step, past steps with their actions, and visited states. Interface as in `denoiser.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from genplan.models.denoiser import NetworkSizes
from genplan.models.encoders import ActionEmbedding, StepEncoder, TimeEncoder
from genplan.models.encoding import EncoderSizes, Encoding
from genplan.models.layer import Layer, Pair, keys_and_values
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

    def __init__(self, spec: PlanSpec, sizes: NetworkSizes, codes: Stream, chunk: int = 1) -> None:
        """`codes`: the action tokens of a step of the plan, which stands for `chunk` actions."""
        super().__init__()
        width, layers = sizes.hidden_size, sizes.num_layers
        self.heads = sizes.num_heads
        self.streams = {**spec.streams, "actions": codes}
        self.shapes = {
            name: (sizes.horizon // (chunk if name == "actions" else 1), *stream.shape)
            for name, stream in self.streams.items()
        }
        self.tokens = nn.ModuleDict({name: nn.Embedding(one.size + 1, width) for name, one in self.streams.items()})
        counts = {name: torch.Size(shape).numel() for name, shape in self.shapes.items()}
        self.positions = nn.ParameterDict({name: 0.5 * torch.randn(count, width) for name, count in counts.items()})
        self.time = TimeEncoder(width)
        self.state = spec.state_field
        self.current = StepEncoder(spec, spec.step_fields, EncoderSizes(width))
        self.past_action = ActionEmbedding(spec.actions, width) if sizes.num_past else None
        self.past_step = nn.Embedding(sizes.num_past + 1, width)
        remembers = sizes.visit_memory and self.state is not None and spec.actions.n is not None
        self.action_counts = nn.Linear(spec.actions.n or 1, width, bias=False) if remembers else None
        self.visited = nn.Embedding(self.streams["states"].size, width) if remembers else None
        self.context_kv_proj = nn.Linear(width, 2 * layers * width)
        self.layers = nn.ModuleList(Layer(width, sizes.num_heads, sizes.dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.heads_out = nn.ModuleDict({name: nn.Linear(width, one.size) for name, one in self.streams.items()})

    def prepare(self, encoding: Encoding, current: Observations, history: History, copies: int) -> PreparedSequence:
        """Everything that does not depend on x_t or t. Rows are windows, `copies` in turn for each scene."""
        scene = torch.cat([encoding.condition[:, None], *encoding.grids.values()], 1).repeat_interleave(copies, 0)
        now = self.current(current, self.past_step.weight[-1].expand(len(scene), -1))
        if self.action_counts is not None and history.action_counts is not None:
            now = now + self.action_counts((1 + history.action_counts).to(now.dtype).log2())
        parts, shown = (
            [scene, now[:, None]],
            [torch.ones(len(scene), scene.shape[1] + 1, dtype=torch.bool, device=now.device)],
        )
        num_past = history.valid.shape[1]
        if self.past_action is not None and num_past:
            past = self.current(history.steps, self.past_step.weight[:num_past].expand(len(scene), -1, -1))
            parts.append(past + self.past_action(history.actions))
            shown.append(history.valid)
        if self.visited is not None and history.visited_states is not None and history.visited_mask is not None:
            parts.append(self.visited(history.visited_states).repeat_interleave(copies, 0))
            shown.append(history.visited_mask)
        context, valid, mask = torch.cat(parts, 1), torch.cat(shown, 1), None
        if not bool(valid.all()):
            mask = torch.zeros(valid.shape, device=context.device, dtype=context.dtype)
            mask = mask.masked_fill_(~valid, -torch.inf)[:, None, None, :]
        return PreparedSequence(
            weights=[layer.weights() for layer in self.layers],  # type: ignore[operator]
            context_kv=keys_and_values(self.context_kv_proj, context, self.heads),
            context_mask=mask,
            condition=(encoding.condition.repeat_interleave(copies, 0) + now)[:, None],
        )

    def forward(
        self,
        x_t: Mapping[str, Tensor],
        t: Tensor,
        prepared: PreparedSequence,
        streams: Sequence[str] | None = None,
        query_step: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """x_t int64 [B, *shape] per stream, t [B] -> logits [B, *shape, S]; with `streams`, of those alone.

        With `query_step` [B], of that action token alone, [B, 1, S].
        """
        parts = [self.tokens[name](x_t[name].flatten(1)) + self.positions[name] for name in self.streams]
        x = torch.cat(parts, 1) + prepared.condition + self.time(t)[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(x, prepared.weights[number], prepared.context_kv[number], prepared.context_mask, None, None)
        pieces = torch.split(self.norm(x), [part.shape[1] for part in parts], 1)
        logits = {}
        for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True):
            if streams is None or name in streams:
                if query_step is not None and name == "actions":
                    rows = torch.arange(len(piece), device=piece.device)
                    logits[name] = self.heads_out[name](piece[rows, query_step, None])
                else:
                    logits[name] = self.heads_out[name](piece).unflatten(1, shape)
        return logits
