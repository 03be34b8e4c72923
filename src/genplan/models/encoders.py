"""Observations -> encodings: one encoder per kind of field; and what steps, states and actions look like in them.

Scene fields (grid, words) are encoded once per scene and cached while they stay the same; the agent is not on the grid
(its pose is a token of the plan), so that all windows of an episode share one encoding for as long as nothing on the
grid changes. Step fields (category, vector) add a vector to a token of their step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.models.grid import GridEncoder, Words
from genplan.models.settings import EncoderConfig
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Episode, History, Observations


class Encoding(NamedTuple):
    """Encoded scenes, of which there are M."""

    condition: Tensor  # [M, D]: what the words say, a learnt constant without any; and grids without states, on average
    grids: Mapping[str, Tensor]  # [M, cells, D] per grid field

    def rows(self, ids: Tensor) -> Encoding:
        return Encoding(self.condition[ids], {name: grid[ids] for name, grid in self.grids.items()})


class WordsEncoder(nn.Module):
    """A GRU over words [M, L]: the state after the last word [M, D], and those after each, which `Words` holds."""

    def __init__(self, field: Field, config: EncoderConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(field.vocabulary), config.hidden_size, padding_idx=0)
        self.gru = nn.GRU(config.hidden_size, config.hidden_size, batch_first=True)

    def forward(self, words: Tensor) -> tuple[Tensor, Words]:
        lengths = (words != 0).sum(-1).clamp(min=1)
        words = words[:, : int(lengths.max())]
        states, _ = self.gru(self.embed(words))
        return states[torch.arange(len(words), device=words.device), lengths - 1], Words(states, words != 0)


class CategoryEncoder(nn.Module):
    """A learnt vector per value of each number; [..., n] or [...] -> added to base [..., D]."""

    def __init__(self, field: Field, config: EncoderConfig) -> None:
        super().__init__()
        self.is_number = not field.shape
        self.embeddings = nn.ModuleList(nn.Embedding(size, config.hidden_size) for size in field.sizes)

    def forward(self, numbers: Tensor, base: Tensor) -> Tensor:
        columns = [numbers] if self.is_number else numbers.unbind(-1)
        for column, embed in zip(columns, self.embeddings, strict=True):
            base = base + embed(column)
        return base


LEAST_CHANGE = 1e-4  # of an entry's deviation, in parts of the largest of its field


class VectorScale(nn.Module):
    """Numbers [..., n], scaled by the statistics of the demonstrations.

    The statistics are buffers: they are saved with the weights, and a file without them is refused.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, field: Field) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(field.shape))
        self.register_buffer("std", torch.ones(field.shape))

    @torch.no_grad()
    def fit(self, values: Tensor) -> None:
        """From values [N, n]; entries that hardly change, beside others of the field, are left as they are: enlarged,
        they would be noise."""
        std, mean = torch.std_mean(values.double(), 0, correction=0)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > max(LEAST_CHANGE * float(std.max()), 1e-6), std, 1.0))

    def scaled(self, values: Tensor) -> Tensor:
        return ((values - self.mean) / self.std).clamp(-10.0, 10.0)  # one broken sensor must not drown the rest


