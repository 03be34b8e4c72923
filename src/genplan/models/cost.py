"""Cost-to-go: how many steps are left from a state, as few as demonstrations needed from states like it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.models.step import GridFrame
from genplan.spec import Geometry

QUANTILE = 0.2  # of the steps left that were demonstrated: what a good way needs, not what a mean one did
ARRIVED = 0.5  # steps left: with fewer, a plan has arrived


class CostToGo(nn.Module):
    """From the features of a state's cell and of the cell ahead, its direction, the step of the plan, and what the
    denoiser makes of the current step, where history and goals are known. Learning it changes none of these.
    """

    def __init__(self, width: int, horizon: int) -> None:
        super().__init__()
        self.places = nn.Linear(width, 2 * width)  # of the cell stood on, and of the cell ahead
        self.direction = nn.Embedding(4, width)
        self.step = nn.Embedding(horizon, width)
        self.context = nn.Linear(width, width)
        self.head = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def prepare(self, features: Tensor, context: Tensor, geometry: Geometry, copies: int = 1) -> PreparedCost:
        """For scenes [M, cells, D], `copies` plans of each in turn, of which the current step is context [B, D]."""
        places = self.places(features.detach())
        scenes = torch.arange(len(features), device=features.device).repeat_interleave(copies)
        return PreparedCost(
            self, places, scenes, self.context(context.detach()), GridFrame.of(geometry, features.device)
        )


@dataclass(frozen=True)
class PreparedCost:
    cost: CostToGo
    places: Tensor  # [M, cells, 2 · D]
    scenes: Tensor  # [B]
    context: Tensor  # [B, D]
    frame: GridFrame

    def __call__(self, states: Tensor, steps: Tensor) -> Tensor:
        """Steps left from states [B, n] at steps of the plan [n]: [B, n]."""
        return self._log1p(states, steps).expm1().clamp(min=0)

    def _log1p(self, states: Tensor, steps: Tensor) -> Tensor:
        scene, width = self.scenes[:, None], self.context.shape[-1]
        hidden = (
            self.places[scene, states // 4][..., :width] + self.places[scene, self.frame.ahead[states]][..., width:]
        )
        hidden = hidden + self.cost.direction(states % 4) + self.context[:, None]
        hidden = hidden + self.cost.step.weight[steps]
        left: Tensor = self.cost.head(hidden).squeeze(-1)
        return left

    def loss(self, states: Tensor, steps_left: Tensor, valid: Tensor) -> Tensor:
        """Of demonstrated states [B, H] with so many steps left at the first [B]: the pinball loss, which is least at
        the quantile; in logarithms, which leave quantiles what they are and far states in proportion."""
        steps = torch.arange(states.shape[1], device=states.device)
        target = (steps_left[:, None] - steps).clamp(min=0).float().log1p()
        error = target - self._log1p(states, steps)
        return (torch.maximum(QUANTILE * error, (QUANTILE - 1) * error) * valid).sum() / valid.sum().clamp(min=1)
