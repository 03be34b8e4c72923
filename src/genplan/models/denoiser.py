"""The denoiser of plans on a grid: (x_t, t, prepared) -> logits per stream. MASK can be read but has no logit.

One token per step of the plan holds its state, goals and action. Positions are *pointed at*: a state or goal is the
grid's feature vector at its cell, and its logits are products with the features of all cells; so nothing depends on the
grid's size. Past steps are attended to as steps that are wholly known; states visited long ago stand beside the scene.

A plan is a few dozen small operations per iteration, and at batch 1 each costs its dispatch more than its arithmetic.
So whatever does not change while denoising is computed beforehand (`prepare`), look-ups are joined into one table, and
a layer's attention to the scene stands beside its network, between one product in and one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.models.encoders import Encoding, StepEncoder, TimeEncoder, residual_mlp
from genplan.models.layer import Layer, Pair, attention_mask, keys_and_values
from genplan.models.settings import MemoryConfig, NetworkConfig
from genplan.spec import PlanSpec
from genplan.types import History, Observations


@dataclass
class Prepared:
    """What the denoiser needs of observations and history, computed once per plan."""

    weights: list[list[Pair]]  # per layer
    locations: Tensor  # [M · rows, D]: what a state or goal at a cell looks like
    offsets: Tensor  # [B, 1, 1 + G]: where a window's states and goals begin in `locations`
    action_table: Tensor  # [(actions + 1) · directions, D]: what an action in a direction looks like
    token_bias: Tensor  # [B, H, D]: added to the plan's tokens
    pointers: Tensor  # [M, D, cells]: what a query is compared with
    scene_kv: list[Pair] = field(default_factory=list)  # per layer: words, grids, visited states, [M, heads, N, d]
    scene_mask: Tensor | None = None  # [M, 1, P · H, N]: −inf for states not visited by a window; None if all were
    history_kv: list[Pair] | None = None  # per layer, of past steps, [B, heads, C, d]
    history_mask: Tensor | None = None  # [B, 1, 1, C + H]: −inf for past steps that never were; None if all were
    hidden: Tensor | None = None  # [B, H, D]: what the last call made of the plan's steps

    def part(self, ids: Tensor, copies: int) -> Prepared:
        """Of the rows `ids`, `copies` of each in turn; where every window has a scene of its own."""
        rows = ids.repeat_interleave(copies)
        history, scene_mask, history_mask = self.history_kv, self.scene_mask, self.history_mask
        return replace(
            self,
            scene_kv=[(keys[ids], values[ids]) for keys, values in self.scene_kv],
            scene_mask=None if scene_mask is None else scene_mask[ids].repeat(1, 1, copies, 1),
            history_kv=None if history is None else [(keys[rows], values[rows]) for keys, values in history],
            history_mask=None if history_mask is None else history_mask[rows],
            offsets=self.offsets[rows],
            token_bias=self.token_bias[rows],
            pointers=self.pointers[ids],
        )


class Denoiser(nn.Module):
    """For specs whose states point at a grid, and one action token per step."""

    size_free = True  # the weights serve grids of all sizes

    def __init__(
        self, spec: PlanSpec, network: NetworkConfig, memory: MemoryConfig, horizon: int, num_actions: int
    ) -> None:
        """`num_actions` may be more than the spec's: a method's own tokens, such as the end of a plan."""
        super().__init__()
        width, goals, layers = network.hidden_size, spec.num_goals, network.num_layers
        self.directions, self.num_actions, self.num_goals = spec.streams["states"].directions, num_actions, goals
        self.width, self.heads = width, network.num_heads
        self.grid, self.state = spec.grid_field or "", spec.state_field or ""
        # Per cell, what a state and each of the goals look like there; and what each looks like when it is MASK.
        self.location_proj = nn.Linear(width, (1 + goals) * width)
        self.mask_embedding = nn.Parameter(torch.randn(1 + goals, 1, width))
        self.pointer = nn.Linear(width, width)
        self.location_head = nn.Linear(width, (self.directions + goals) * width)
        self.action = nn.Embedding(num_actions + 1, width)  # the last is MASK
        self.direction = nn.Embedding(self.directions, width)
        self.step = nn.Embedding(memory.num_past + horizon, width)
        self.time = TimeEncoder(width)
        others = [name for name in spec.step_fields if name != self.state]
        self.step_fields = StepEncoder(spec, others, network)
        self.scene_kv_proj = nn.Linear(width, 2 * layers * width)
        self.history_kv_proj = nn.Linear(width, 2 * layers * width) if memory.num_past else None
        # Visited states are searched for what happened there (standing here, facing that): they get their own network.
        self.action_counts = nn.Linear(num_actions, width, bias=False) if memory.visit_memory else None
        self.visited_mlp = residual_mlp(width) if memory.visit_memory else None
        self.layers = nn.ModuleList(Layer(width, network.num_heads, network.dropout) for _ in range(layers))
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
        prepared = Prepared(
            weights=[layer.weights() for layer in self.layers],  # type: ignore[operator]
            locations=locations,
            offsets=offsets,
            action_table=(self.action.weight[:, None] + self.direction.weight).flatten(0, 1),
            token_bias=condition[:, None] + self.step.weight[history.valid.shape[1] :],
            pointers=pointers,
        )
        self._add_scene(prepared, encoding, history, copies)
        if self.history_kv_proj is not None and bool(history.valid.any()):
            tokens = self._tokens(history.steps[self.state], history.actions, None, prepared)
            tokens = tokens + self.step.weight[: history.valid.shape[1]]
            prepared.history_kv = keys_and_values(self.history_kv_proj, tokens, self.heads)
            mask = attention_mask(history.valid, tokens, after=prepared.token_bias.shape[1])
            prepared.history_mask = None if mask is None else mask[:, None, None, :]
        return prepared

    def _locations(self, features: Tensor, copies: int) -> tuple[Tensor, Tensor]:
        """One table of what states and goals look like, scene after scene, and where each window's begin in it."""
        number, cells, _ = features.shape
        shown = self.location_proj(features).unflatten(-1, (1 + self.num_goals, -1)).transpose(1, 2)
        table = torch.cat([shown, self.mask_embedding.expand(number, -1, -1, -1)], 2)  # [M, 1 + G, cells + 1, D]
        first = torch.arange(number, device=features.device).repeat_interleave(copies)[:, None] * (1 + self.num_goals)
        offsets = (first + torch.arange(1 + self.num_goals, device=features.device)) * (cells + 1)
        return table.flatten(0, 2), offsets[:, None]

    def _add_scene(self, prepared: Prepared, encoding: Encoding, history: History, copies: int) -> None:
        """Keys and values of words, grids and visited states."""
        scene = torch.cat([encoding.condition[:, None], *encoding.grids.values()], 1)
        if self.visited_mlp is not None and history.visited_states is not None and history.visited_mask is not None:
            unknown = torch.full_like(history.visited_states, self.num_actions)  # what was done there is not remembered
            shared = replace(prepared, offsets=prepared.offsets[::copies])
            visited = self._tokens(history.visited_states, unknown, None, shared)
            mask = attention_mask(history.visited_mask, visited, before=scene.shape[1])
            if mask is not None:
                mask = mask.repeat_interleave(prepared.token_bias.shape[1], 0)  # for every step of the plan
                prepared.scene_mask = mask.reshape(len(scene), 1, -1, mask.shape[1])
            scene = torch.cat([scene, visited + self.visited_mlp(visited)], 1)
        prepared.scene_kv = keys_and_values(self.scene_kv_proj, scene, self.heads)

    # --- once per iteration ------------------------------------------------------------------------------------------

    def _tokens(self, states: Tensor, actions: Tensor, goals: Tensor | None, prepared: Prepared) -> Tensor:
        """States [B, T], actions [B, T], goals [B, T, G] -> [B, T, D]. MASK of states is cell `cells`, direction 0."""
        cells = (states // self.directions)[..., None]
        if goals is not None:
            cells = torch.cat([cells, goals], -1)
        shown = functional.embedding(cells + prepared.offsets[..., : cells.shape[-1]], prepared.locations).sum(2)
        return shown + functional.embedding(actions * self.directions + states % self.directions, prepared.action_table)

    def forward(
        self, x_t: Mapping[str, Tensor], t: Tensor, prepared: Prepared, actions_only: bool = False,
        query_step: Tensor | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """x_t int64 [B, H, ...], t [B] -> logits per stream [B, H, ..., S].

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
        prepared.hidden = x = self.norm(x)
        logits = {"actions": self.action_head(x)}
        if actions_only:
            return logits
        queries = self.location_head(x).reshape(prepared.pointers.shape[0], -1, self.width)
        found = (queries @ prepared.pointers).reshape(batch, length, self.directions + self.num_goals, -1)
        states, goal_logits = torch.split(found, [self.directions, self.num_goals], 2)
        logits["states"] = states.transpose(2, 3).flatten(2)  # cell · directions + direction
        if self.num_goals:
            logits["goals"] = goal_logits
        return logits
