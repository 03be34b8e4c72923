"""The paper's own architecture, for the `paper` preset: its encoder, and a decoder of 2H tokens.

Readings of what the paper leaves open (see also docs/paper_map.md):

- An observation token per step holds the current image, the mission and that step's state; it is zero where the state
  is corrupt, in training and in planning alike. Images of the future are never used: nobody has them when planning.
- Cross-attention sees these H tokens and one of the time t.
- Decoder tokens are states and actions, in turn; a step's goals are embedded into its state's token.
- The weights know the size of the grid: one embedding and one class per state and goal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.errors import UserError
from genplan.models.denoiser import NetworkSizes
from genplan.models.encoders import StepEncoder, WordsEncoder
from genplan.models.encoding import EncoderSizes, Encoding
from genplan.spec import PlanSpec, Stream
from genplan.types import History, Observations


class PaperEncoder(nn.Module):
    """Two convolutions (2×2 and 3×3, each with a 2×2 max-pool), modulated by the words; then one vector."""

    def __init__(self, spec: PlanSpec, hidden_size: int) -> None:
        super().__init__()
        self.words, self.grid = spec.words_field, spec.grid_field
        self.scene = nn.ModuleDict()
        if self.words is not None:
            self.scene[self.words] = WordsEncoder(spec.fields[self.words], EncoderSizes(hidden_size))
        self.null_embedding = nn.Parameter(torch.zeros(hidden_size))
        if self.grid is not None:
            columns, rows = spec.fields[self.grid].shape
            self.first = nn.Conv2d(len(spec.fields[self.grid].sizes), hidden_size, 2)
            self.second = nn.Conv2d(hidden_size, hidden_size, 3, padding=1)
            self.film = nn.Linear(hidden_size, 2 * hidden_size)
            self.out = nn.Linear(hidden_size * ((columns - 1) // 2 // 2) * ((rows - 1) // 2 // 2), hidden_size)

    def forward(self, scene: Observations, number: int) -> Encoding:
        condition = self.null_embedding.expand(number, -1)
        if self.words is not None:
            condition = self.scene[self.words](scene[self.words])
        if self.grid is None:
            return Encoding(condition, {})
        image = functional.max_pool2d(functional.relu(self.first(scene[self.grid].permute(0, 3, 1, 2).float())), 2)
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, 1)
        image = functional.relu(self.second(image) * (1 + scale) + shift)
        image = functional.max_pool2d(image, 2)
        return Encoding(condition, {self.grid: self.out(image.flatten(1))[:, None]})


class PaperPrepared(NamedTuple):
    observation: Tensor  # [B, D]: image and mission, to which a step's state is added
    history: Tensor | None  # [B, 2C, D]
    history_valid: Tensor | None  # [B, 2C]


class Layer(nn.Module):
    """Self-attention over steps, cross-attention to the context, and a network per step; normalised first."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = num_heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_size) for _ in range(3))
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.self_out = nn.Linear(hidden_size, hidden_size)
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size)
        self.cross_out = nn.Linear(hidden_size, hidden_size)
        self.up = nn.Linear(hidden_size, 4 * hidden_size)
        self.down = nn.Linear(4 * hidden_size, hidden_size)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, heads, T, D / heads]"""
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def context(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self.key_value(tokens).chunk(2, -1)
        return self.split(key), self.split(value)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """x [B, T, D]; key and value [M, heads, N, d], where B is a multiple of M: rows in turn share a context."""
        drop = self.dropout if self.training else 0.0
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        x = x + self.self_out(mixed.transpose(1, 2).flatten(2))
        query = self.split(self.query(self.norms[1](x)).reshape(len(key), -1, width))  # [M, heads, P · T, d]
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=drop)
        x = x + self.cross_out(seen.transpose(1, 2).flatten(2)).reshape(batch, length, width)
        ffn = functional.gelu(self.up(self.norms[2](x)))
        out = self.down(ffn)
        return x + (functional.dropout(out, drop) if drop else out)


class PaperDenoiser(nn.Module):
    size_free = False  # one embedding and one class per state and goal

    def __init__(self, spec: PlanSpec, sizes: NetworkSizes, codes: Stream) -> None:
        super().__init__()
        if spec.states is None or codes.shape:
            raise UserError("the preset 'paper' needs planned states and discrete actions; use the preset 'default'")
        hidden_size = sizes.hidden_size
        self.spec, self.width, self.num_past, self.states = spec, hidden_size, sizes.num_past, spec.states
        goals, goal_size = spec.num_goals, 0 if spec.goals is None else spec.goals.size
        self.state = nn.Embedding(spec.states.size + 1, hidden_size)
        self.action = nn.Embedding(codes.size + 1, hidden_size)
        self.goal = nn.Embedding(goal_size + 1, hidden_size) if goals else None
        self.goal_slot = nn.Linear(hidden_size * goals, hidden_size) if goals else None
        self.step = nn.Embedding(sizes.num_past + sizes.horizon, hidden_size)
        self.token_type = nn.Embedding(2, hidden_size)  # a state's token, an action's token
        others = [name for name in spec.step_fields if name != spec.state_field]
        self.step_fields = StepEncoder(spec, others, EncoderSizes(hidden_size))
        self.time = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.GELU(), nn.Linear(hidden_size, hidden_size))
        numbers = 1 if spec.geometry is None else 3
        self.seen_state = nn.Sequential(
            nn.Linear(numbers, hidden_size), nn.ReLU(), nn.Linear(hidden_size, hidden_size), nn.ReLU(),
            nn.Linear(hidden_size, hidden_size),
        )  # fmt: skip
        self.observed = nn.Linear(hidden_size, hidden_size)
        self.layers = nn.ModuleList(Layer(hidden_size, sizes.num_heads, sizes.dropout) for _ in range(sizes.num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.state_head = nn.Linear(hidden_size, spec.states.size)
        self.action_head = nn.Linear(hidden_size, codes.size)
        self.goal_head = nn.Linear(hidden_size, goals * goal_size) if goals else None

    def prepare(self, encoding: Encoding, current: Observations, history: History, copies: int) -> PaperPrepared:
        both = encoding.condition
        for vector in encoding.grids.values():
            both = both + vector[:, 0]
        observation = self.step_fields(current, both.repeat_interleave(copies, 0))
        tokens = valid = None
        if history.valid.shape[1] and self.spec.state_field is not None:
            steps = self.step.weight[: history.valid.shape[1]]
            pair = [
                self.state(history.steps[self.spec.state_field]) + steps + self.token_type.weight[0],
                self.action(history.actions) + steps + self.token_type.weight[1],
            ]
            tokens = torch.stack(pair, 2).flatten(1, 2)
            valid = history.valid.repeat_interleave(2, 1)
        return PaperPrepared(observation, tokens, valid)

    def _coordinates(self, states: Tensor) -> Tensor:
        """States as numbers between 0 and 1: [B, H, 3], x, y and direction (or the state itself, without a grid)."""
        geometry = self.spec.geometry
        if geometry is None:
            return (states / self.states.size)[..., None]
        cell, direction = states // geometry.directions, states % geometry.directions
        x, y = (cell % geometry.width) / geometry.width, (cell // geometry.width) / geometry.height
        return torch.stack([x, y, direction / geometry.directions], -1)

    def forward(
        self, x_t: Mapping[str, Tensor], t: Tensor, prepared: PaperPrepared, streams: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        batch, horizon = x_t["actions"].shape
        clean = x_t["states"] < self.states.size
        coordinates = self._coordinates(torch.where(clean, x_t["states"], 0))
        seen = self.observed(functional.relu(prepared.observation[:, None] + self.seen_state(coordinates)))
        seen = torch.where(clean[..., None], seen, 0.0)
        memory = torch.cat([self.time(time_features(t, self.width))[:, None], seen], 1)  # [B, H + 1, D]
        steps = self.step.weight[self.num_past : self.num_past + horizon]
        state = self.state(x_t["states"]) + steps + self.token_type.weight[0]
        if self.goal is not None and self.goal_slot is not None:
            state = state + self.goal_slot(self.goal(x_t["goals"]).flatten(2))
        action = self.action(x_t["actions"]) + steps + self.token_type.weight[1]
        x = torch.stack([state, action], 2).flatten(1, 2)  # [B, 2H, D]
        mask, before = None, 0
        if prepared.history is not None and prepared.history_valid is not None:
            before = prepared.history.shape[1]
            x = torch.cat([prepared.history, x], 1)
            valid = prepared.history_valid
            mask = torch.cat([valid, valid.new_ones(batch, 2 * horizon)], 1)[:, None, None, :]
        for layer in self.layers:
            key, value = layer.context(memory)  # type: ignore[operator]
            x = layer(x, key, value, mask)
        x = self.norm(x[:, before:]).reshape(batch, horizon, 2, self.width)
        state, action = x[:, :, 0], x[:, :, 1]
        logits = {"states": self.state_head(state), "actions": self.action_head(action)}
        if self.goal_head is not None and self.spec.goals is not None:
            logits["goals"] = self.goal_head(state).reshape(batch, horizon, self.spec.num_goals, self.spec.goals.size)
        return logits


def time_features(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of t at frequencies from 1 to 100: [..., width]."""
    frequencies = torch.exp(torch.linspace(0, math.log(100.0), width // 2, device=t.device))
    angles = t[..., None] * frequencies * math.pi
    return torch.cat([angles.sin(), angles.cos()], -1)
