"""Step models: what one action does, learnt from demonstrations, as one table for planning.

On a grid with directions, what a step does is decided by the *look* of the cell ahead, by what else is observed beside
the state (what is carried), and by the action: a *key* is a look and what is carried. What is built in is the frame:
which cell is ahead, and that a step seldom reaches further than one cell. What looks and actions do is learnt. Without
a grid, the key is the state itself, and an outcome the state that follows.

Both learn one softmax over all pairs of action and outcome. Demonstrations never bump into walls, so p(outcome |
action) says nothing of walls; but they *turn* before one, and a joint distribution learns that from what is absent.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from genplan.spec import Geometry, PlanSpec
from genplan.types import Observations

MAX_KEYS = 2**16  # beyond, a table is too large to be made for every planner
FURTHER = 36  # the outcome that leads further than one cell: nine displacements × four turns come before
TIE = 1e-6
STAY, ADVANCE = 16, 28  # the outcomes of going nowhere, and of going to the cell ahead, without a turn


class StepTable(NamedTuple):
    """What is known of every key and action; R outcomes are kept, the likeliest first."""

    log_ratio: Tensor  # [K, A], log p(a | key) − log p(a): what demonstrations do there, as a potential
    log_prob: Tensor  # [K, A, R], of the outcome given key and action
    outcome: Tensor  # [K, A, R]
    look: Tensor  # [K, A], what becomes of the look ahead
    carried: Tensor  # [K, A], and of what is carried


class Transitions(NamedTuple):
    """Demonstrated steps."""

    before: Tensor  # [N, channels]: of the look ahead, then of what is carried; [N, 1], the state, without a grid
    actions: Tensor  # [N]
    outcomes: Tensor  # [N]
    after: Tensor | None = None  # [N, channels]: of the same cell, and of what is carried then; where it is known

    def rows(self, ids: Tensor) -> Transitions:
        return Transitions(*(None if one is None else one[ids] for one in self))  # type: ignore[arg-type]


class GridFrame:
    """Cells and outcomes seen from a state: what is ahead, and where an outcome leads. State = cell · 4 + direction."""

    def __init__(self, geometry: Geometry, device: torch.device) -> None:
        width, height, _ = geometry
        states = torch.arange(geometry.num_cells * 4, device=device)
        cell, direction = states // 4, states % 4
        self.x, self.y = cell % width, cell // width
        self.dx = torch.tensor([1, 0, -1, 0], device=device)[direction]
        self.dy = torch.tensor([0, 1, 0, -1], device=device)[direction]
        self.direction = direction
        ahead_x, ahead_y = (self.x + self.dx).clamp(0, width - 1), (self.y + self.dy).clamp(0, height - 1)
        self.ahead = ahead_x + width * ahead_y  # [S]: the cell ahead
        outcome = torch.arange(FURTHER, device=device)
        forward, side, turn = outcome // 12 - 1, outcome // 4 % 3 - 1, outcome % 4
        x = self.x[:, None] + forward * self.dx[:, None] - side * self.dy[:, None]
        y = self.y[:, None] + forward * self.dy[:, None] + side * self.dx[:, None]
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        following = (x + width * y) * 4 + (direction[:, None] + turn) % 4
        self.following = torch.cat([torch.where(inside, following, -1), following.new_full((len(states), 1), -1)], 1)

    @staticmethod
    @functools.lru_cache(8)
    def of(geometry: Geometry, device: torch.device) -> GridFrame:
        """Made once."""
        return GridFrame(geometry, device)

    def outcome(self, before: Tensor, after: Tensor) -> Tensor:
        """Of steps from states [N] to states [N]."""
        x, y = self.x[after] - self.x[before], self.y[after] - self.y[before]
        dx, dy = self.dx[before], self.dy[before]
        forward, side = x * dx + y * dy, y * dx - x * dy
        turn = (self.direction[after] - self.direction[before]) % 4
        near = (forward.abs() <= 1) & (side.abs() <= 1)
        return torch.where(near, ((forward + 1) * 3 + side + 1) * 4 + turn, FURTHER)


class StepModel(nn.Module, ABC):
    """A table of steps, to be learnt; how often what was demonstrated, and which channels hold names, goes with it."""

    log_prior: Tensor
    num_outcomes: Tensor
    demonstrated: Tensor
    exchangeable: Tensor

    def __init__(self, spec: PlanSpec, sizes: tuple[int, ...]) -> None:
        """`sizes` are the vocabularies of a key's channels."""
        super().__init__()
        self.num_actions, self.sizes = spec.actions.n or 0, sizes
        self.register_buffer("log_prior", torch.full((self.num_actions,), -math.log(self.num_actions)))
        self.register_buffer("num_outcomes", torch.ones((), dtype=torch.int64))  # R
        shape = (math.prod(sizes), self.num_actions)
        self.register_buffer("demonstrated", torch.zeros(shape, dtype=torch.int16))  # [K, A]: how often
        self.register_buffer("exchangeable", torch.zeros(len(sizes), dtype=torch.bool))  # channels that hold mere names
        self._made: tuple[list[tuple[int, int]], StepTable] | None = None

    @abstractmethod
    def nll(self, data: Transitions) -> dict[str, Tensor]:
        """Parts of the loss."""

    def table(self) -> StepTable:
        """Made once, for as long as nothing is learnt or loaded."""
        versions = [(id(one), one._version) for one in (*self.parameters(), *self.buffers())]
        if self._made is None or self._made[0] != versions:
            with torch.inference_mode(False), torch.no_grad():
                self._made = versions, self.make_table()
        return self._made[1]

    @abstractmethod
    def make_table(self) -> StepTable:
        """What the networks say of every key."""

    @abstractmethod
    def joint_logits(self, before: Tensor) -> Tensor:
        """[N, channels] -> [N, A, outcomes]."""

    def _joint_nll(self, logits: Tensor, data: Transitions) -> Tensor:
        pair = data.actions * logits.shape[-1] + data.outcomes
        return nn.functional.cross_entropy(logits.flatten(1), pair)

    def _outcomes(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Joint logits [K, A, outcomes] -> log_ratio, log_prob and outcome of a table."""
        log_joint = logits.flatten(1).log_softmax(-1).view_as(logits)
        log_action = log_joint.logsumexp(-1)
        best = (log_joint - log_action[..., None]).topk(int(self.num_outcomes), -1)
        return log_action - self.log_prior, best.values, best.indices


class GridStepModel(StepModel):
    """In the agent's frame: the look ahead and what is carried -> action, outcome, and what becomes of both.

    A channel becomes a value, stays as it is, or is a copy of the same channel of the other: rules, so that what was
    seen with one color holds for the next.
    """

    def __init__(self, spec: PlanSpec, width: int = 32, hidden: int = 64) -> None:
        self.look_sizes, self.carried_sizes = grid_sizes(spec)
        super().__init__(spec, (*self.look_sizes, *self.carried_sizes))
        looks, both = len(self.look_sizes), min(len(self.look_sizes), len(self.carried_sizes))
        self.copied = {**{i: looks + i for i in range(both)}, **{looks + i: i for i in range(both)}}
        self.embed = nn.ModuleList(nn.Embedding(size, width) for size in self.sizes)
        self.hidden = nn.Sequential(nn.Linear(width, hidden), nn.GELU())
        self.joint = nn.Linear(hidden, self.num_actions * (FURTHER + 1))
        self.change = nn.Linear(hidden, self.num_actions * sum(size + 2 for size in self.sizes))
        for head in (self.joint, self.change):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def _hidden(self, before: Tensor) -> Tensor:
        embedded = [embed(before[:, channel]) for channel, embed in enumerate(self.embed)]
        return self.hidden(torch.stack(embedded).sum(0))  # type: ignore[no-any-return]

    def joint_logits(self, before: Tensor) -> Tensor:
        return self.joint(self._hidden(before)).unflatten(-1, (self.num_actions, -1))  # type: ignore[no-any-return]

    def nll(self, data: Transitions) -> dict[str, Tensor]:
        hidden, rows = self._hidden(data.before), torch.arange(len(data.actions), device=data.actions.device)
        joint = self._joint_nll(self.joint(hidden).unflatten(-1, (self.num_actions, -1)), data)
        if data.after is None:
            return {"joint": joint}
        rules = self.change(hidden).unflatten(-1, (self.num_actions, -1))[rows, data.actions]
        change = []
        for channel, logits in enumerate(torch.split(rules, [size + 2 for size in self.sizes], -1)):
            change.append(-self._values(channel, logits.softmax(-1), data.before)[rows, data.after[:, channel]].log())
        return {"joint": joint, "change": torch.stack(change).sum(0).mean()}

    def _values(self, channel: int, rules: Tensor, before: Tensor) -> Tensor:
        """Probabilities of rules [..., size + 2] -> of the values that they lead to, [..., size]; before [..., C]."""
        size = self.sizes[channel]
        probs, keep, copy = rules[..., :size], rules[..., size], rules[..., size + 1]
        probs = probs + nn.functional.one_hot(before[..., channel], size) * keep[..., None]
        if (other := self.copied.get(channel)) is not None:
            value = before[..., other]
            fits = value < size  # what the other holds may have no place here
            probs = probs + nn.functional.one_hot(value.clamp(max=size - 1), size) * (copy * fits)[..., None]
        return probs + 1e-9

    def make_table(self) -> StepTable:
        device = self.log_prior.device
        before = torch.cartesian_prod(*(torch.arange(size, device=device) for size in self.sizes)).reshape(
            -1, len(self.sizes)
        )
        hidden = self._hidden(before)
        joint = self.joint(hidden).unflatten(-1, (self.num_actions, -1))
        rules = self.change(hidden).unflatten(-1, (self.num_actions, -1))
        every = before[:, None].expand(-1, self.num_actions, -1)
        values = []
        for channel, logits in enumerate(torch.split(rules, [size + 2 for size in self.sizes], -1)):
            probs = self._values(channel, logits.softmax(-1), every)
            # Rules draw for actions that were never demonstrated: those do nothing then.
            kept = nn.functional.one_hot(every[..., channel], probs.shape[-1])
            values.append((probs + TIE * kept).argmax(-1))
        looks = len(self.look_sizes)
        carried = number(values[looks:], self.carried_sizes) if self.carried_sizes else torch.zeros_like(values[0])
        return StepTable(*self._outcomes(joint), number(values[:looks], self.look_sizes), carried)


class StateStepModel(StepModel):
    """Without a grid: the state -> action and the state that follows, by learnt vectors of both."""

    def __init__(self, spec: PlanSpec, width: int = 32) -> None:
        assert spec.states is not None
        super().__init__(spec, (spec.states.size,))
        self.num_states, self.width = spec.states.size, width
        self.source = nn.Embedding(self.num_states, self.num_actions * width)
        self.target = nn.Embedding(self.num_states, width)
        self.bias = nn.Embedding(self.num_states, self.num_actions)
        nn.init.zeros_(self.source.weight)
        nn.init.zeros_(self.bias.weight)

    def joint_logits(self, before: Tensor) -> Tensor:
        state = before[:, 0]
        source = self.source(state).unflatten(-1, (self.num_actions, self.width))
        return source @ self.target.weight.T + self.bias(state)[..., None]  # type: ignore[no-any-return]

    def nll(self, data: Transitions) -> dict[str, Tensor]:
        return {"joint": self._joint_nll(self.joint_logits(data.before), data)}

    def make_table(self) -> StepTable:
        keys = torch.arange(self.num_states, device=self.log_prior.device)
        nothing = torch.zeros(self.num_states, self.num_actions, dtype=torch.int64, device=keys.device)
        return StepTable(*self._outcomes(self.joint_logits(keys[:, None])), nothing, nothing)


def step_model_class(spec: PlanSpec) -> type[GridStepModel | StateStepModel] | None:
    """What fits a task; None where states are not observed, actions are no tokens, or keys too many."""
    if spec.state_field is None or spec.actions.n is None or spec.states is None:
        return None
    others = [name for name in spec.fields if name not in (spec.state_field, spec.grid_field)]
    if spec.geometry is not None and spec.geometry.directions == 4:
        sizes = grid_sizes(spec)
        fits = math.prod((*sizes[0], *sizes[1])) <= MAX_KEYS
        return GridStepModel if fits and not _of_kind(spec, others, "vector") else None
    if spec.states.size > MAX_KEYS // 16 or _of_kind(spec, others, "vector", "category"):
        return None
    return StateStepModel


def make_step_model(spec: PlanSpec) -> StepModel | None:
    fitting = step_model_class(spec)
    return None if fitting is None else fitting(spec)


def _of_kind(spec: PlanSpec, names: Sequence[str], *kinds: str) -> bool:
    return any(spec.fields[name].kind in kinds for name in names)


def grid_sizes(spec: PlanSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Vocabularies of the look of a cell, and of what is carried: every category but the state."""
    carried = [spec.fields[name].sizes for name in carried_fields(spec)]
    return spec.fields[spec.grid_field or ""].sizes, tuple(size for sizes in carried for size in sizes)


def carried_fields(spec: PlanSpec) -> list[str]:
    return [name for name in spec.step_fields if name != spec.state_field and spec.fields[name].kind == "category"]


def carried_values(spec: PlanSpec, observations: Observations) -> Tensor:
    """What is carried, [B, numbers]."""
    size = len(observations)
    parts = [observations[name].reshape(size, -1).long() for name in carried_fields(spec)]
    return torch.cat([*parts, observations[spec.state_field or ""].new_zeros(size, 0).long()], 1)


def number(values: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Values, one tensor per vocabulary and at least one, as one number."""
    found = torch.zeros_like(values[0])
    for value, size in zip(values, sizes, strict=True):
        found = found * size + value
    return found