class VectorEncoder(VectorScale):
    """Scaled numbers through a small network; [..., n] -> base [..., D]."""

    def __init__(self, field: Field, config: EncoderConfig) -> None:
        super().__init__(field)
        width = config.hidden_size
        self.network = nn.Sequential(nn.Linear(field.shape[0], 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, values: Tensor, base: Tensor) -> Tensor:
        return base.add(self.network(self.scaled(values)))


ENCODERS: dict[str, type[nn.Module]] = {
    "grid": GridEncoder, "words": WordsEncoder, "category": CategoryEncoder, "vector": VectorEncoder,
}  # fmt: skip


class SceneEncoder(nn.Module):
    """All scene fields: words first, since they modulate how grids are read."""

    def __init__(self, spec: PlanSpec, config: EncoderConfig) -> None:
        super().__init__()
        self.words, self.grids = (
            [name for name in spec.scene_fields if spec.fields[name].kind == kind] for kind in ("words", "grid")
        )
        fields = {name: spec.fields[name] for name in (*self.words, *self.grids)}
        self.scene = nn.ModuleDict({name: ENCODERS[field.kind](field, config) for name, field in fields.items()})
        self.null_embedding = nn.Parameter(torch.zeros(config.hidden_size))
        self.pooled = [name for name in self.grids if name != spec.grid_field]  # of which no state shows a cell

    def forward(self, scene: Observations, number: int) -> Encoding:
        read = [self.scene[name](scene[name]) for name in self.words]
        condition = sum((last for last, _ in read[1:]), read[0][0]) if read else self.null_embedding.expand(number, -1)
        words = [each for _, each in read]
        grids = {name: self.scene[name](scene[name], condition, words) for name in self.grids}
        return Encoding(sum((grids[name].mean(1) for name in self.pooled), condition), grids)


class StepEncoder(nn.Module):
    """Step fields, added one after the other to a base vector."""

    def __init__(self, spec: PlanSpec, names: Iterable[str], config: EncoderConfig) -> None:
        super().__init__()
        fields = {name: spec.fields[name] for name in names}
        self.encoders = nn.ModuleDict({name: ENCODERS[field.kind](field, config) for name, field in fields.items()})

    def forward(self, steps: Observations, base: Tensor) -> Tensor:
        """Fields [..., *shape] and base [..., D] -> [..., D]."""
        for name, encoder in self.encoders.items():
            base = encoder(steps[name], base)
        return base


def fit_statistics(module: nn.Module, episodes: Sequence[Episode]) -> None:
    """Scale every vector field of a network by the mean and deviation of the demonstrations."""
    columns: dict[str, Tensor] = {}
    for part in module.modules():
        encoders = getattr(part, "encoders", None)  # by field
        for name, encoder in encoders.items() if isinstance(encoders, nn.ModuleDict) else ():
            if isinstance(encoder, VectorScale):
                if name not in columns:
                    columns[name] = torch.cat([torch.from_numpy(one.observations[name]) for one in episodes])
                encoder.fit(columns[name])


class ActionEmbedding(nn.Module):
    """An executed action as a vector: [..., *A] -> [..., D]. Discrete: a table, with a row more for "none yet"."""

    low: Tensor
    high: Tensor

    def __init__(self, actions: Actions, hidden_size: int, num_extra: int = 0) -> None:
        super().__init__()
        self.actions = actions
        if actions.n is not None:
            self.table = nn.Embedding(actions.n + num_extra, hidden_size)
            return
        self.register_buffer("low", torch.tensor(actions.low), persistent=False)
        self.register_buffer("high", torch.tensor(actions.high), persistent=False)
        self.linear = nn.Linear(len(actions.low), hidden_size)
        self.none = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, actions: Tensor, valid: Tensor | None = None) -> Tensor:
        """`valid` [...]: False where no action was done; "none yet" stands there (discrete ones need an extra row)."""
        if self.actions.n is not None:
            actions = actions if valid is None else torch.where(valid, actions, self.actions.n)
            return functional.embedding(actions, self.table.weight)
        scaled = 2 * (actions - self.low) / (self.high - self.low).clamp(min=1e-6) - 1
        embedded: Tensor = self.linear(scaled)
        return embedded if valid is None else torch.where(valid[..., None], embedded, self.none)


