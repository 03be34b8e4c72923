"""Adaptation: what a planner with a step model learns within one episode, before it plans again.

What is observed is counted into the step model's table. Counts are kept per *kind* of look ahead and of what is
carried: colors, which are mere names, are left out but for whether the two are equal. An *effect* is an outcome in the
agent's frame and a rule for every channel (kept, a copy of the other's, or a value), so that what was seen before a red
door holds before a blue one. What the table says gives way to what was observed, as the mode of a Dirichlet posterior:
after one contrary observation where a pair of kind and action was never demonstrated, after nine where it was.

All is forgotten with the episode, and nothing here says what looks or actions mean.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import NamedTuple

import torch
from torch import Tensor

from genplan.models.step import STAY, GridFrame, GridStepModel, carried_fields, carried_values, number
from genplan.spec import PlanSpec
from genplan.types import Observations

DEMONSTRATED, NEW = 9, 1  # observations that what the table says counts for
IMPLAUSIBLE = 0.01  # an action that demonstrations would do less often before such a look is unknown there


class Observed(NamedTuple):
    """What was observed in an episode of keys [n, w] and actions, that the table does not say."""

    effect: Tensor  # [n, w, A]: number of the effect that holds, −1 where the table does
    idle: Tensor  # bool [n, w, A]: known to do nothing
    prepares: Tensor  # bool [n, w, A]: known to change what is ahead, or carried, without moving; never demonstrated
    contradicted: Tensor  # bool [n, w]: whether the table was wrong about anything before such a look


class Beliefs(NamedTuple):
    unknown: Tensor  # bool [n, w, A]: actions never demonstrated or observed before such a look
    observed: Observed | None  # None: nothing yet, in no episode


class Effects:
    """All effects that were observed in a batch of episodes: where they lead, and what they make of every key."""

    def __init__(self, model: GridStepModel) -> None:
        self.model, device = model, model.log_prior.device
        self.numbers: dict[tuple[int, ...], int] = {}
        sizes = (torch.arange(size, device=device) for size in model.sizes)
        self.keys = torch.cartesian_prod(*sizes).reshape(-1, len(model.sizes))  # [K, channels]
        self.outcome, self.look, self.carried = (torch.zeros(0, dtype=torch.int64, device=device) for _ in range(3))
        self.idle, self.stays = (torch.zeros(0, dtype=torch.bool, device=device) for _ in range(2))

    def find(self, outcome: int, before: list[int], after: list[int]) -> int:
        """The number of the effect that led from channels to channels."""
        rules = []
        for channel, (old, new) in enumerate(zip(before, after, strict=True)):
            size, other = self.model.sizes[channel], self.model.copied.get(channel)
            copied = other is not None and before[other] == new
            rules.append(size if old == new else size + 1 if copied else new)
        effect = (outcome, *rules)
        if effect not in self.numbers:
            self.numbers[effect] = len(self.numbers)
            self._add(outcome, rules)
        return self.numbers[effect]

    def _add(self, outcome: int, rules: list[int]) -> None:
        model, values = self.model, []
        for channel, rule in enumerate(rules):
            size = model.sizes[channel]
            if rule >= size:
                values.append(self.keys[:, channel if rule == size else model.copied[channel]].clamp(max=size - 1))
            else:
                values.append(torch.full_like(self.keys[:, 0], rule))
        looks, kept = len(model.look_sizes), all(r == s for r, s in zip(rules, model.sizes, strict=True))
        look = number(values[:looks], model.look_sizes)
        carried = number(values[looks:], model.carried_sizes) if model.carried_sizes else torch.zeros_like(look)
        new = (look[None], carried[None])
        self.look, self.carried = (torch.cat([old.reshape(-1, len(look)), one]) for old, one in zip(
            (self.look, self.carried), new, strict=True))  # fmt: skip
        self.outcome = torch.cat([self.outcome, self.outcome.new_tensor([outcome])])
        self.stays = torch.cat([self.stays, self.stays.new_tensor([outcome == STAY])])
        self.idle = torch.cat([self.idle, self.idle.new_tensor([outcome == STAY and kept])])


class Adaptation:
    """For a batch of episodes on a grid."""

    def __init__(self, spec: PlanSpec, model: GridStepModel, size: int) -> None:
        self.spec, self.model, self.effects = spec, model, Effects(model)
        assert spec.geometry is not None
        device = model.log_prior.device
        self.frame = GridFrame.of(spec.geometry, device)
        self.kind_of_key, num_kinds = _kinds(model, self.effects.keys)
        self.demonstrated = torch.zeros(num_kinds, model.num_actions, dtype=torch.bool, device=device)
        keys, actions = model.demonstrated.nonzero(as_tuple=True)
        self.demonstrated[self.kind_of_key[keys], actions] = True
        # Never demonstrated, and less often done there than to be forgotten.
        implausible = (model.table().log_ratio + model.log_prior).exp() < IMPLAUSIBLE
        self.unknown = ~self.demonstrated[self.kind_of_key] & implausible  # [K, A]
        self._describe_hands()
        shape = (size, num_kinds, model.num_actions)
        self.confirmed = torch.zeros(shape, dtype=torch.int16, device=device)  # observations that agree with the table
        self.effect = torch.full(shape, -1, dtype=torch.int16, device=device)  # what holds instead
        self.contrary: list[dict[tuple[int, int], Counter[int]]] = [defaultdict(Counter) for _ in range(size)]
        self.contradicted = torch.zeros(size, num_kinds, dtype=torch.bool, device=device)

    def update(self, ids: Tensor, last: Observations, actions: Tensor, observations: Observations) -> None:
        """After a step from `last` by `actions` to `observations`."""
        state, table = self.spec.state_field or "", self.model.table()
        before, after = (self._channels(one, self.frame.ahead[last[state]]) for one in (last, observations))
        key, then = (number(one.unbind(1), self.model.sizes) for one in (before, after))
        outcome, kind = self.frame.outcome(last[state], observations[state]), self.kind_of_key[key]
        num_carried = math.prod(self.model.carried_sizes)
        expected = table.look[key, actions] * num_carried + table.carried[key, actions]
        agrees = (table.outcome[key, actions] == outcome[:, None]).any(1) & (expected == then)
        self.confirmed[ids, kind, actions] += agrees.to(torch.int16)
        for row in (~agrees).nonzero().squeeze(1).tolist():
            effect = self.effects.find(int(outcome[row]), before[row].tolist(), after[row].tolist())
            self.contrary[int(ids[row])][int(kind[row]), int(actions[row])][effect] += 1
        for row in range(len(ids)):
            pair = int(kind[row]), int(actions[row])
            if pair in self.contrary[int(ids[row])]:
                self._decide(int(ids[row]), *pair)

    def _decide(self, row: int, kind: int, action: int) -> None:
        """Whether the table or an observed effect holds for a pair."""
        effect, times = self.contrary[row][kind, action].most_common(1)[0]
        strength = (DEMONSTRATED if self.demonstrated[kind, action] else NEW) + int(self.confirmed[row, kind, action])
        self.effect[row, kind, action] = effect if times >= strength else -1
        self.contradicted[row, kind] = bool((self.effect[row, kind] >= 0).any())

    def _describe_hands(self) -> None:
        """Which things were ever carried in demonstrations, whatever their names, and what was carried most often."""
        model, looks = self.model, len(self.model.look_sizes)
        counts = model.demonstrated.sum(1)
        kinds = [one for one in range(looks, len(model.sizes)) if not model.exchangeable[one]]
        in_hand = number([torch.zeros_like(counts), *(self.effects.keys[:, one] for one in kinds)],
                         [1, *(model.sizes[one] for one in kinds)])  # fmt: skip
        often = torch.zeros(int(in_hand.max()) + 1, dtype=counts.dtype, device=counts.device)
        often.index_add_(0, in_hand, counts)
        self.unseen = often[in_hand] == 0  # [K]: with something in hand that nobody ever carried
        # What was in hand at the commonest key; nothing is known of it where nothing was demonstrated.
        self.usual = self.effects.keys[counts.argmax(), looks:] if bool(counts.any()) else None

    def familiar(self, observations: Observations) -> Observations:
        """For the denoiser, which was never shown what it is like to carry what nobody ever carried: as if nothing had
        been picked up."""
        if self.usual is None or not len(self.usual):
            return observations
        carried = carried_values(self.spec, observations)
        key = number(carried.unbind(1), self.model.carried_sizes)  # of the first look
        shown = torch.where(self.unseen[key][:, None], self.usual, carried)
        fields, first = dict(observations.fields), 0
        for name in carried_fields(self.spec):
            one = fields[name]
            last = first + one[0].numel()
            fields[name] = shown[:, first:last].reshape(one.shape).to(one.dtype)
            first = last
        return Observations(fields)

    def beliefs(self, ids: Tensor, key: Tensor) -> Beliefs:
        """Of keys [n, w] in the episodes `ids` [n]."""
        kind, rows = self.kind_of_key[key], ids[:, None]
        unknown = self.unknown[key] & (self.confirmed[rows, kind] == 0)
        if not len(self.effects.idle):
            return Beliefs(unknown, None)
        effect, demonstrated = self.effect[rows, kind].long(), self.demonstrated[kind]
        observed, which = effect >= 0, effect.clamp(min=0)
        idle, stays = observed & self.effects.idle[which], observed & self.effects.stays[which]
        prepares, contradicted = stays & ~idle & ~demonstrated, self.contradicted[rows, kind]
        return Beliefs(unknown & ~observed, Observed(effect, idle, prepares, contradicted))

    def _channels(self, observations: Observations, cells: Tensor) -> Tensor:
        """The channels of keys: of what is at the cells [n], and of what is carried."""
        grids = observations[self.spec.grid_field or ""]
        rows = torch.arange(len(cells), device=cells.device)
        look = grids[rows, cells % grids.shape[1], cells // grids.shape[1]].long()
        return torch.cat([look, carried_values(self.spec, observations)], 1)


def _kinds(model: GridStepModel, keys: Tensor) -> tuple[Tensor, int]:
    """Of every key its kind [K], and how many kinds there are."""
    names = model.exchangeable.tolist()
    values = [keys[:, channel] for channel in range(len(names)) if not names[channel]]
    sizes = [model.sizes[channel] for channel in range(len(names)) if not names[channel]]
    looks = len(model.look_sizes)
    for channel in range(looks):  # of names, only whether what is ahead and what is carried have the same
        other = model.copied.get(channel)
        if names[channel] and other is not None:
            named = _named(model, keys, channel, range(looks)) & _named(model, keys, other, range(looks, len(names)))
            values.append(((keys[:, channel] == keys[:, other]) & named).long())
            sizes.append(2)
    return number(values, sizes), math.prod(sizes)


def _named(model: GridStepModel, keys: Tensor, channel: int, part: range) -> Tensor:
    """Whether the value in a channel is a name, [K]: what was demonstrated with one value alone, as nothing in hand
    is, has none."""
    others = [one for one in part if not bool(model.exchangeable[one])]
    group = number([torch.zeros_like(keys[:, 0]), *(keys[:, one] for one in others)],
                   [1, *(model.sizes[one] for one in others)])  # fmt: skip
    seen, shown = torch.zeros(int(group.max()) + 1, model.sizes[channel], device=keys.device), model.demonstrated.any(1)
    seen[group[shown], keys[shown, channel]] = 1
    return seen.sum(1)[group] != 1
