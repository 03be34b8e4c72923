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
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.errors import UserError
from genplan.models.encoders import Encoding, StepEncoder, WordsEncoder
from genplan.models.settings import EncoderConfig, MemoryConfig, NetworkConfig
from genplan.spec import PlanSpec, Stream
from genplan.types import History, Observations


class PaperEncoder(nn.Module):
    """Two convolutions (2×2 and 3×3, each with a 2×2 max-pool), modulated by the words; then one vector."""

    def __init__(self, spec: PlanSpec, config: EncoderConfig) -> None:
        super().__init__()
        width, self.words, self.grid = config.hidden_size, spec.words_field, spec.grid_field
        self.scene = nn.ModuleDict()
        if self.words is not None:
            self.scene[self.words] = WordsEncoder(spec.fields[self.words], config)
        self.null_embedding = nn.Parameter(torch.zeros(width))
        if self.grid is not None:
            columns, rows = spec.fields[self.grid].shape
            self.first = nn.Conv2d(len(spec.fields[self.grid].sizes), width, 2)
            self.second = nn.Conv2d(width, width, 3, padding=1)
            self.film = nn.Linear(width, 2 * width)
            self.out = nn.Linear(width * ((columns - 1) // 2 // 2) * ((rows - 1) // 2 // 2), width)

    def forward(self, scene: Observations, number: int) -> Encoding:
        condition = self.null_embedding.expand(number, -1)
        if self.words is not None:
            condition, _ = self.scene[self.words](scene[self.words])
        if self.grid is None:
            return Encoding(condition, {})
        image = functional.max_pool2d(functional.relu(self.first(scene[self.grid].permute(0, 3, 1, 2).float())), 2)
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, 1)
        image = functional.max_pool2d(functional.relu(self.second(image) * (1 + scale) + shift), 2)
        return Encoding(condition, {self.grid: self.out(image.flatten(1))[:, None]})


class Layer(nn.Module):
    """Self-attention over steps, cross-attention to the context, and a network per step; normalized first."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = num_heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.self_out = nn.Linear(width, width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.cross_out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, *qkv: Tensor, mask: Tensor | None = None) -> Tensor:
        """Queries [B, T, D], keys and values [B, N, D] -> [B, T, D]."""
        q, k, v = (part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in qkv)
        drop = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        return mixed.transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None) -> Tensor:
        """x [B, T, D], context [B, N, D]; `mask` bool [B, 1, 1, T]: False for steps that never were."""
        x = x + self.self_out(self.attend(*self.qkv(self.norms[0](x)).chunk(3, -1), mask=mask))
        x = x + self.cross_out(self.attend(self.query(self.norms[1](x)), *self.key_value(context).chunk(2, -1)))
        change = self.down(functional.gelu(self.up(self.norms[2](x))))
        return x + functional.dropout(change, self.dropout, self.training)


class PaperPrepared(NamedTuple):
    observation: Tensor  # [B, D]: image, mission and step fields
    history: Tensor | None  # [B, 2C, D]: states and actions before, in turn
    history_valid: Tensor  # bool [B, 2C]


class PaperDenoiser(nn.Module):
    size_free = False  # one embedding and one class per state and goal

    def __init__(
        self, spec: PlanSpec, network: NetworkConfig, memory: MemoryConfig, horizon: int, codes: Stream
    ) -> None:
        super().__init__()
        if spec.states is None or codes.shape:
            raise UserError("the preset 'paper' needs planned states and discrete actions; use the preset 'default'")
        width, goals, goal_size = network.hidden_size, spec.num_goals, 0 if spec.goals is None else spec.goals.size
        self.spec, self.num_past, self.num_states = spec, memory.num_past, spec.states.size
        self.state = nn.Embedding(self.num_states + 1, width)
        self.action = nn.Embedding(codes.size + 1, width)
        self.goal = nn.Embedding(goal_size + 1, width) if goals else None
        self.goal_slot = nn.Linear(width * goals, width) if goals else None
        self.step = nn.Embedding(memory.num_past + horizon, width)
        self.token_type = nn.Embedding(2, width)  # a state's token, an action's token
        others = [name for name in spec.step_fields if name != spec.state_field]
        self.step_fields = StepEncoder(spec, others, network)
        self.time = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        numbers = 1 if spec.geometry is None else 3
        self.seen_state = nn.Sequential(
            nn.Linear(numbers, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.observed = nn.Linear(width, width)
        layers = network.num_layers
        self.layers = nn.ModuleList(Layer(width, network.num_heads, network.dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.state_head = nn.Linear(width, self.num_states)
        self.action_head = nn.Linear(width, codes.size)
        self.goal_head = nn.Linear(width, goals * goal_size) if goals else None

    def prepare(self, encoding: Encoding, current: Observations, history: History, copies: int) -> PaperPrepared:
        both = sum((vector[:, 0] for vector in encoding.grids.values()), encoding.condition)
        observation = self.step_fields(current, both.repeat_interleave(copies, 0))
        tokens = None
        if self.num_past and self.spec.state_field is not None:
            pair = self._embed(history.steps[self.spec.state_field], history.actions, self.step.weight[: self.num_past])
            tokens = torch.stack(pair, 2).flatten(1, 2)
        return PaperPrepared(observation, tokens, history.valid.repeat_interleave(2, 1))

    def _embed(self, states: Tensor, actions: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        types = self.token_type.weight
        return self.state(states) + steps + types[0], self.action(actions) + steps + types[1]

    def _coordinates(self, states: Tensor) -> Tensor:
        """States as numbers between 0 and 1: [B, H, 3], x, y and direction (or the state itself, without a grid)."""
        geometry = self.spec.geometry
        if geometry is None:
            return (states / self.num_states)[..., None]
        cell, direction = states // geometry.directions, states % geometry.directions
        x, y = (cell % geometry.width) / geometry.width, (cell // geometry.width) / geometry.height
        return torch.stack([x, y, direction / geometry.directions], -1)

    def forward(self, x_t: Mapping[str, Tensor], t: Tensor, prepared: PaperPrepared) -> dict[str, Tensor]:
        batch, horizon = x_t["actions"].shape
        clean = x_t["states"] < self.num_states
        coordinates = self._coordinates(torch.where(clean, x_t["states"], 0))
        seen = self.observed(functional.relu(prepared.observation[:, None] + self.seen_state(coordinates)))
        seen = torch.where(clean[..., None], seen, 0.0)
        context = torch.cat([self.time(time_features(t, seen.shape[-1]))[:, None], seen], 1)  # [B, H + 1, D]
        state, action = self._embed(x_t["states"], x_t["actions"], self.step.weight[self.num_past :])
        if self.goal is not None and self.goal_slot is not None:
            state = state + self.goal_slot(self.goal(x_t["goals"]).flatten(2))
        x, mask = torch.stack([state, action], 2).flatten(1, 2), None  # [B, 2H, D]
        if prepared.history is not None:
            valid = prepared.history_valid
            x = torch.cat([prepared.history, x], 1)
            mask = torch.cat([valid, valid.new_ones(batch, 2 * horizon)], 1)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, context, mask)
        state, action = self.norm(x[:, -2 * horizon :]).unflatten(1, (horizon, 2)).unbind(2)
        logits = {"states": self.state_head(state), "actions": self.action_head(action)}
        if self.goal_head is not None:
            logits["goals"] = self.goal_head(state).unflatten(-1, (self.spec.num_goals, -1))
        return logits


def time_features(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of t at frequencies from 1 to 100: [..., width]."""
    frequencies = torch.exp(torch.linspace(0, math.log(100.0), width // 2, device=t.device))
    angles = t[..., None] * frequencies * math.pi
    return torch.cat([angles.sin(), angles.cos()], -1)
