"""The observations of a context, read together: one vector of what is observed now and was before."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from genplan.models.encoders import CategoryEncoder, VectorScale
from genplan.models.settings import EncoderConfig, MemoryConfig
from genplan.spec import PlanSpec
from genplan.types import History, Observations


class ObservationStack(nn.Module):
    """Vectors and categories of all steps of the context, through a network: [B, D]. What was done in between is not
    shown: policies of continuous control would learn to repeat it.

    Before an episode's first step, its first observation stands.
    """

    def __init__(self, spec: PlanSpec, names: Sequence[str], network: EncoderConfig, memory: MemoryConfig) -> None:
        super().__init__()
        width, self.steps = network.hidden_size, memory.context_length
        fields = {name: spec.fields[name] for name in names}
        self.encoders = nn.ModuleDict(
            {name: VectorScale(one) if one.kind == "vector" else CategoryEncoder(one, network)
             for name, one in fields.items()}
        )  # fmt: skip
        sizes = {name: one.shape[0] if one.kind == "vector" else width for name, one in fields.items()}
        self.read = nn.ModuleDict({name: nn.Linear(self.steps * size, 4 * width) for name, size in sizes.items()})
        self.base = nn.Parameter(torch.zeros(width), requires_grad=False)  # to which categories are added
        self.network = nn.Sequential(
            nn.GELU(), nn.Linear(4 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )  # fmt: skip

    def forward(self, current: Observations, history: History) -> Tensor:
        if not len(self.encoders):
            return self.base.expand(len(history.valid), -1)
        parts = [read(self._shown(name, self._steps(name, current, history)).flatten(1))
                 for name, read in self.read.items()]  # fmt: skip
        answer: Tensor = self.network(torch.stack(parts).sum(0))
        return answer

    def _shown(self, name: str, values: Tensor) -> Tensor:
        """A field at all steps as numbers, [B, C + 1, n]."""
        encoder = self.encoders[name]
        if isinstance(encoder, VectorScale):
            return encoder.scaled(values)
        shown: Tensor = encoder(values, self.base.expand(*values.shape[:2], -1))
        return shown

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
