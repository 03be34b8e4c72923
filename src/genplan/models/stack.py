"""The observations of a context, read together: one vector of what is observed now and was before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genplan.models.encoders import fit_vector
from genplan.models.settings import EncoderConfig, MemoryConfig
from genplan.spec import PlanSpec
from genplan.types import History, Observations


class ObservationStack(nn.Module):
    """Vectors, scaled by the statistics of the demonstrations, and categories, of all steps of the context, through a
    network: [B, D]. What was done in between is not shown: policies of continuous control would learn to repeat it.

    Before an episode's first step, its first observation stands.
    """

    def __init__(self, spec: PlanSpec, names: list[str], network: EncoderConfig, memory: MemoryConfig) -> None:
        super().__init__()
        width, self.steps = network.hidden_size, memory.context_length
        fields = {name: spec.fields[name] for name in names}
        self.vectors = [name for name, one in fields.items() if one.kind == "vector"]
        self.categories = [name for name, one in fields.items() if one.kind == "category"]
        for name in self.vectors:
            self.register_buffer(f"mean_{name}", torch.zeros(fields[name].shape))
            self.register_buffer(f"std_{name}", torch.ones(fields[name].shape))
        sizes = [size for name in self.categories for size in fields[name].sizes]
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        size = self.steps * (sum(fields[name].shape[0] for name in self.vectors) + width * bool(sizes))
        self.network = nn.Sequential(
            nn.Linear(max(size, 1), 4 * width), nn.GELU(), nn.Linear(4 * width, 2 * width), nn.GELU(),
            nn.Linear(2 * width, width),
        )  # fmt: skip

    @torch.no_grad()
    def fit(self, name: str, values: Tensor) -> None:
        """Statistics of a vector field, from values [N, n]."""
        mean, std = fit_vector(values)
        getattr(self, f"mean_{name}").copy_(mean)
        getattr(self, f"std_{name}").copy_(std)

    def forward(self, current: Observations, history: History) -> Tensor:
        batch = len(current[(*self.vectors, *self.categories)[0]])
        parts = [
            ((self._steps(name, current, history) - getattr(self, f"mean_{name}")) / getattr(self, f"std_{name}"))
            for name in self.vectors
        ]
        if self.tables:
            columns = [
                column
                for name in self.categories
                for column in self._steps(name, current, history).reshape(batch, self.steps, -1).unbind(-1)
            ]
            embedded = [table(column) for table, column in zip(self.tables, columns, strict=True)]
            parts.append(torch.stack(embedded).sum(0))
        stacked = torch.cat([part.clamp(-10.0, 10.0).flatten(1) for part in parts], 1)
        answer: Tensor = self.network(stacked)
        return answer

    def _steps(self, name: str, current: Observations, history: History) -> Tensor:
        """The field at all steps of the context [B, C + 1, …]; before the first, the first stands."""
        now = current[name][:, None]
        if self.steps == 1:
            return now
        steps = torch.cat([history.steps[name], now], 1)
        number = history.valid.shape[1]
        first = number - history.valid.sum(1, keepdim=True)  # of the steps that were
        index = torch.maximum(torch.arange(number + 1, device=now.device), first)
        return steps[torch.arange(len(steps), device=now.device)[:, None], index]
