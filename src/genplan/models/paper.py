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

from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past
from genplan.models.encoder import Context, MissionEncoder


class PaperEncoder(nn.Module):
    """Two convolutions (2×2 and 3×3, each with a 2×2 max-pool), modulated by the mission; then one vector."""

    def __init__(self, spec: PlanSpec, width: int) -> None:
        super().__init__()
        self.mission = MissionEncoder(spec, width) if spec.words else None
        self.nothing = nn.Parameter(torch.zeros(width))
        self.first = self.second = self.film = self.out = None
        if spec.map_shape is not None:
            columns, rows = spec.map_shape
            self.first = nn.Conv2d(len(spec.map_channels), width, 2)
            self.second = nn.Conv2d(width, width, 3, padding=1)
            self.film = nn.Linear(width, 2 * width)
            self.out = nn.Linear(width * ((columns - 1) // 2 // 2) * ((rows - 1) // 2 // 2), width)

    def forward(self, maps: Tensor | None, mission: Tensor | None, number: int) -> Context:
        words = self.nothing.expand(number, -1)
        if self.mission is not None and mission is not None:
            words = self.mission(mission)
        if maps is None or self.first is None:
            return Context(None, words)
        assert self.second is not None
        assert self.film is not None
        assert self.out is not None
        image = functional.max_pool2d(functional.relu(self.first(maps.permute(0, 3, 1, 2).float())), 2)
        scale, shift = self.film(words)[:, :, None, None].chunk(2, 1)
        image = functional.relu(self.second(image) * (1 + scale) + shift)
        image = functional.max_pool2d(image, 2)
        return Context(self.out(image.flatten(1))[:, None], words)


class PaperKnown(NamedTuple):
    observation: Tensor  # [B, D]: image and mission, to which a step's state is added
    past: Tensor | None  # [B, 2C, D]
    past_valid: Tensor | None  # [B, 2C]


class Layer(nn.Module):
    """Self-attention over steps, cross-attention to the context, and a network per step; normalised first."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.self_out = nn.Linear(width, width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.cross_out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

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
        together = self.qkv(self.norms[0](x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = together.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        x = x + self.self_out(mixed.transpose(1, 2).flatten(2))
        asked = self.split(self.query(self.norms[1](x)).reshape(len(key), -1, width))  # [M, heads, P · T, d]
        seen = functional.scaled_dot_product_attention(asked, key, value, dropout_p=drop)
        x = x + self.cross_out(seen.transpose(1, 2).flatten(2)).reshape(batch, length, width)
        hidden = functional.gelu(self.up(self.norms[2](x)))
        out = self.down(hidden)
        return x + (functional.dropout(out, drop) if drop else out)


class PaperDenoiser(nn.Module):
    def __init__(
        self, spec: PlanSpec, width: int, heads: int, layers: int, horizon: int, context: int, dropout: float
    ) -> None:
        super().__init__()
        self.spec, self.width, self.context = spec, width, context
        self.state = nn.Embedding(spec.num_states + 1, width)
        self.action = nn.Embedding(spec.num_actions + 1, width)
        self.goal = nn.Embedding(spec.goal_size + 1, width) if spec.num_goals else None
        self.goal_slot = nn.Linear(width * spec.num_goals, width) if spec.num_goals else None
        self.step = nn.Embedding(context + horizon, width)
        self.kind = nn.Embedding(2, width)  # a state's token, an action's token
        self.features = nn.ModuleList(nn.Embedding(size, width) for size in spec.features)
        self.time = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        places = 1 if spec.map_shape is None else 3
        self.seen_state = nn.Sequential(
            nn.Linear(places, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.observed = nn.Linear(width, width)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.to_state = nn.Linear(width, spec.num_states)
        self.to_action = nn.Linear(width, spec.num_actions)
        self.to_goal = nn.Linear(width, spec.num_goals * spec.goal_size) if spec.num_goals else None

    def know(
        self,
        context: Context,
        features: Tensor | None,
        past: Past,
        per_map: int,
    ) -> PaperKnown:
        both = context.mission if context.cells is None else context.mission + context.cells[:, 0]
        observation = both.repeat_interleave(per_map, 0)
        for place, embed in enumerate(self.features):
            assert features is not None
            observation = observation + embed(features[:, place])
        tokens = valid = None
        if past.states.shape[1]:
            steps = self.step.weight[: past.states.shape[1]]
            pair = [
                self.state(past.states) + steps + self.kind.weight[0],
                self.action(past.actions) + steps + self.kind.weight[1],
            ]
            tokens = torch.stack(pair, 2).flatten(1, 2)
            valid = past.valid.repeat_interleave(2, 1)
        return PaperKnown(observation, tokens, valid)

    def places(self, states: Tensor) -> Tensor:
        """States as numbers between 0 and 1: [B, H, 3], x, y and heading (or the state itself, without a map)."""
        if self.spec.map_shape is None:
            return (states / self.spec.num_states)[..., None]
        columns, rows = self.spec.map_shape
        cell, heading = states // self.spec.num_headings, states % self.spec.num_headings
        return torch.stack([(cell % columns) / columns, (cell // columns) / rows, heading / self.spec.num_headings], -1)

    def forward(self, x_t: Mapping[str, Tensor], t: Tensor, known: PaperKnown) -> dict[str, Tensor]:
        batch, horizon = x_t["actions"].shape
        clean = x_t["states"] < self.spec.num_states
        places = self.places(torch.where(clean, x_t["states"], 0))
        seen = self.observed(functional.relu(known.observation[:, None] + self.seen_state(places)))
        seen = torch.where(clean[..., None], seen, 0.0)
        memory = torch.cat([self.time(time_features(t, self.width))[:, None], seen], 1)  # [B, H + 1, D]
        steps = self.step.weight[self.context : self.context + horizon]
        state = self.state(x_t["states"]) + steps + self.kind.weight[0]
        if self.goal is not None and self.goal_slot is not None:
            state = state + self.goal_slot(self.goal(x_t["goals"]).flatten(2))
        action = self.action(x_t["actions"]) + steps + self.kind.weight[1]
        x = torch.stack([state, action], 2).flatten(1, 2)  # [B, 2H, D]
        mask, before = None, 0
        if known.past is not None and known.past_valid is not None:
            before = known.past.shape[1]
            x = torch.cat([known.past, x], 1)
            mask = torch.cat([known.past_valid, known.past_valid.new_ones(batch, 2 * horizon)], 1)[:, None, None, :]
        for layer in self.layers:
            key, value = layer.context(memory)  # type: ignore[operator]
            x = layer(x, key, value, mask)
        x = self.norm(x[:, before:]).reshape(batch, horizon, 2, self.width)
        state, action = x[:, :, 0], x[:, :, 1]
        logits = {"states": self.to_state(state), "actions": self.to_action(action)}
        if self.to_goal is not None:
            logits["goals"] = self.to_goal(state).reshape(batch, horizon, self.spec.num_goals, self.spec.goal_size)
        return logits


def time_features(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of t at frequencies from 1 to 100: [..., width]."""
    frequencies = torch.exp(torch.linspace(0, math.log(100.0), width // 2, device=t.device))
    angles = t[..., None] * frequencies * math.pi
    return torch.cat([angles.sin(), angles.cos()], -1)
