"""What all learned planners share: an encoder of map and mission, and what is remembered of an episode.

The memory is the same for all of them, so that a comparison is about ideas: the last steps with their actions, and, if
the planner wants a trail, the set of states visited before with what was tried there.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.config import PlannerConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
from genplan.errors import UserError
from genplan.flow import Rng, sharpen
from genplan.models.encoder import Context
from genplan.planners.surprise import Surprise
from genplan.types import Observations, Oracle, Plan

ENCODED_TOGETHER = 64  # maps
FORGETTING = 0.8  # of boredom, from one step to the next


@dataclass(frozen=True)
class Losses:
    total: Tensor
    metrics: dict[str, Tensor]


@dataclass
class Memory:
    """What is remembered of every row: its last steps, where it has been, and the encoding of its map."""

    states: Tensor  # [B, C]
    actions: Tensor  # [B, C]
    valid: Tensor  # bool [B, C]
    state: Tensor  # [B], the state seen last
    visited: Tensor | None = None  # bool [B, states]: the trail
    tried: Tensor | None = None  # int16 [B, states, actions]: how often, since anything changed but the state
    last: Observations | None = None  # what was seen last
    boredom: Tensor | None = None  # [B]: how many of the last steps led to nothing new
    surprise: Surprise | None = None  # of planners that predict states: what came otherwise
    map: Tensor | None = None  # what was encoded
    mission: Tensor | None = None
    cells: Tensor | None = None  # the encoding
    words: Tensor | None = None
    encoded: Tensor | None = None  # bool [B]


class Learned(nn.Module):
    """A planner with an `encoder`, to be given a `loss` and a `plan`."""

    needs_oracle = False
    encoder: nn.Module
    any_size = True  # whether its weights serve maps of all sizes

    def __init__(self, spec: PlanSpec, config: PlannerConfig) -> None:
        super().__init__()
        self.spec, self.config = spec, config

    def loss(self, batch: PlanBatch, rng: Rng) -> Losses:
        raise NotImplementedError

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        raise NotImplementedError

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        size, context = len(observations), self.config.context
        blank = torch.zeros(size, context, dtype=torch.int64)
        memory = Memory(blank, blank.clone(), blank.bool(), observations.state.clone())
        if self.config.trail or self.config.curiosity:
            memory.visited = torch.zeros(size, self.spec.num_states, dtype=torch.bool)
            memory.tried = torch.zeros(size, self.spec.num_states, self.spec.num_actions, dtype=torch.int16)
            memory.last = observations[torch.arange(size)]  # a copy
        if self.config.curiosity:
            memory.boredom = torch.zeros(size)
        return memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        if self.config.context:
            for past, new in ((memory.states, memory.state[rows]), (memory.actions, actions)):
                past[rows] = torch.cat([past[rows, 1:], new[:, None]], 1)
            memory.valid[rows] = torch.cat([memory.valid[rows, 1:], memory.valid.new_ones(len(rows), 1)], 1)
        if memory.visited is not None and memory.tried is not None and memory.last is not None:
            memory.visited[rows, memory.state[rows]] = True
            memory.tried[rows, memory.state[rows], actions] += 1
            for seen, last in ((observations.map, memory.last.map), (observations.features, memory.last.features)):
                if seen is not None and last is not None:
                    changed = (seen != last[rows]).flatten(1).any(1)
                    memory.tried[rows[changed]] = 0  # what was in vain may not be so now
                    last[rows] = seen
            if memory.boredom is not None:
                again = memory.tried[rows, observations.state].any(-1)  # been here since anything changed
                memory.boredom[rows] = FORGETTING * memory.boredom[rows] + again
        memory.state[rows] = observations.state
        return memory

    def tried_in_vain(self, batch: PlanBatch, rows: Rng) -> Past:
        """Now and then, other actions than the demonstrated one were tried before, and left everything as it was.

        Demonstrations hardly ever return to a situation: without this, nothing would be known of what to do next there.
        """
        past = batch.past
        if past.tried is None or not self.config.vain_share:
            return past
        number = past.tried.shape[1]
        share = rows.fold("vain", "share").uniform()[:, None]  # few or many
        told = rows.fold("vain").uniform()[:, None] < self.config.vain_share
        vain = told & (rows.fold("vain", "actions").uniform((number,)) < share)
        vain &= torch.arange(number, device=vain.device) != batch.x_1["actions"][:, :1]
        often = torch.exp2(3 * rows.fold("vain", "often").uniform((number,))).round().long()  # 1 to 8 times
        return past._replace(tried=past.tried + vain * often)

    def urge(self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor) -> Tensor | None:
        """The action that each of `rows` is to begin with, whatever was learnt; −1 where there is none.

        The less that is new came of the last steps, the likelier it is that something else is tried; and the less often
        an action was tried here, the likelier it is that one. So what was never demonstrated is found out.
        """
        if memory.boredom is None or memory.tried is None:
            return None
        boredom = self.config.curiosity * memory.boredom[rows]
        untried = (1.0 + memory.tried[rows, observations.state]) ** -2
        chance = rng.fold("urge")
        action = chance.categorical(untried)
        return torch.where(chance.fold("felt").uniform() < boredom / (1 + boredom), action, -1)

    def recall(self, observations: Observations, memory: Memory, rows: Tensor, copies: int = 1) -> tuple[Context, Past]:
        """What `rows` see and remember; of the past, `copies` of each row in turn."""
        self._encode(observations, memory, rows)
        assert memory.words is not None
        context = Context(None if memory.cells is None else memory.cells[rows], memory.words[rows])
        each = torch.arange(len(rows)).repeat_interleave(copies)
        past = Past(memory.states[rows][each], memory.actions[rows][each], memory.valid[rows][each])
        if self.config.trail and memory.visited is not None and memory.tried is not None:
            past = past._replace(**_listed(memory.visited[rows], observations.state, each))
            past = past._replace(tried=memory.tried[rows, observations.state][each])
        return context, past

    def _encode(self, observations: Observations, memory: Memory, rows: Tensor) -> None:
        """Encode the maps and missions of `rows`, unless they are what was encoded before."""
        size = len(memory.state)
        if memory.encoded is None:
            memory.encoded = torch.zeros(size, dtype=torch.bool)
            for name in ("map", "mission"):
                seen = getattr(observations, name)
                if seen is not None:
                    setattr(memory, name, seen.new_zeros(size, *seen.shape[1:]))
        stale = ~memory.encoded[rows]
        for seen, kept in ((observations.map, memory.map), (observations.mission, memory.mission)):
            if seen is not None and kept is not None:
                stale = stale | (seen != kept[rows]).flatten(1).any(1)
        if not bool(stale.any()):
            return
        # In pieces that stay in a processor's cache from one pass of the convolution to the next.
        for piece in torch.split(stale.nonzero().squeeze(-1), ENCODED_TOGETHER):
            new, where = observations[piece], rows[piece]
            context = self.encoder(new.map, new.mission, len(where))
            if memory.words is None:
                memory.words = context.mission.new_zeros(size, context.mission.shape[1])
                if context.cells is not None:
                    memory.cells = context.cells.new_zeros(size, *context.cells.shape[1:])
            memory.words[where] = context.mission
            if context.cells is not None and memory.cells is not None:
                memory.cells[where] = context.cells
            for seen, kept in ((new.map, memory.map), (new.mission, memory.mission)):
                if seen is not None and kept is not None:
                    kept[where] = seen
            memory.encoded[where] = True

    def with_options(self, **options: Any) -> Self:
        """The same weights, used in another way (iterations, temperature, order, …)."""
        known = [field.name for field in dataclasses.fields(self.config)]
        if unknown := sorted(set(options) - set(known)):
            raise UserError(f"this planner has no option '{unknown[0]}'; it has {', '.join(sorted(known))}")
        return self._like(config=dataclasses.replace(self.config, **options))

    def on(self, spec: PlanSpec) -> Self:
        """The same weights, in a world that may be of another size."""
        own = self.spec
        if spec.map_shape is not None and own.map_shape is not None and self.any_size:
            cells = spec.num_cells if own.num_goals else 0
            own = dataclasses.replace(own, map_shape=spec.map_shape, num_states=spec.num_states, goal_size=cells)
        wanted = dataclasses.replace(spec, num_goals=own.num_goals, goal_size=own.goal_size)
        for name in ("map_shape", *(field.name for field in dataclasses.fields(PlanSpec) if field.compare)):
            found, expected = getattr(wanted, name), getattr(own, name)
            if found != expected:
                raise UserError(f"the task has {name} {found}, expected {expected}, with which the planner learnt")
        return self if own == self.spec else self._like(spec=own)

    def _like(self, **changed: Any) -> Self:
        other = type(self).__new__(type(self))
        nn.Module.__init__(other)
        other.__dict__.update({**self.__dict__, **changed})
        return other


def cloning_loss(logits: Tensor, batch: PlanBatch, same_goals: bool = False) -> Losses:
    """Cross-entropy of demonstrated actions, [B, C + 1, actions]: of the current step, and of past ones on this map.

    same_goals  leave out past steps that led to goals reached since
    """
    past = batch.past
    assert past.same_map is not None
    actions = torch.cat([past.actions, batch.x_1["actions"][:, :1]], 1)
    alike = past.valid & past.same_map
    if same_goals and past.same_goals is not None:
        alike &= past.same_goals
    counts = torch.cat([alike, batch.valid["actions"][:, :1]], 1)
    nats = functional.cross_entropy(logits.flatten(0, 1), actions.flatten(), reduction="none")
    learnt = (nats * counts.flatten()).sum() / counts.sum()
    right = (logits[:, -1].argmax(-1) == actions[:, -1]).float().mean()
    return Losses(learnt, {"loss/actions": learnt.detach(), "right/actions": right})


def drawn_plan(logits: Tensor, temperature: float, rng: Rng, urge: Tensor | None) -> Plan:
    """One action per row, drawn from logits [B, actions], unless there is an urge."""
    log_p = logits.log_softmax(-1)
    actions = rng.categorical(sharpen(log_p, temperature))
    if urge is not None:
        actions = torch.where(urge >= 0, urge, actions)
    chosen = log_p.gather(-1, actions[:, None])
    return Plan(actions=actions[:, None], energy=-chosen.squeeze(-1), confidence=chosen.exp())


def near(nearness: float, ahead: Tensor) -> Tensor:
    """What steps count in the loss, by how far ahead they are: 1 for the next one.

    What is far ahead is hard to tell, often for anybody. If all steps counted alike, that would drown out the next
    action, which is the one that is executed (docs/log.md).
    """
    return ahead.clamp(min=1).float() ** -nearness


def told_goals(spec: PlanSpec, oracle: Oracle | None, rows: Tensor) -> Tensor:
    """What the simulator says is to be reached next, [n, num_goals]; where fewer are left, the last stands again."""
    if oracle is None or oracle.goals is None:
        raise UserError(
            "this planner is told its goals by the simulator, and the task has none to tell; see Task.goals"
        )
    found = [oracle.goals(oracle.envs[row]) for row in rows.tolist()]
    number = spec.num_goals
    return torch.tensor([[*goals[:number], *([goals[-1]] * (number - len(goals)))] for goals in found])


def _listed(visited: Tensor, state: Tensor, each: Tensor) -> dict[str, Tensor]:
    """Sets of states as lists of equal length."""
    visited[torch.arange(len(state)), state] = False
    row, states = visited.nonzero(as_tuple=True)
    counts = visited.sum(-1)
    if not len(row):
        return {}
    place = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
    trail = torch.zeros(len(state), int(counts.max()), dtype=torch.int64)
    trail[row, place] = states
    return {"trail": trail, "visited": torch.arange(trail.shape[1]) < counts[each, None]}
