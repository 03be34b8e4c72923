"""Observations -> encodings: one encoder per kind of field.

Scene fields (grid, words) are encoded once per scene and cached while they stay the same; the agent is not on the grid
(its pose is a token of the plan), so that all windows of an episode share one encoding for as long as nothing on the
grid changes. Step fields (category, vector) add a vector to a token of their step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from genplan.models.encoding import EncoderSizes, Encoding
from genplan.models.grid import GridEncoder, LocationEmbedding
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Episode, History, Observations


class WordsEncoder(nn.Module):
    """A GRU over words: the state after the last word, [M, L] -> [M, D]."""

    def __init__(self, field: Field, sizes: EncoderSizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(field.vocabulary), sizes.hidden_size, padding_idx=0)
        self.gru = nn.GRU(sizes.hidden_size, sizes.hidden_size, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        lengths = (words != 0).sum(-1).clamp(min=1)
        states, _ = self.gru(self.embed(words[:, : int(lengths.max())]))
        last: Tensor = states[torch.arange(len(words), device=words.device), lengths - 1]
        return last


class CategoryEncoder(nn.Module):
    """A learnt vector per value of each number; [..., n] or [...] -> added to base [..., D]."""

    def __init__(self, field: Field, sizes: EncoderSizes) -> None:
        super().__init__()
        self.is_number = not field.shape
        self.embeddings = nn.ModuleList(nn.Embedding(size, sizes.hidden_size) for size in field.sizes)

    def forward(self, numbers: Tensor, base: Tensor) -> Tensor:
        columns = [numbers] if self.is_number else numbers.unbind(-1)
        for column, embed in zip(columns, self.embeddings, strict=True):
            base = base + embed(column)
        return base


class VectorEncoder(nn.Module):
    """Numbers, scaled by the statistics of the demonstrations, through a small network; [..., n] -> base [..., D].

    The statistics are buffers: they are saved with the weights, and a file without them is refused.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, field: Field, sizes: EncoderSizes) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(field.shape))
        self.register_buffer("std", torch.ones(field.shape))
        width = sizes.hidden_size
        self.network = nn.Sequential(nn.Linear(field.shape[0], 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    @torch.no_grad()
    def fit(self, values: Tensor) -> None:
        """From values [N, n]; entries that never change are left as they are."""
        std, mean = torch.std_mean(values.double(), 0, correction=0)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > 1e-6, std, 1.0))

    def forward(self, values: Tensor, base: Tensor) -> Tensor:
        scaled = ((values - self.mean) / self.std).clamp(-10.0, 10.0)  # one broken sensor must not drown the rest
        encoded: Tensor = self.network(scaled)
        return base + encoded


ENCODERS: Mapping[str, type[nn.Module]] = {
    "grid": GridEncoder,
    "words": WordsEncoder,
    "category": CategoryEncoder,
    "vector": VectorEncoder,
}


class SceneEncoder(nn.Module):
    """All scene fields: words first, since they modulate how grids are read."""

    def __init__(self, spec: PlanSpec, sizes: EncoderSizes) -> None:
        super().__init__()
        fields = [(name, spec.fields[name]) for name in spec.scene_fields]
        ordered = sorted(fields, key=lambda item: item[1].kind != "words")
        self.kinds = {name: field.kind for name, field in ordered}
        self.scene = nn.ModuleDict({name: ENCODERS[field.kind](field, sizes) for name, field in ordered})
        self.null_embedding = nn.Parameter(torch.zeros(sizes.hidden_size))

    def forward(self, scene: Observations, number: int) -> Encoding:
        condition: Tensor | None = None
        grids: dict[str, Tensor] = {}
        for name, encoder in self.scene.items():
            if self.kinds[name] == "words":
                words = encoder(scene[name])
                condition = words if condition is None else condition + words
                continue
            if condition is None:
                condition = self.null_embedding.expand(number, -1)
            grids[name] = encoder(scene[name], condition)
        return Encoding(self.null_embedding.expand(number, -1) if condition is None else condition, grids)


class StepEncoder(nn.Module):
    """Step fields, added one after the other to a base vector."""

    def __init__(self, spec: PlanSpec, names: Iterable[str], sizes: EncoderSizes) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(
            {name: ENCODERS[spec.fields[name].kind](spec.fields[name], sizes) for name in names}
        )

    def forward(self, steps: Observations, base: Tensor) -> Tensor:
        """Fields [..., *shape] and base [..., D] -> [..., D]."""
        for name, encoder in self.encoders.items():
            base = encoder(steps[name], base)
        return base


def fit_statistics(module: nn.Module, episodes: Sequence[Episode]) -> None:
    """Scale every vector field of a network by the mean and deviation of the demonstrations."""
    values: dict[str, Tensor] = {}
    for part in module.modules():
        if isinstance(part, StepEncoder):
            for name, encoder in part.encoders.items():
                if isinstance(encoder, VectorEncoder):
                    if name not in values:
                        values[name] = torch.cat([torch.from_numpy(one.observations[name]) for one in episodes])
                    encoder.fit(values[name])


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
            if valid is not None:
                actions = torch.where(valid, actions, self.actions.n)
            embedded: Tensor = self.table(actions)
            return embedded
        scaled = 2 * (actions - self.low) / (self.high - self.low).clamp(min=1e-6) - 1
        embedded = self.linear(scaled)
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


class StepEmbedding(nn.Module):
    """Past steps and the current one as vectors [B, C + 1, D].

    On a grid, a step is its state: the grid's features at the cell, and the direction; what else is observed belongs to
    the current step alone (`current_fields`). Without a grid, a step is all of its fields.
    """

    def __init__(self, spec: PlanSpec, sizes: EncoderSizes) -> None:
        super().__init__()
        self.state = spec.state_field if spec.grid_field is not None else None
        if self.state is not None and spec.states is not None:
            self.location = LocationEmbedding(spec.states, sizes.hidden_size)
        else:
            self.fields = StepEncoder(spec, spec.step_fields, sizes)
            self.base = nn.Parameter(torch.zeros(sizes.hidden_size))

    def forward(self, encoding: Encoding, history: History, current: Observations) -> Tensor:
        names = [self.state] if self.state is not None else list(self.fields.encoders)
        steps = {name: torch.cat([history.steps[name], current[name][:, None]], 1) for name in names}
        if self.state is not None:
            located: Tensor = self.location(encoding, steps[self.state])
            return located
        batch, past = history.valid.shape
        embedded: Tensor = self.fields(Observations(steps), self.base.expand(batch, past + 1, -1))
        return embedded


def current_fields(spec: PlanSpec) -> list[str]:
    """Step fields that `StepEmbedding` leaves to the current step."""
    if spec.grid_field is None:
        return []
    return [name for name in spec.step_fields if name != spec.state_field]
