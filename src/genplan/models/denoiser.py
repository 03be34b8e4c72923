"""The denoiser: (x_t, t, context) -> logits per stream. MASK can be read but has no logit.

One token per step of the plan holds its state, goals and action. On a map, positions are *pointed at*: a state or goal
is the map's feature vector at its cell, and its logits are products with the features of all cells; so nothing depends
on the grid's size. Past steps are looked back at, as steps that are wholly known; states visited long ago (the trail)
stand beside the map, as places that are known to have been visited.

A plan is a few dozen small operations per iteration, and at batch 1 each costs its dispatch more than its arithmetic.
So whatever does not change while denoising is computed beforehand (`know`), look-ups are joined into one table, and a
layer's attention to the map stands beside its network, between one product in and one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import linear

from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past
from genplan.models.encoder import Context, TimeEncoder

Pair = tuple[Tensor, Tensor]
"""Keys and values, [B, heads, N, D / heads]; or a module's weight and bias."""


class Known(NamedTuple):
    """What the denoiser needs of the context, computed once per plan."""

    weights: list[list[Pair]]  # per layer
    around: list[Pair]  # per layer, of mission, map and trail, [M, heads, 1 + cells + L, D / heads]
    hidden: Tensor | None  # [M, 1, P · H, 1 + cells + L]: −inf for what is not on a window's trail; None if all is
    past: list[Pair] | None  # per layer, of past steps, [B, heads, C, D / heads]
    mask: Tensor | None  # [B, 1, 1, C + H]: −inf for past steps that never were, else 0; None if all were
    places: Tensor  # [M · rows, D]: what a state or goal at a cell looks like
    offsets: Tensor  # [B, 1, 1 + G]: where a window's states and goals begin in `places`
    moves: Tensor  # [(actions + 1) · headings, D]: what an action at a heading looks like
    base: Tensor  # [B, H, D]: added to the plan's tokens
    pointers: Tensor | None  # [M, D, cells]: what a query is compared with

    def part(self, rows: Tensor, copies: int) -> Known:
        """Of `rows`, `copies` of each in turn; where every window has a map of its own."""
        each = rows.repeat_interleave(copies)
        return self._replace(
            around=[(keys[rows], values[rows]) for keys, values in self.around],
            hidden=None if self.hidden is None else self.hidden[rows].repeat(1, 1, copies, 1),
            past=None if self.past is None else [(keys[each], values[each]) for keys, values in self.past],
            mask=None if self.mask is None else self.mask[each],
            offsets=self.offsets[each],
            base=self.base[each],
            pointers=None if self.pointers is None else self.pointers[rows],
        )


