"""The denoiser: (x_t, t, context) -> logits per stream. MASK can be read but has no logit.

One token per step of the plan holds its state, goals and action. On a map, positions are *pointed at*: a state or goal
is the map's feature vector at its cell, and its logits are products with the features of all cells; so nothing depends
on the grid's size. Past steps stand before the plan as steps that are wholly known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.data.tokens import PlanSpec
from genplan.models.encoder import Context, time_features


class Known(NamedTuple):
    """What the denoiser needs of the context, computed once per plan."""

    keys: list[Tensor]  # per layer [M, heads, cells + 1, D / heads]
    values: list[Tensor]
    places: Tensor | None  # [M, cells, D]: what a token at a cell looks like
    pointers: Tensor | None  # [M, cells, D]: what a query is compared with
    condition: Tensor  # [M, P, D]: added to every token
    past: Tensor | None  # [M · P, C, D]: tokens of past steps
    past_valid: Tensor | None  # bool [M · P, C]


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


class Denoiser(nn.Module):
    def __init__(
        self, spec: PlanSpec, width: int, heads: int, layers: int, horizon: int, context: int, dropout: float
    ) -> None:
        super().__init__()
        self.spec, self.width, self.horizon = spec, width, horizon
        on_map = spec.map_shape is not None
        self.place = nn.Linear(width, width) if on_map else None
        self.pointer = nn.Linear(width, width) if on_map else None
        # One row more than there are tokens: MASK.
        self.action = nn.Embedding(spec.num_actions + 1, width)
        self.state = nn.Embedding((spec.num_headings if on_map else spec.num_states) + 1, width)
        self.goal = nn.Embedding(2 if on_map else spec.goal_size + 1, width) if spec.num_goals else None
        self.goal_slot = nn.Linear(width * spec.num_goals, width) if spec.num_goals else None
        self.step = nn.Embedding(context + horizon, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.features = nn.ModuleList(nn.Embedding(size, width) for size in spec.features)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.to_action = nn.Linear(width, spec.num_actions)
        self.to_state = nn.Linear(width, spec.num_headings * width if on_map else spec.num_states)
        per_goal = width if on_map else spec.goal_size
        self.to_goal = nn.Linear(width, spec.num_goals * per_goal) if spec.num_goals else None

    def know(
        self,
        context: Context,
        features: Tensor | None,
        past_states: Tensor,
        past_actions: Tensor,
        past_valid: Tensor,
        per_map: int,
    ) -> Known:
        """Everything that does not depend on x_t or t. Rows are windows, `per_map` in turn for each map."""
        number = len(context.mission)
        tokens = context.mission[:, None]
        if context.cells is not None:
            tokens = torch.cat([tokens, context.cells], 1)
        pairs = [layer.context(tokens) for layer in self.layers]  # type: ignore[operator]
        condition = context.mission[:, None].expand(-1, per_map, -1)
        if features is not None:
            carried = [embed(features[:, place]) for place, embed in enumerate(self.features)]
            condition = condition + torch.stack(carried).sum(0).reshape(number, per_map, -1)
        places = pointers = None
        if self.place is not None and self.pointer is not None and context.cells is not None:
            places, pointers = self.place(context.cells), self.pointer(context.cells)
        known = Known([k for k, _ in pairs], [v for _, v in pairs], places, pointers, condition, None, None)
        if past_states.shape[1]:
            past = self.state_tokens(past_states, known) + self.action(past_actions)
            past = past + self.step.weight[: past.shape[1]]
            if self.goal_slot is not None:
                past = past + self.goal_slot.bias
            known = known._replace(past=past, past_valid=past_valid)
        return known

    def state_tokens(self, states: Tensor, known: Known) -> Tensor:
        """[B, T] -> [B, T, D]"""
        if known.places is None:
            return self.state(states)  # type: ignore[no-any-return]
        headings = self.spec.num_headings
        masked = states == known.places.shape[1] * headings
        cell = torch.where(masked, 0, states // headings)
        heading = torch.where(masked, headings, states % headings)
        shown = torch.where(masked[..., None], 0.0, self.at(cell, known.places))
        return torch.add(shown, self.state(heading))

    def at(self, cell: Tensor, places: Tensor) -> Tensor:
        """The map's features [M, cells, D] at cells [B, ...]."""
        number, cells, width = places.shape
        rows = torch.arange(number, device=cell.device).repeat_interleave(len(cell) // number)
        index = cell + rows.reshape(-1, *(1 for _ in cell.shape[1:])) * cells
        return places.reshape(-1, width)[index]

    def goal_tokens(self, goals: Tensor, known: Known) -> Tensor:
        """[B, T, G] -> [B, T, D]"""
        assert self.goal is not None
        assert self.goal_slot is not None
        if known.places is None:
            tokens = self.goal(goals)
        else:
            masked = goals == known.places.shape[1]
            shown = torch.where(masked[..., None], 0.0, self.at(torch.where(masked, 0, goals), known.places))
            tokens = shown + self.goal(masked.long())
        return self.goal_slot(tokens.flatten(2))  # type: ignore[no-any-return]

    def forward(self, x_t: Mapping[str, Tensor], t: Tensor, known: Known) -> dict[str, Tensor]:
        """x_t int64 [B, H, ...], t [B] -> logits [B, H, ..., S]"""
        batch, length = x_t["actions"].shape
        number, per_map = known.condition.shape[:2]
        condition = known.condition.reshape(batch, -1) + self.time(time_features(t, self.width))
        x = self.state_tokens(x_t["states"], known) + self.action(x_t["actions"])
        if self.goal is not None:
            x = x + self.goal_tokens(x_t["goals"], known)
        past = 0 if known.past is None else known.past.shape[1]
        x = x + self.step.weight[past : past + length] + condition[:, None]
        mask = None
        if known.past is not None and known.past_valid is not None:
            x = torch.cat([known.past + condition[:, None], x], 1)
            valid = torch.cat([known.past_valid, known.past_valid.new_ones(batch, length)], 1)
            mask = valid[:, None, None, :]
        for layer, key, value in zip(self.layers, known.keys, known.values, strict=True):
            x = layer(x, key, value, mask)
        x = self.norm(x[:, past:])
        logits = {"actions": self.to_action(x)}
        if known.pointers is None:
            logits["states"] = self.to_state(x)
            if self.to_goal is not None:
                logits["goals"] = self.to_goal(x).unflatten(-1, (self.spec.num_goals, -1))
            return logits
        scale = self.width**-0.5
        shape = (number, per_map * length, -1, self.width)
        states = self.to_state(x).reshape(shape).flatten(1, 2) @ known.pointers.transpose(1, 2) * scale
        states = states.reshape(batch, length, self.spec.num_headings, -1)
        logits["states"] = states.transpose(2, 3).flatten(2)  # cell · headings + heading
        if self.to_goal is not None:
            goals = self.to_goal(x).reshape(shape).flatten(1, 2) @ known.pointers.transpose(1, 2) * scale
            logits["goals"] = goals.reshape(batch, length, self.spec.num_goals, -1)
        return logits