class TimeEncoder(nn.Module):
    """Sines and cosines of t at frequencies from 1 to 100, mixed: [...] -> [..., D]."""

    frequencies: Tensor
    phases: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        frequencies = torch.exp(torch.linspace(0, math.log(100.0), hidden_size // 2)) * math.pi
        phases = torch.tensor([0.0, math.pi / 2]).repeat_interleave(hidden_size // 2)
        self.register_buffer("frequencies", frequencies.repeat(2), persistent=False)
        self.register_buffer("phases", phases, persistent=False)
        self.mix = nn.Linear(hidden_size, hidden_size)

    def forward(self, t: Tensor) -> Tensor:
        mixed: Tensor = self.mix(torch.addcmul(self.phases, t[..., None], self.frequencies).sin_())
        return mixed


class LocationEmbedding(nn.Module):
    """States [B, T] or goals [B, G] -> [B, T, D]: the grid's features at the cell, and the direction.

    Windows in turn share a scene. Without a grid, a learnt vector per token.
    """

    def __init__(self, stream: Stream, hidden_size: int) -> None:
        super().__init__()
        self.grid, self.directions = stream.points_at, stream.directions
        if self.grid is not None:
            self.cell = nn.Linear(hidden_size, hidden_size)
            self.direction = nn.Embedding(self.directions, hidden_size)
        else:
            self.table = nn.Embedding(stream.size, hidden_size)

    def forward(self, encoding: Encoding, tokens: Tensor) -> Tensor:
        if self.grid is None:
            return functional.embedding(tokens, self.table.weight)
        features = encoding.grids[self.grid]
        number, cells, _ = features.shape
        first = torch.arange(number, device=tokens.device).repeat_interleave(len(tokens) // number) * cells
        shown = functional.embedding(tokens // self.directions + first[:, None], features.flatten(0, 1))
        located: Tensor = self.cell(shown) + self.direction(tokens % self.directions)
        return located


class StepEmbedding(nn.Module):
    """Past steps and the current one as vectors [B, C + 1, D].

    On a grid, a step is its state: the grid's features at the cell, and the direction; what else is observed belongs to
    the current step alone (`current_fields`). Without a grid, a step is all of its fields.
    """

    def __init__(self, spec: PlanSpec, config: EncoderConfig) -> None:
        super().__init__()
        self.state = spec.state_field if spec.grid_field is not None else None
        if self.state is not None:
            self.location = LocationEmbedding(spec.streams["states"], config.hidden_size)
        else:
            self.fields = StepEncoder(spec, spec.step_fields, config)
            self.base = nn.Parameter(torch.zeros(config.hidden_size))

    def forward(self, encoding: Encoding, history: History, current: Observations) -> Tensor:
        names = [self.state] if self.state is not None else list(self.fields.encoders)
        steps = {name: torch.cat([history.steps[name], current[name][:, None]], 1) for name in names}
        embedded: Tensor
        if self.state is not None:
            embedded = self.location(encoding, steps[self.state])
        else:
            batch, past = history.valid.shape
            embedded = self.fields(Observations(steps), self.base.expand(batch, past + 1, -1))
        return embedded


def current_fields(spec: PlanSpec) -> list[str]:
    """Step fields that `StepEmbedding` leaves to the current step."""
    return [name for name in spec.step_fields if name != spec.state_field] if spec.grid_field is not None else []


def residual_mlp(width: int) -> nn.Sequential:
    """To be added to its input."""
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class VisitedAttention(nn.Module):
    """The current step attends to all states visited before; how often each action was done in this one is added."""

    def __init__(self, spec: PlanSpec, config: EncoderConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.location = LocationEmbedding(spec.streams["states"], width)
        self.visited_mlp = residual_mlp(width)
        self.null_embedding = nn.Parameter(torch.zeros(width))  # attended to where nothing was visited
        self.attention = nn.MultiheadAttention(width, config.num_heads, batch_first=True)
        self.action_counts = nn.Linear(spec.actions.n or 1, width, bias=False)

    def forward(self, encoding: Encoding, current: Tensor, history: History) -> Tensor:
        """The current step [B, D] -> [B, D], to be added to it."""
        batch = len(current)
        keys = self.null_embedding.expand(batch, 1, -1)
        hidden = torch.zeros(batch, 1, dtype=torch.bool, device=current.device)
        if history.visited_states is not None and history.visited_mask is not None:
            visited = self.location(encoding, history.visited_states)
            visited = (visited + self.visited_mlp(visited)).repeat_interleave(batch // len(visited), 0)
            keys, hidden = torch.cat([keys, visited], 1), torch.cat([hidden, ~history.visited_mask], 1)
        attended, _ = self.attention(current[:, None], keys, keys, key_padding_mask=hidden, need_weights=False)
        answer: Tensor = attended[:, 0]
        if history.action_counts is not None:
            answer = answer + self.action_counts((1 + history.action_counts).to(current.dtype).log2())
        return answer
