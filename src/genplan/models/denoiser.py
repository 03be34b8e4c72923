"""The denoiser of plans on a grid: (x_t, t, prepared) -> logits per stream. MASK can be read but has no logit.

One token per step of the plan holds its state, goals and action. Positions are *pointed at*: a state or goal is the
grid's feature vector at its cell, and its logits are products with the features of all cells; so nothing depends on the
grid's size. Past steps are attended to as steps that are wholly known; states visited long ago stand beside the scene.

A plan is a few dozen small operations per iteration, and at batch 1 each costs its dispatch more than its arithmetic.
So whatever does not change while denoising is computed beforehand (`prepare`), look-ups are joined into one table, and
a layer's attention to the scene stands beside its network, between one product in and one out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.models.encoders import StepEncoder, TimeEncoder
from genplan.models.encoding import EncoderSizes, Encoding
from genplan.models.layer import Layer, Pair, keys_and_values
from genplan.spec import PlanSpec
from genplan.types import History, Observations


@dataclass(frozen=True)
class NetworkSizes:
    """What a denoiser is made of, beside the spec."""

    hidden_size: int
    num_heads: int
    num_layers: int
    horizon: int
    num_past: int
    dropout: float = 0.0
    visit_memory: bool = False


@dataclass(frozen=True)
class Prepared:
    """What the denoiser needs of observations and history, computed once per plan."""

    weights: list[list[Pair]]  # per layer
    locations: Tensor  # [M · rows, D]: what a state or goal at a cell looks like
    offsets: Tensor  # [B, 1, 1 + G]: where a window's states and goals begin in `locations`
    action_table: Tensor  # [(actions + 1) · directions, D]: what an action in a direction looks like
    token_bias: Tensor  # [B, H, D]: added to the plan's tokens
    pointers: Tensor  # [M, D, cells]: what a query is compared with
    scene_kv: list[Pair]  # per layer, of words, grids and visited states, [M, heads, N, D / heads]
    scene_mask: Tensor | None = None  # [M, 1, P · H, N]: −inf for states not visited by a window; None if all were
    history_kv: list[Pair] | None = None  # per layer, of past steps, [B, heads, C, D / heads]
    history_mask: Tensor | None = None  # [B, 1, 1, C + H]: −inf for past steps that never were; None if all were

    def part(self, ids: Tensor, copies: int) -> Prepared:
        """Of the rows `ids`, `copies` of each in turn; where every window has a scene of its own."""
        rows = ids.repeat_interleave(copies)
        history = self.history_kv
        return replace(
            self,
            scene_kv=[(keys[ids], values[ids]) for keys, values in self.scene_kv],
            scene_mask=None if self.scene_mask is None else self.scene_mask[ids].repeat(1, 1, copies, 1),
            history_kv=None if history is None else [(keys[rows], values[rows]) for keys, values in history],
            history_mask=None if self.history_mask is None else self.history_mask[rows],
            offsets=self.offsets[rows],
            token_bias=self.token_bias[rows],
            pointers=self.pointers[ids],
        )


class Denoiser(nn.Module):
    """For specs whose states point at a grid, and one action token per step."""

    size_free = True  # the weights serve grids of all sizes

    def __init__(self, spec: PlanSpec, sizes: NetworkSizes, num_actions: int) -> None:
        """`num_actions` may be more than the spec's: a method's own tokens, such as the end of a plan."""
        super().__init__()
        assert spec.states is not None
        assert spec.grid_field is not None
        width, goals, layers = sizes.hidden_size, spec.num_goals, sizes.num_layers
        self.directions, self.num_actions, self.num_goals = spec.states.directions, num_actions, goals
        self.width, self.heads, self.grid, self.state = width, sizes.num_heads, spec.grid_field, spec.state_field
        # Per cell, what a state and each of the goals look like there; and what each looks like when it is MASK.
        self.location_proj = nn.Linear(width, (1 + goals) * width)
        self.mask_embedding = nn.Parameter(torch.randn(1 + goals, 1, width))
        self.pointer = nn.Linear(width, width)
        self.location_head = nn.Linear(width, (self.directions + goals) * width)
        self.action = nn.Embedding(num_actions + 1, width)  # the last is MASK
        self.direction = nn.Embedding(self.directions, width)
        self.step = nn.Embedding(sizes.num_past + sizes.horizon, width)
        self.time = TimeEncoder(width)
        others = [name for name in spec.step_fields if name != self.state]
        self.step_fields = StepEncoder(spec, others, EncoderSizes(width))
        self.scene_kv_proj = nn.Linear(width, 2 * layers * width)
        self.history_kv_proj = nn.Linear(width, 2 * layers * width) if sizes.num_past else None
        # Visited states are searched for what happened there (standing here, facing that): they get their own network.
        self.visited_mlp = self.action_counts = None
        if sizes.visit_memory:
            self.action_counts = nn.Linear(num_actions, width, bias=False)
            self.visited_mlp = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
        self.layers = nn.ModuleList(Layer(width, sizes.num_heads, sizes.dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.action_head = nn.Linear(width, num_actions)

    # --- once per plan -----------------------------------------------------------------------------------------------

    def prepare(self, encoding: Encoding, current: Observations, history: History, copies: int) -> Prepared:
        """Everything that does not depend on x_t or t. Rows are windows, `copies` in turn for each scene."""
        condition = self.step_fields(current, encoding.condition.repeat_interleave(copies, 0))
        if self.action_counts is not None and history.action_counts is not None:
            condition = condition + self.action_counts((1 + history.action_counts).to(condition.dtype).log2())
        locations, offsets = self._locations(encoding.grids[self.grid], copies)
        pointers = self.pointer(encoding.grids[self.grid]).mul(self.width**-0.5).transpose(1, 2)
        before = history.valid.shape[1]
        prepared = Prepared(
            weights=[layer.weights() for layer in self.layers],  # type: ignore[operator]
            locations=locations,
            offsets=offsets,
            action_table=(self.action.weight[:, None] + self.direction.weight).flatten(0, 1),
            token_bias=condition[:, None] + self.step.weight[before:],
            pointers=pointers,
            scene_kv=[],
        )
        prepared = self._with_scene(prepared, encoding, history, copies)
        return self._with_history(prepared, history)

    def _locations(self, features: Tensor, copies: int) -> tuple[Tensor, Tensor]:
        """One table of what states and goals look like, scene after scene, and where each window's begin in it."""
        number, cells, _ = features.shape
        shown = self.location_proj(features).unflatten(-1, (1 + self.num_goals, -1)).transpose(1, 2)
        table = torch.cat([shown, self.mask_embedding.expand(number, -1, -1, -1)], 2)  # [M, 1 + G, cells + 1, D]
        first = torch.arange(number, device=features.device).repeat_interleave(copies)[:, None] * (1 + self.num_goals)
        offsets = (first + torch.arange(1 + self.num_goals, device=features.device)) * (cells + 1)
        return table.flatten(0, 2), offsets[:, None]

    def _with_scene(self, prepared: Prepared, encoding: Encoding, history: History, copies: int) -> Prepared:
        """With keys and values of words, grids and visited states."""
        scene = torch.cat([encoding.condition[:, None], *encoding.grids.values()], 1)
        mask = None
        if self.visited_mlp is not None and history.visited_states is not None and history.visited_mask is not None:
            unknown = torch.full_like(history.visited_states, self.num_actions)  # what was done there is not remembered
            shared = replace(prepared, offsets=prepared.offsets[::copies])
            visited = self._tokens(history.visited_states, unknown, None, shared)
            if not bool(history.visited_mask.all()):
                batch, length = history.visited_mask.shape
                mask = torch.zeros(batch, scene.shape[1] + length, device=visited.device, dtype=visited.dtype)
                mask[:, scene.shape[1] :].masked_fill_(~history.visited_mask, -torch.inf)
                mask = mask.repeat_interleave(prepared.token_bias.shape[1], 0)  # for every step of the plan
                mask = mask.reshape(len(scene), 1, -1, mask.shape[1])
            scene = torch.cat([scene, visited + self.visited_mlp(visited)], 1)
        return replace(prepared, scene_kv=keys_and_values(self.scene_kv_proj, scene, self.heads), scene_mask=mask)

    def _with_history(self, prepared: Prepared, history: History) -> Prepared:
        """With keys and values of past steps, if there are any."""
        if self.history_kv_proj is None or not bool(history.valid.any()):
            return prepared
        assert self.state is not None
        batch, before = history.valid.shape
        tokens = self._tokens(history.steps[self.state], history.actions, None, prepared) + self.step.weight[:before]
        prepared = replace(prepared, history_kv=keys_and_values(self.history_kv_proj, tokens, self.heads))
        if bool(history.valid.all()):
            return prepared
        length = before + prepared.token_bias.shape[1]
        mask = torch.zeros(batch, length, device=tokens.device, dtype=tokens.dtype)
        mask[:, :before].masked_fill_(~history.valid, -torch.inf)
        return replace(prepared, history_mask=mask[:, None, None, :])

    # --- once per iteration ------------------------------------------------------------------------------------------

    def _tokens(self, states: Tensor, actions: Tensor, goals: Tensor | None, prepared: Prepared) -> Tensor:
        """States [B, T], actions [B, T], goals [B, T, G] -> [B, T, D]. MASK of states is cell `cells`, direction 0."""
        cells = (states // self.directions)[..., None]
        if goals is not None:
            cells = torch.cat([cells, goals], -1)
        shown = functional.embedding(cells + prepared.offsets[..., : cells.shape[-1]], prepared.locations).sum(2)
        return shown + functional.embedding(actions * self.directions + states % self.directions, prepared.action_table)

    def forward(
        self,
        x_t: Mapping[str, Tensor],
        t: Tensor,
        prepared: Prepared,
        streams: Sequence[str] | None = None,
        query_step: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """x_t int64 [B, H, ...], t [B] -> logits [B, H, ..., S]; with `streams`, of those alone.

        With `query_step` [B], of that step alone, [B, 1, S]: the last layer need not answer for the others.
        """
        batch, length = x_t["actions"].shape
        x = self._tokens(x_t["states"], x_t["actions"], x_t.get("goals"), prepared)
        x = x + prepared.token_bias + self.time(t)[:, None]
        for number, layer in enumerate(self.layers):
            history = None if prepared.history_kv is None else prepared.history_kv[number]
            query = query_step if number == len(self.layers) - 1 else None
            x = layer(
                x, prepared.weights[number], prepared.scene_kv[number], prepared.scene_mask, history,
                prepared.history_mask, query,
            )  # fmt: skip
        x = self.norm(x)
        logits = {"actions": self.action_head(x)}
        if streams is not None and set(streams) == {"actions"}:
            return logits
        queries = self.location_head(x).reshape(prepared.pointers.shape[0], -1, self.width)
        found = (queries @ prepared.pointers).reshape(batch, length, self.directions + self.num_goals, -1)
        states, goal_logits = torch.split(found, [self.directions, self.num_goals], 2)
        logits["states"] = states.transpose(2, 3).flatten(2)  # cell · directions + direction
        if self.num_goals:
            logits["goals"] = goal_logits
        return logits
