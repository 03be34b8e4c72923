"""What learned planners remember of a batch of episodes, in parts: each is reset, updated and read by rows.

Every part keeps its tensors on the device of the observations. A method takes the parts that it wants.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.flow import Rng
from genplan.models.encoding import Encoding
from genplan.spec import PlanSpec
from genplan.types import History, Observations

ENCODE_CHUNK = 64  # scenes encoded together: they stay in a processor's cache from one iteration to the next
REVISIT_DECAY = 0.8  # of the revisit score, from one step to the next
# Labels of random draws, part of every result: never renamed.
RNG_EXPLORE, RNG_WHETHER = "urge", "felt"


class HistoryBuffer:
    """The last steps of every row, with their actions."""

    def __init__(self, spec: PlanSpec, observations: Observations, num_past: int) -> None:
        size, device = len(observations), next(iter(observations.fields.values())).device
        self.names = spec.step_fields
        self.steps = {
            name: torch.zeros(
                size, num_past, *observations[name].shape[1:], dtype=observations[name].dtype, device=device
            )
            for name in self.names
        }
        dtype = torch.float32 if spec.actions.n is None else torch.int64
        self.actions = torch.zeros(size, num_past, *spec.actions.shape, dtype=dtype, device=device)
        self.valid = torch.zeros(size, num_past, dtype=torch.bool, device=device)

    def update(self, ids: Tensor, before: Observations, actions: Tensor) -> None:
        """After a step: `before` is what was observed when the actions were chosen."""
        if not self.valid.shape[1]:
            return
        for kept, new in ((self.steps[name], before[name]) for name in self.names):
            kept[ids] = torch.cat([kept[ids, 1:], new[:, None]], 1)
        self.actions[ids] = torch.cat([self.actions[ids, 1:], actions[:, None]], 1)
        self.valid[ids] = torch.cat([self.valid[ids, 1:], self.valid.new_ones(len(ids), 1)], 1)

    def __getitem__(self, ids: Tensor) -> History:
        steps = Observations({name: kept[ids] for name, kept in self.steps.items()})
        return History(steps, self.actions[ids], self.valid[ids])


class VisitMemory:
    """The set of states visited, and how often each action was done in them since anything else changed."""

    def __init__(self, spec: PlanSpec, observations: Observations) -> None:
        assert spec.states is not None
        assert spec.actions.n is not None
        size, device = len(observations), next(iter(observations.fields.values())).device
        self.others = [name for name in spec.fields if name != spec.state_field and spec.fields[name].kind != "words"]
        self.visited = torch.zeros(size, spec.states.size, dtype=torch.bool, device=device)
        self.counts = torch.zeros(size, spec.states.size, spec.actions.n, dtype=torch.int16, device=device)
        self.last = {name: observations[name].clone() for name in self.others}

    def update(self, ids: Tensor, states: Tensor, actions: Tensor, observations: Observations) -> None:
        """After a step from `states` by `actions` to `observations`."""
        self.visited[ids, states] = True
        self.counts[ids, states, actions] += 1
        for name in self.others:
            changed = (observations[name] != self.last[name][ids]).reshape(len(ids), -1).any(1)
            self.counts[ids[changed]] = 0  # what failed may not fail now
            self.last[name][ids] = observations[name]

    def last_seen(self, ids: Tensor) -> Observations:
        """The fields beside the state, as they were at the last step."""
        return Observations({name: kept[ids] for name, kept in self.last.items()})

    def add_to(self, history: History, ids: Tensor, states: Tensor, row_of_candidate: Tensor) -> History:
        """The history of candidates, with the states visited before and the actions done in the current one."""
        visited = self.visited[ids]
        visited[torch.arange(len(states), device=states.device), states] = False
        counts = self.counts[ids, states][row_of_candidate]
        return _pad_sets(visited, row_of_candidate, history)._replace(action_counts=counts)


def _pad_sets(visited: Tensor, row_of_candidate: Tensor, history: History) -> History:
    """Sets of states bool [n, states] as lists of equal length."""
    row, states = visited.nonzero(as_tuple=True)
    if not len(row):
        return history
    counts = visited.sum(-1)
    index = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    listed = torch.zeros(len(visited), int(counts.max()), dtype=torch.int64, device=row.device)
    listed[row, index] = states
    shown = torch.arange(listed.shape[1], device=row.device) < counts[row_of_candidate, None]
    return history._replace(visited_states=listed, visited_mask=shown)


class Exploration:
    """Where the last steps led to nothing new, another action is tried first, the rarer here the likelier.

    With a revisit score r (a decayed count of steps to states seen since anything changed) the probability is
    s·r / (1 + s·r), where s is the strength.
    """

    def __init__(self, observations: Observations, strength: float) -> None:
        device = next(iter(observations.fields.values())).device
        self.strength = strength
        self.revisit_score = torch.zeros(len(observations), device=device)

    def update(self, ids: Tensor, states: Tensor, visits: VisitMemory) -> None:
        """After a step that led to `states`; `visits` is up to date."""
        again = visits.counts[ids, states].any(-1)
        self.revisit_score[ids] = REVISIT_DECAY * self.revisit_score[ids] + again

    def exploratory_action(self, ids: Tensor, states: Tensor, visits: VisitMemory, rng: Rng) -> Tensor:
        """The action that each row is to begin with, whatever was learnt; −1 where there is none, [n]."""
        score = self.strength * self.revisit_score[ids]
        novelty = (1.0 + visits.counts[ids, states]) ** -2
        row_rng = rng.fold(RNG_EXPLORE)
        action = row_rng.categorical(novelty)
        return torch.where(row_rng.fold(RNG_WHETHER).uniform() < score / (1 + score), action, -1)


class SceneCache:
    """Encodings of scenes, made again only where a scene has changed."""

    def __init__(self, spec: PlanSpec, size: int) -> None:
        self.names, self.size = spec.scene_fields, size
        self.kept: dict[str, Tensor] = {}
        self.encoding: Encoding | None = None
        self.encoded: Tensor | None = None

    def encode(self, ids: Tensor, observations: Observations, encoder: nn.Module) -> Encoding:
        """Of the rows `ids`, whose observations are given."""
        if self.encoded is None:
            self.encoded = torch.zeros(self.size, dtype=torch.bool, device=ids.device)
            self.kept = {name: _zeros(self.size, observations[name]) for name in self.names}
        stale = ~self.encoded[ids]
        for name in self.names:
            stale = stale | (observations[name] != self.kept[name][ids]).flatten(1).any(1)
        if bool(stale.any()):
            for piece in torch.split(stale.nonzero().squeeze(-1), ENCODE_CHUNK):
                self._store(ids[piece], observations[piece].only(self.names), encoder)
        assert self.encoding is not None
        return self.encoding.rows(ids)

    def _store(self, ids: Tensor, scene: Observations, encoder: nn.Module) -> None:
        new: Encoding = encoder(scene, len(ids))
        if self.encoding is None:
            grids = {name: _zeros(self.size, grid) for name, grid in new.grids.items()}
            self.encoding = Encoding(_zeros(self.size, new.condition), grids)
        assert self.encoded is not None
        self.encoding.condition[ids] = new.condition
        for name, grid in new.grids.items():
            self.encoding.grids[name][ids] = grid
        for name in self.names:
            self.kept[name][ids] = scene[name]
        self.encoded[ids] = True


def _zeros(size: int, like: Tensor) -> Tensor:
    return like.new_zeros(size, *like.shape[1:])


@dataclass
class PlannerMemory:
    """The parts that a learned planner keeps of a batch of episodes."""

    state: Observations  # the step fields observed last, [B, …]
    history: HistoryBuffer
    scenes: SceneCache
    visits: VisitMemory | None = None
    exploration: Exploration | None = None
    outcomes: object | None = None  # of methods that keep one: planners/outcomes.py
