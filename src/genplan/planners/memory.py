"""What learned planners remember of a batch of episodes, in parts: each is reset, updated and read by rows.

Every part keeps its tensors on the device of the observations. A method takes the parts that it wants.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.flow import Rng
from genplan.models.encoders import Encoding
from genplan.planners.adaptation import Adaptation
from genplan.planners.outcomes import OutcomeMemory
from genplan.spec import PlanSpec
from genplan.types import History, Observations

ENCODE_CHUNK = 64  # scenes encoded together: they stay in a processor's cache from one iteration to the next
REVISIT_DECAY = 0.8  # of the revisit score, from one step to the next
# Labels of random draws, part of every result: never renamed.
RNG_EXPLORE, RNG_WHETHER = "urge", "felt"


class HistoryBuffer:
    """The last steps of every row, with their actions."""

    def __init__(self, spec: PlanSpec, observations: Observations, device: torch.device, num_past: int) -> None:
        size = len(observations)
        fields = {name: observations[name] for name in spec.step_fields}
        self.steps = {name: one.new_zeros(size, num_past, *one.shape[1:]) for name, one in fields.items()}
        dtype = torch.float32 if spec.actions.n is None else torch.int64
        self.actions = torch.zeros(size, num_past, *spec.actions.shape, dtype=dtype, device=device)
        self.valid = torch.zeros(size, num_past, dtype=torch.bool, device=device)

    def update(self, ids: Tensor, before: Observations, actions: Tensor) -> None:
        """After a step: `before` is what was observed when the actions were chosen."""
        if not self.valid.shape[1]:
            return
        for name, kept in self.steps.items():
            kept[ids] = torch.cat([kept[ids, 1:], before[name][:, None]], 1)
        self.actions[ids] = torch.cat([self.actions[ids, 1:], actions[:, None]], 1)
        self.valid[ids] = torch.cat([self.valid[ids, 1:], self.valid.new_ones(len(ids), 1)], 1)

    def __getitem__(self, ids: Tensor) -> History:
        steps = Observations({name: kept[ids] for name, kept in self.steps.items()})
        return History(steps, self.actions[ids], self.valid[ids])


class VisitMemory:
    """The set of states visited, how often each action was done in them since anything else changed, and exploration.

    Where the last steps led to nothing new, another action is tried first, the rarer here the likelier. With a revisit
    score r (a decayed count of steps to states seen since anything changed) the probability is s·r / (1 + s·r), where s
    is the strength `exploration`.
    """

    def __init__(self, spec: PlanSpec, size: int, device: torch.device, exploration: float) -> None:
        num_states = spec.streams["states"].size
        self.state, self.exploration = spec.state_field or "", exploration
        self.others = [name for name in spec.fields if name != self.state]
        self.visited = torch.zeros(size, num_states, dtype=torch.bool, device=device)
        self.counts = torch.zeros(size, num_states, spec.actions.n or 0, dtype=torch.int16, device=device)
        self.revisit_score = torch.zeros(size, device=device)

    def update(self, ids: Tensor, last: Observations, actions: Tensor, observations: Observations) -> None:
        """After a step from `last` by `actions` to `observations`."""
        self.visited[ids, last[self.state]] = True
        self.counts[ids, last[self.state], actions] += 1
        self.counts[ids[observations.changed(last, self.others)]] = 0  # what failed may not fail now
        if self.exploration:
            again = self.counts[ids, observations[self.state]].any(-1)
            self.revisit_score[ids] = REVISIT_DECAY * self.revisit_score[ids] + again

    def exploratory_action(self, ids: Tensor, states: Tensor, rng: Rng) -> Tensor:
        """The action that each row is to begin with, whatever was learnt; −1 where there is none, [n]."""
        score = self.exploration * self.revisit_score[ids]
        novelty = (1.0 + self.counts[ids, states]) ** -2
        row_rng = rng.fold(RNG_EXPLORE)
        action = row_rng.categorical(novelty)
        return torch.where(row_rng.fold(RNG_WHETHER).uniform() < score / (1 + score), action, -1)

    def add_to(self, history: History, ids: Tensor, states: Tensor, row_of_candidate: Tensor) -> History:
        """The history of candidates, with the states visited before and the actions done in the current one."""
        history = history._replace(action_counts=self.counts[ids, states][row_of_candidate])
        visited = self.visited[ids]
        visited[torch.arange(len(states), device=states.device), states] = False
        row, found = visited.nonzero(as_tuple=True)
        if not len(row):
            return history
        number = visited.sum(-1)
        index = torch.arange(len(row), device=row.device) - (number.cumsum(0) - number)[row]
        listed = torch.zeros(len(visited), int(number.max()), dtype=torch.int64, device=row.device)
        listed[row, index] = found  # sets as lists of equal length
        shown = torch.arange(listed.shape[1], device=row.device) < number[row_of_candidate, None]
        return history._replace(visited_states=listed, visited_mask=shown)


class SceneCache:
    """Encodings of scenes, made again only where a scene has changed."""

    def __init__(self, spec: PlanSpec, observations: Observations, device: torch.device) -> None:
        self.scenes = Observations({name: torch.zeros_like(observations[name]) for name in spec.scene_fields})
        self.encoded = torch.zeros(len(observations), dtype=torch.bool, device=device)
        self.parts: dict[str, Tensor] = {}  # of the encoding: grids by name, and the condition by none

    def encode(self, ids: Tensor, observations: Observations, encoder: nn.Module) -> Encoding:
        """Of the rows `ids`, whose observations are given."""
        names = tuple(self.scenes)
        stale = ~self.encoded[ids] | observations.changed(self.scenes[ids], names)
        for piece in torch.split(stale.nonzero().squeeze(-1), ENCODE_CHUNK) if bool(stale.any()) else ():
            rows, scene = ids[piece], observations[piece].only(names)
            new: Encoding = encoder(scene, len(rows))
            for name, part in {"": new.condition, **new.grids}.items():
                if name not in self.parts:
                    self.parts[name] = part.new_zeros(len(self.encoded), *part.shape[1:])
                self.parts[name][rows] = part
            for name in names:
                self.scenes[name][rows] = scene[name]
            self.encoded[rows] = True
        condition, *grids = (part[ids] for part in self.parts.values())
        return Encoding(condition, dict(zip(list(self.parts)[1:], grids, strict=True)))


@dataclass
class PlannerMemory:
    """The parts that a learned planner keeps of a batch of episodes."""

    last: Observations  # what was observed last, [B, …]
    history: HistoryBuffer
    scenes: SceneCache
    visits: VisitMemory | None = None
    outcomes: OutcomeMemory | None = None  # of methods that predict states
    adaptation: Adaptation | None = None  # of those with a step model