class Layer(nn.Module):
    """Attention over the plan and its past; then attention to the map, beside a network per step.

    Its weights are gathered once per plan and handed to `forward`: to find them through modules at every iteration
    takes nearly as long as to multiply with them, when there is one plan to make.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.into = nn.Linear(width, 5 * width)  # the map's query; four hidden
        self.out = nn.Linear(5 * width, width)

    def weights(self) -> list[Pair]:
        """Weight and bias of each module, in the order in which they are used."""
        modules = (self.norms[0], self.qkv, self.mix, self.norms[1], self.into, self.out)
        return [(module.weight, module.bias) for module in modules]  # type: ignore[misc]

    def forward(
        self,
        x: Tensor,
        weights: list[Pair],
        around: Pair,
        hidden: Tensor | None,
        past: Pair | None,
        mask: Tensor | None,
        only: Tensor | None = None,
    ) -> Tensor:
        """x [B, H, D]; around [M, heads, N, d], where B is a multiple of M: rows in turn share a map.

        With `only` [B], the answer of that step alone, [B, 1, D].
        """
        before, qkv, mix, between, into, out = weights
        batch, length, width = x.shape
        drop = self.dropout if self.training else 0.0
        y = linear(torch.layer_norm(x, (width,), *before), *qkv).reshape(
            batch, length, 3, self.heads, width // self.heads
        )
        q, k, v = y.permute(2, 0, 3, 1, 4).unbind()
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        if only is not None:
            each = torch.arange(batch, device=x.device)
            x, q = x[each, only, None], q[each, :, only, None]
            hidden = None if hidden is None else hidden[:, :, ::length]  # the same for all steps of a plan
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        x = x + linear(mixed.transpose(1, 2).flatten(2), *mix)
        # Parts are split and unbound rather than sliced: a slice's gradient would be a tensor of zeros as large as all.
        asked, inner = torch.split(linear(torch.layer_norm(x, (width,), *between), *into), [width, 4 * width], -1)
        asked = asked.reshape(around[0].shape[0], -1, self.heads, width // self.heads).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(asked, *around, attn_mask=hidden, dropout_p=drop)
        of_seen, of_inner = torch.split(out[0], [width, 4 * width], 1)  # one product of both, without joining them
        change = linear(seen.transpose(1, 2).reshape(-1, width), of_seen, out[1])
        change = change.addmm(functional.gelu(inner).flatten(0, 1), of_inner.t()).view_as(x)
        return x + (functional.dropout(change, drop) if drop else change)


class Denoiser(nn.Module):
    def __init__(
        self,
        spec: PlanSpec,
        width: int,
        heads: int,
        layers: int,
        horizon: int,
        context: int,
        dropout: float,
        trail: bool = False,
    ) -> None:
        super().__init__()
        self.spec, self.width, self.heads = spec, width, heads
        self.place = self.pointer = None
        goals, headings = spec.num_goals, spec.num_headings
        if spec.map_shape is not None:
            # Per cell, what a state and each of the goals look like there; and what each looks like when it is MASK.
            self.place = nn.Linear(width, (1 + goals) * width)
            self.blank = nn.Parameter(torch.randn(1 + goals, 1, width))
            self.pointer = nn.Linear(width, width)
            self.to_place = nn.Linear(width, (headings + goals) * width)
        else:
            self.states = nn.Embedding(spec.num_states + 1, width)
            self.goals = nn.Embedding(goals * (spec.goal_size + 1), width)
            self.to_place = nn.Linear(width, spec.num_states + goals * spec.goal_size)
        self.action = nn.Embedding(spec.num_actions + 1, width)  # the last is MASK
        self.heading = nn.Embedding(headings, width)
        self.step = nn.Embedding(context + horizon, width)
        self.time = TimeEncoder(width)
        self.features = nn.ModuleList(nn.Embedding(size, width) for size in spec.features)
        self.look_around = nn.Linear(width, 2 * layers * width)
        self.look_back = nn.Linear(width, 2 * layers * width) if context else None
        # A trail is searched for what happened on it (standing here, facing that), so it is made sense of first.
        self.remember = self.tried = None
        if trail:
            self.tried = nn.Linear(spec.num_actions, width, bias=False)
            self.remember = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.to_action = nn.Linear(width, spec.num_actions)

    def know(
        self,
        context: Context,
        features: Tensor | None,
        past: Past,
        per_map: int,
    ) -> Known:
        """Everything that does not depend on x_t or t. Rows are windows, `per_map` in turn for each map."""
        batch, before = past.states.shape
        condition = context.mission.repeat_interleave(per_map, 0)
        for place, embed in enumerate(self.features):
            assert features is not None
            condition = condition + embed(features[:, place])
        if self.tried is not None and past.tried is not None:
            condition = condition + self.tried((1 + past.tried).to(condition.dtype).log2())
        places, offsets = self.places(context, batch, per_map)
        around, pointers = context.mission[:, None], None
        if context.cells is not None and self.pointer is not None:
            around = torch.cat([around, context.cells], 1)
            pointers = self.pointer(context.cells).mul(self.width**-0.5).transpose(1, 2)
        known = Known(
            weights=[layer.weights() for layer in self.layers],  # type: ignore[operator]
            around=[],
            hidden=None,
            past=None,
            mask=None,
            places=places,
            offsets=offsets,
            moves=(self.action.weight[:, None] + self.heading.weight).flatten(0, 1),
            base=condition[:, None] + self.step.weight[before:],
            pointers=pointers,
        )
        if self.remember is not None and past.trail is not None and past.visited is not None:
            unknown = torch.full_like(past.trail, self.spec.num_actions)  # what was done there is not remembered
            trail = self.tokens(past.trail, unknown, None, known._replace(offsets=offsets[::per_map]))
            if not bool(past.visited.all()):
                hidden = torch.zeros(batch, around.shape[1] + trail.shape[1], device=trail.device, dtype=trail.dtype)
                hidden[:, around.shape[1] :].masked_fill_(~past.visited, -torch.inf)
                hidden = hidden.repeat_interleave(known.base.shape[1], 0)  # for every step of the plan
                known = known._replace(hidden=hidden.reshape(len(around), 1, -1, hidden.shape[1]))
            around = torch.cat([around, trail + self.remember(trail)], 1)
        known = known._replace(around=self.keys_and_values(self.look_around, around))
        if self.look_back is None or not bool(past.valid.any()):  # no past, nothing to look back at
            return known
        tokens = self.tokens(past.states, past.actions, None, known) + self.step.weight[:before]
        known = known._replace(past=self.keys_and_values(self.look_back, tokens))
        if bool(past.valid.all()):
            return known
        mask = torch.zeros(batch, before + known.base.shape[1], device=tokens.device, dtype=tokens.dtype)
        mask[:, :before].masked_fill_(~past.valid, -torch.inf)
        return known._replace(mask=mask[:, None, None, :])

    def keys_and_values(self, look: nn.Linear, tokens: Tensor) -> list[Pair]:
        """[B, N, D] -> per layer [B, heads, N, D / heads]; a product each, so that none needs to be copied."""
        pairs = zip(torch.split(look.weight, self.width), torch.split(look.bias, self.width), strict=True)
        shape = (*tokens.shape[:2], self.heads, self.width // self.heads)
        parts = [linear(tokens, *pair).reshape(shape).transpose(1, 2) for pair in pairs]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def places(self, context: Context, batch: int, per_map: int) -> tuple[Tensor, Tensor]:
        """One table of what states and goals look like, map after map, and where each window's begin in it."""
        goals = self.spec.num_goals
        if self.place is None or context.cells is None:
            first = self.spec.num_states + 1
            begins = torch.tensor([0, *(first + goal * (self.spec.goal_size + 1) for goal in range(goals))])
            return torch.cat([self.states.weight, self.goals.weight]), begins.expand(batch, 1, -1)
        number, cells, _ = context.cells.shape
        seen = self.place(context.cells).unflatten(-1, (1 + goals, -1)).transpose(1, 2)
        table = torch.cat([seen, self.blank.expand(number, -1, -1, -1)], 2)  # [M, 1 + G, cells + 1, D]
        rows = torch.arange(number, device=seen.device).repeat_interleave(per_map)[:, None] * (1 + goals)
        offsets = (rows + torch.arange(1 + goals, device=seen.device)) * (cells + 1)
        return table.flatten(0, 2), offsets[:, None]

    def tokens(self, states: Tensor, actions: Tensor, goals: Tensor | None, known: Known) -> Tensor:
        """states [B, T], actions [B, T], goals [B, T, G] -> [B, T, D]. MASK of states is cell `cells`, heading 0."""
        headings = self.spec.num_headings
        where = (states // headings)[..., None]
        if goals is not None:
            where = torch.cat([where, goals], -1)
        seen = functional.embedding(where + known.offsets[..., : where.shape[-1]], known.places).sum(2)
        return seen + functional.embedding(actions * headings + states % headings, known.moves)

    def forward(
        self, x_t: Mapping[str, Tensor], t: Tensor, known: Known, places: bool = True, only: Tensor | None = None
    ) -> dict[str, Tensor]:
        """x_t int64 [B, H, ...], t [B] -> logits [B, H, ..., S]; without `places`, of actions only.

        With `only` [B], of that step alone, [B, 1, S]: the last layer need not answer for the others.
        """
        batch, length = x_t["actions"].shape
        x = self.tokens(x_t["states"], x_t["actions"], x_t.get("goals"), known)
        x = x + known.base + self.time(t)[:, None]
        for number, layer in enumerate(self.layers):
            past = None if known.past is None else known.past[number]
            asked = only if number == len(self.layers) - 1 else None
            x = layer(x, known.weights[number], known.around[number], known.hidden, past, known.mask, asked)
        x = self.norm(x)
        logits = {"actions": self.to_action(x)}
        if not places:
            return logits
        placed = self.to_place(x)
        headings, goals = self.spec.num_headings, self.spec.num_goals
        if known.pointers is None:
            logits["states"] = placed[..., : self.spec.num_states]
            if goals:
                logits["goals"] = placed[..., self.spec.num_states :].unflatten(-1, (goals, -1))
            return logits
        queries = placed.reshape(known.pointers.shape[0], -1, self.width)  # [M, P · H · (headings + G), D]
        found = (queries @ known.pointers).reshape(batch, length, headings + goals, -1)
        states, aims = torch.split(found, [headings, goals], 2)
        logits["states"] = states.transpose(2, 3).flatten(2)  # cell · headings + heading
        if goals:
            logits["goals"] = aims
        return logits
