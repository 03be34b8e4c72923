"""Outcome memory: what a planner that predicts states learns, within one episode, from what did not come as predicted.

A plan that steps onto a cell and leaves the agent where it was has met an obstacle. For every type of obstacle, the
outcomes of actions before it are counted; where the next plan leads onto a cell of a type that never let the agent
pass, an action that once changed something before such a cell comes first, and the plan goes on behind it. Nothing here
says what types or actions mean, and all is forgotten with the episode. Colors do not count: cells that differ in
nothing else are of one type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from genplan.flow import Sample, plan_energy
from genplan.spec import PlanSpec
from genplan.types import Observations

NONE = -1
COLOR_CHANNEL = 1  # of a cell


class Suggestion(NamedTuple):
    """For plans [n, H]: where another action should come first, which, how often it helped; and what is expected."""

    override: Tensor  # bool [n]
    action: Tensor  # [n]
    success_rate: Tensor  # [n]
    facing: Tensor  # [n], cell type that is in the way
    predicted: Tensor  # [n], the state planned to come next


class OutcomeMemory:
    """For a batch of episodes on a grid."""

    def __init__(self, spec: PlanSpec, size: int, device: torch.device) -> None:
        self.grid, self.state = spec.grid_field or "", spec.state_field or ""
        self.directions = spec.streams["states"].directions
        self.others = [name for name in spec.fields if name != self.state]
        channels = enumerate(spec.fields[self.grid].sizes)
        self.sizes = {channel: number for channel, number in channels if channel != COLOR_CHANNEL}
        shape = (size, math.prod(self.sizes.values()), spec.actions.n or 0)
        self.attempts = torch.zeros(shape, device=device)  # actions done before a type of cell
        self.effects = torch.zeros(shape, device=device)  # of these, those that changed anything
        self.facing = torch.full((size,), NONE, device=device)  # type of what stands in the way, while nothing moves
        self.predicted = torch.full((size,), NONE, device=device)  # the state that was planned to come next

    def suggest(self, ids: Tensor, observations: Observations, actions: Tensor, states: Tensor) -> Suggestion:
        """What the plans [n, H] of the rows `ids` should begin with instead; nothing is remembered by asking."""
        rows, current = torch.arange(len(ids), device=ids.device), observations[self.state]
        moving = states[:, 1] // self.directions != current // self.directions
        predicted = torch.where(moving, states[:, 1], NONE)
        facing = torch.where(moving, self._cell_type(observations, states[:, 1] // self.directions), self.facing[ids])
        known = facing.clamp(min=0)
        attempts, effects = self.attempts[ids, known], self.effects[ids, known]  # [n, actions]
        failed = (attempts[rows, actions[:, 0]] > 0) & (effects[rows, actions[:, 0]] == 0) & moving
        success_rate, other = (effects / attempts.clamp(min=1)).max(-1)
        override = failed & (success_rate >= 0.5)
        return Suggestion(override, other, success_rate, facing, torch.where(override, NONE, predicted))

    def commit(self, ids: Tensor, suggestion: Suggestion) -> None:
        """Remember what the plans that are now executed expect."""
        self.facing[ids], self.predicted[ids] = suggestion.facing, suggestion.predicted

    def update(self, ids: Tensor, actions: Tensor, last: Observations, observations: Observations) -> None:
        """After a step: `last` is what was observed before it."""
        came = (observations[self.state] == self.predicted[ids]) | observations.changed(last, self.others)
        facing = self.facing[ids]
        known = facing >= 0
        self.attempts[ids[known], facing[known], actions[known]] += 1
        self.effects[ids[known], facing[known], actions[known]] += came[known].float()
        moved = observations[self.state] != last[self.state]
        self.facing[ids] = torch.where(came | moved, NONE, facing)
        self.predicted[ids] = NONE

    def _cell_type(self, observations: Observations, cells: Tensor) -> Tensor:
        grid = observations[self.grid].transpose(1, 2).flatten(1, 2)  # [n, cells, C]
        shown = grid[torch.arange(len(cells), device=cells.device), cells].long()
        cell_type = torch.zeros_like(cells)
        for channel, size in self.sizes.items():
            cell_type = cell_type * size + shown[:, channel]
        return cell_type


def prepend(where: Tensor, first: Tensor, plan: Tensor, dim: int = 1) -> Tensor:
    """Plans [n, H, …], those of `where` [n] with something else first [n, …] and all the rest a step later.

    dim  the axis of H; that of the plans is before it
    """
    shifted = torch.cat([first.unsqueeze(dim), plan.narrow(dim, 0, plan.shape[dim] - 1)], dim)
    return torch.where(where.reshape(-1, *(1 for _ in plan.shape[dim:])), shifted, plan)


def revised(result: Sample, suggestion: Suggestion, best: Tensor) -> Sample:
    """The sample with suggested actions put first in its rows `best` [n], and everything else a step later.

    It is scored as what it now is, and traced as if the suggested actions had been given from the start.
    """
    where, action = suggestion.override, suggestion.action

    def shifted(parts: Mapping[str, Tensor], first_action: Tensor, dim: int) -> dict[str, Tensor]:
        revised = {}
        for name, values in parts.items():  # [rows, H, …], or behind the axis of a trace's steps; `dim` is that of H
            old = values.index_select(dim - 1, best)
            first = old.select(dim, 0)
            first = first_action.to(old.dtype).expand_as(first) if name == "actions" else first
            revised[name] = values.index_copy(dim - 1, best, prepend(where, first, old, dim))
        return revised

    tokens, trace = shifted(result.tokens, action, 1), result.trace
    energy = plan_energy(result.log_p_noise, tokens, ["actions"], 1)[best]
    energy = result.energy.index_copy(0, best, torch.where(where, energy, result.energy[best]))
    if trace is not None:
        confidence = shifted(trace.confidence, suggestion.success_rate, 2)
        trace = replace(
            trace, tokens=shifted(trace.tokens, action, 2), predicted=shifted(trace.predicted, action, 2),
            confidence=confidence, energy=-confidence["actions"].log().flatten(2).sum(-1),
        )  # fmt: skip
    return replace(result, tokens=tokens, energy=energy, trace=trace)


def with_given_actions(result: Sample, given: Tensor) -> Sample:
    """The sample with the probabilities and energies of its given actions, at pure noise."""
    tokens, log_p = result.tokens["actions"], result.log_p_noise["actions"]
    log_probs = torch.where(given, log_p.gather(-1, tokens[..., None]).squeeze(-1), result.log_probs["actions"])
    energy = plan_energy(result.log_p_noise, result.tokens, ["actions"], 1)
    return replace(result, log_probs={**result.log_probs, "actions": log_probs}, energy=energy)
