"""Cost-to-go: how many steps are left from a state, as demonstrations needed from states like it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.models.step import GridFrame
from genplan.spec import Geometry

QUANTILE = 0.5  # of the steps left that were demonstrated; a lower one takes what is uncertain to be near
ARRIVED = 0.5  # steps left: with fewer, a plan has arrived


class CostToGo(nn.Module):
    """From the features of a state's cell and of the cell ahead, its direction, the step of the plan, and what the
    denoiser makes of the current step, where history and goals are known. It is learnt together with these, which helps
    all of them: how far it is to the goal, every cell should know.

    A plan may reach one sub-goal on the way to another, and what is left then is another matter: the state in which a
    sub-goal was reached, if there is one in the plan, is known too, and whether a state reaches one is learnt beside.
    """

    def __init__(self, width: int, horizon: int) -> None:
        super().__init__()
        self.places = nn.Linear(width, 3 * width)  # of the cell stood on, of the cell ahead, and of one reached before
        self.direction = nn.Embedding(4, width)
        self.step = nn.Embedding(horizon, width)
        self.context = nn.Linear(width, width)
        self.head = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))
        # Found in the demonstrations: whether sub-goals are reached by facing them, and may be reached in any order.
        self.register_buffer("faced", torch.zeros((), dtype=torch.bool))
        self.register_buffer("any_order", torch.zeros((), dtype=torch.bool))

    faced: Tensor
    any_order: Tensor

    def prepare(self, features: Tensor, context: Tensor, geometry: Geometry, copies: int = 1) -> PreparedCost:
        """For scenes [M, cells, D], `copies` plans of each in turn, of which the current step is context [B, D]."""
        places = self.places(features)
        scenes = torch.arange(len(features), device=features.device).repeat_interleave(copies)
        return PreparedCost(self, places, scenes, self.context(context), GridFrame.of(geometry, features.device))


@dataclass(frozen=True)
class PreparedCost:
    cost: CostToGo
    places: Tensor  # [M, cells, 3 · D]
    scenes: Tensor  # [B]
    context: Tensor  # [B, D]
    frame: GridFrame

    def __call__(self, states: Tensor, steps: Tensor, reached: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Steps left from states [B, n] at steps of the plan [n], and whether each reaches a sub-goal: both [B, n].

        reached  the states in which a sub-goal was reached before, [B, n], −1 for none
        """
        left, reaches = self._predict(states, steps, reached)
        return left.expm1().clamp(min=0), reaches > 0

    def _predict(self, states: Tensor, steps: Tensor, reached: Tensor | None) -> tuple[Tensor, Tensor]:
        """log(1 + steps left), and the logits of reaching a sub-goal."""
        scene, width = self.scenes[:, None], self.context.shape[-1]
        on, ahead, before = (self.places[..., part * width : (part + 1) * width] for part in range(3))
        hidden = on[scene, states // 4] + ahead[scene, self.frame.ahead[states]]
        hidden = hidden + self.cost.direction(states % 4) + self.context[:, None]
        hidden = hidden + self.cost.step.weight[steps]
        if reached is not None:
            goal = before[scene, self.frame.ahead[reached.clamp(min=0)]]
            hidden = hidden + goal * (reached >= 0)[..., None]
        left, reaches = self.cost.head(hidden).unbind(-1)
        return left, reaches

    def needed(self, states: Tensor, known: int) -> Tensor:
        """Steps that plans [B, w, n] need to arrive, of whose states the first is at step 1: [B, w].

        known  steps that all plans of a row share
        """
        size, width, length = states.shape
        steps = torch.arange(1, 1 + length, device=states.device)
        at = steps.clamp(max=self.cost.step.num_embeddings - 1)
        each = torch.cat([states[:, 0, :known], states[:, :, known:].flatten(1)], 1)  # what is shared once
        found = self(each, torch.cat([at[:known], at[known:].repeat(width)]))
        shared = (one[:, None, :known].expand(-1, width, -1) for one in found)
        own = (one[:, known:].view(size, width, -1) for one in found)
        left, reaches = (torch.cat(parts, 2) for parts in zip(shared, own, strict=True))
        first = torch.where(reaches.any(-1), reaches.int().argmax(-1), length)[..., None]  # [B, w, 1]
        behind = steps - 1 >= first
        if bool(((left >= ARRIVED) & behind).any()):  # what is left after a sub-goal was reached
            goal = torch.where(first < length, states.gather(2, first.clamp(max=length - 1)), -1)
            again, _ = self(states.flatten(1), at.repeat(width), goal.expand_as(states).flatten(1))
            left = torch.where(behind, again.view_as(left), left)
        arrived = left < ARRIVED
        return torch.where(arrived.any(-1), steps[arrived.int().argmax(-1)], length + left[..., -1])

    def loss(self, states: Tensor, goals: Tensor | None, steps_left: Tensor, valid: Tensor) -> Tensor:
        """Of demonstrated states [B, H] with so many steps left at the first [B]: the pinball loss, which is least at
        the quantile, in logarithms, which leave quantiles what they are and far states in proportion; and the
        cross-entropy of reaching sub-goals.

        goals  the next sub-goal of every state [B, H]; it changes where one is reached
        """
        steps = torch.arange(states.shape[1], device=states.device)
        target = (steps_left[:, None] - steps).clamp(min=0).float().log1p()
        is_last = (steps == steps_left[:, None]) & (steps > 0)
        reaches = is_last.clone()
        if goals is not None:
            reaches[:, 1:] |= goals[:, 1:] != goals[:, :-1]
        # The step at which a sub-goal was reached last, up to each step and before it.
        since = torch.where(reaches, steps, -1).cummax(1).values
        before = nn.functional.pad(since[:, :-1], (1, 0), value=-1)
        after, until = (
            self._predict(states, steps, torch.where(one >= 0, states.gather(1, one.clamp(min=0)), -1))
            for one in (since, before)
        )
        error = torch.cat([target - after[0], target - until[0]])
        counted = torch.cat([valid, valid & is_last])
        pinball = (torch.maximum(QUANTILE * error, (QUANTILE - 1) * error) * counted).sum() / counted.sum().clamp(min=1)
        counted = valid & (steps > 0)
        nll = nn.functional.binary_cross_entropy_with_logits(until[1], reaches.float(), reduction="none")
        return pinball + (nll * counted).sum() / counted.sum().clamp(min=1)

    def value_loss(self, states: Tensor, reached: Tensor, steps_left: Tensor, valid: Tensor) -> Tensor:
        """Of states [B, n] with known steps left, by the absolute error of their logarithms."""
        steps = 1 + torch.arange(states.shape[1], device=states.device) % (self.cost.step.num_embeddings - 1)
        left, _ = self._predict(states, steps, reached)
        return ((left - steps_left.log1p()).abs() * valid).sum() / valid.sum().clamp(min=1)
