"""The chain: a head of the sampler that draws states and actions jointly, by a learnt model of one step.

The denoiser says which actions and states are likely at every step of the plan, each by itself; the step model says
what follows from what. A beam of sequences grows from the last known state, each with its own map: what an action makes
of the cell ahead is written there, and read by the steps behind. The score of a sequence is the sum over its steps of

    log u(a) + log p(a | look) / p(a) + log p(outcome | look, a) + state_weight · log v(s')

with the denoiser's marginals u of actions and v of states; and at its end, less the steps that it needs to arrive: its
own, and those that the learnt cost-to-go says are left. So a plan agrees with itself as far as the step model is
right, and leads where the denoiser thinks that it should.

With adaptation (adaptation.py), what was observed in the episode comes before the step model, and three prices before
the denoiser, which knows nothing of what was never demonstrated. What is known to do nothing is left out. A
*preparation*, which changes what is ahead without moving, has a price of its own, and the denoiser's clock stands still
meanwhile. Where the way ahead is blocked, an action whose effect is unknown there may be *tried*: it is planned as if
it made the way free, at a price that falls the longer nothing else helps. So it may with something in hand that nobody
ever carried, where the episode comes to the same state again and again: what is sought may be what is carried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from genplan.flow import Masks, Rng, Tokens
from genplan.flow.orders import Proposal
from genplan.models.cost import PreparedCost
from genplan.models.settings import at_least, probability
from genplan.models.step import ADVANCE, GridFrame, StepModel, carried_values, grid_sizes, number
from genplan.planners.adaptation import Adaptation, Beliefs
from genplan.spec import PlanSpec
from genplan.types import Observations

IMPOSSIBLE = -1e4  # added to a score: where nothing is possible, the least bad is still found
RESTLESS = 2  # visits of a state since anything changed, from which on it counts as coming there again and again
RNG_CHAIN = "chain"  # label of random draws: never renamed


@dataclass(frozen=True)
class ChainConfig:
    """How a chain is drawn (order `chain`), and how it adapts within an episode. Prices are in nats."""

    beam_width: int = 16
    state_weight: float = 0.5  # of the denoiser's marginals of states
    cost_weight: float = 1.0  # of the cost-to-go, in nats per step
    cutoff: float = 3.0  # an action this many nats rarer before such a look than elsewhere is left out; 0: none is
    min_confidence: float = 0.7  # a plan is executed up to its first action that is less likely
    adapt: bool = True  # count what is observed in an episode into the step model's table
    preparation_price: float = 2.0  # of what opens the way; twice as much more if the way is not taken then
    try_price: float = 8.0  # of an action whose effect is unknown, divided by how often anything was done here
    visit_price: float = 2.0  # of every earlier visit of a planned state, since anything changed
    step_model_steps: int = 1200  # of the training of the step model, before that of the planner; no more than that has
    value_iteration: bool = True  # cost-to-go learns from it, where sub-goals are reached by facing them

    def __post_init__(self) -> None:
        at_least(self, 1, "beam_width", most=4096)
        at_least(self, 1, "step_model_steps", most=10**6)
        probability(self, "min_confidence")
        at_least(self, 0, "state_weight", "cost_weight", "cutoff", "preparation_price", "try_price", "visit_price")


IN_TRAINING = ("step_model_steps", "value_iteration")  # settings that cannot be chosen when planning; all others can
OPTIONS = tuple(one.name for one in fields(ChainConfig) if one.name not in IN_TRAINING)


class Imagined(NamedTuple):
    """What sequences of plans have come to: [n, w] of each, and [n, w, cells]."""

    states: Tensor
    maps: Tensor  # the look of every cell, as a number
    carried: Tensor
    lag: Tensor  # by how many steps the denoiser's clock is behind
    prepared: Tensor  # bool: whether the last step was a preparation

    def rows(self, rows: Tensor, beam: Tensor) -> Imagined:
        return Imagined(*(one[rows, beam] for one in self))


class Moves(NamedTuple):
    """What can be done in every sequence: a move is an action with one of its outcomes, [n, w, A · R]."""

    price: Tensor  # what it adds to the score, beside the denoiser's terms
    following: Tensor  # the state that it leads to; −1: nowhere
    waits: Tensor | None = None  # bool: the denoiser's terms are left out, and its clock stands still
    beliefs: Beliefs | None = None
    tries: Tensor | None = None  # bool [n, w, A]


class Chain:
    """For one batch of plans; every plan of it is a row."""

    streams = ("states", "actions")

    def __init__(
        self, spec: PlanSpec, model: StepModel, config: ChainConfig, temperature: float, observations: Observations,
        adaptation: Adaptation | None = None, ids: Tensor | None = None, visits: Tensor | None = None,
    ) -> None:  # fmt: skip
        """A row of everything for every plan.

        observations  what is observed now
        ids           the episodes of the adaptation, [n]
        visits        how often anything was done in each state since anything changed, [n, states]
        """
        self.config, self.temperature, self.table = config, temperature, model.table()
        self.adaptation = None  # where nothing was done and observed yet, there is nothing to adapt
        if (
            adaptation is not None
            and ids is not None
            and visits is not None
            and (bool(visits.any()) or len(adaptation.effects.idle))
        ):
            self.adaptation, self.ids, self.visits = adaptation, ids, visits
        states = observations[spec.state_field or ""]
        self.frame: GridFrame | None = None
        self.num_carried, maps, carried = 1, states.new_zeros(len(states), 1), torch.zeros_like(states)
        if spec.geometry is not None and spec.grid_field is not None and spec.geometry.directions == 4:
            self.frame = GridFrame.of(spec.geometry, states.device)
            look_sizes, carried_sizes = grid_sizes(spec)
            maps = number(observations[spec.grid_field].transpose(1, 2).flatten(1, 2).long().unbind(-1), look_sizes)
            if carried_sizes:
                carried = number(carried_values(spec, observations).unbind(-1), carried_sizes)
            self.num_carried = math.prod(carried_sizes)
        lag = torch.zeros_like(states)
        self.imagined = Imagined(*(one[:, None] for one in (states, maps.int(), carried, lag, lag.bool())))
        self.cost: Callable[[], PreparedCost] | None = None
        self.energy = self._nll = torch.zeros(len(states), device=states.device)  # of the plans as they are proposed
        self.num_outcomes = self.table.outcome.shape[-1]
        price = self.table.log_ratio[..., None] + self.table.log_prob
        if config.cutoff:
            price = torch.where((self.table.log_ratio < -config.cutoff)[..., None], price + IMPOSSIBLE, price)
        self.price, self.outcomes = price.flatten(1), self.table.outcome.flatten(1)  # [K, A · R]
        if self.adaptation is not None:
            advances = model.demonstrated * (self.table.outcome[..., 0] == ADVANCE)
            self.floor = int(advances.sum(1).argmax()) // self.num_carried  # the look that was stepped onto most often

    def start(self, x_0: Tokens, given: Masks, rng: Rng) -> None:
        self.tokens, self.rng = dict(x_0), rng
        self.rows = torch.arange(len(self.imagined.states), device=rng.key.device)[:, None]
        self.given = {name: given[name] for name in self.streams if bool(given[name][:, name == "states" :].any())}

    def propose(self, log_p: Mapping[str, Tensor], known: int, due: int) -> Proposal:
        """As `Head` has it; without marginals of states there are no terms of theirs."""
        log_u, log_v = log_p["actions"], log_p.get("states")
        scores, actions, states, reached = self._beam(log_u, log_v, known, due)
        needed, score = self._needed(states, known), scores[..., -1]
        if needed is not None:  # what is planned behind the arrival counts for nothing
            last = (needed.long() - known).clamp(1, scores.shape[2]) - 1
            score = scores.gather(2, last[..., None]).squeeze(2) - self.config.cost_weight * needed
        if self.temperature:
            u = self.rng.fold(RNG_CHAIN, known).uniform((score.shape[1],)).clamp(min=1e-20)
            score = score / self.temperature - (-u.log()).log()
        best = score.argmax(1, keepdim=True)
        actions, states = actions[self.rows, best].squeeze(1), states[self.rows, best].squeeze(1)
        if due < log_u.shape[1]:  # go on from there, in step with the denoiser again
            imagined, ancestors = reached
            self.imagined = imagined.rows(self.rows, ancestors[self.rows, best])
            self.imagined = self.imagined._replace(lag=torch.zeros_like(self.imagined.lag))
        tokens = {
            "actions": torch.cat([self.tokens["actions"][:, :known], actions], 1),
            "states": torch.cat([self.tokens["states"][:, : known + 1], states[:, :-1]], 1),
        }
        log_probs = {
            name: log.gather(-1, tokens[name].clamp(max=log.shape[-1] - 1)[..., None]).squeeze(-1)
            for name, log in log_p.items()
            if name in self.streams
        }
        nll = -log_probs["actions"][:, known:due]
        if needed is None:
            self.energy = self._nll = self._nll + nll.sum(1)
        else:
            needed = needed[self.rows, best]  # [n, 1]
            self._nll = self._nll + (nll * (torch.arange(known, due, device=nll.device) < needed)).sum(1)
            self.energy = self._nll + self.config.cost_weight * needed.squeeze(1)
        self.tokens |= tokens
        return Proposal(tokens, log_probs)

    def _needed(self, states: Tensor, known: int) -> Tensor | None:
        """Steps that sequences [n, w, steps] need to arrive: [n, w]; None without a cost-to-go."""
        if self.cost is None:
            return None
        shared = self.tokens["states"][:, None, 1 : known + 1].expand(-1, states.shape[1], -1)
        return self.cost().needed(torch.cat([shared, states], 2), known)

    def _beam(
        self, log_u: Tensor, log_v: Tensor | None, known: int, due: int
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Imagined, Tensor]]:
        """Sequences from `known` to the end: scores up to every step, actions and states, each [n, w, steps]; and what
        is imagined after `due` steps, with the number of the one that each sequence comes from [n, w]."""
        size, length, _ = log_u.shape
        imagined, score, rows = self.imagined, log_u.new_zeros(size, 1), self.rows
        actions = states = imagined.states.new_zeros(size, 1, 0)
        scores = score[..., None][..., :0]
        kept, ancestors = imagined, torch.zeros_like(imagined.states)
        for step in range(known, length):
            ahead, key = self._key(imagined)
            moves = self._moves(imagined, ahead, key)
            total = score[..., None] + moves.price + self._denoised(log_u, log_v, step, imagined.lag, moves)
            if self.frame is not None:
                total = total.masked_fill(moves.following < 0, IMPOSSIBLE)
            if self.given:
                total = total + self._contradiction(moves.following, step, length)
            score, index = total.flatten(1).topk(min(self.config.beam_width, total[0].numel()), 1)
            beam, move = index // total.shape[2], index % total.shape[2]
            imagined = self._act(imagined, ahead, key, moves, beam, move)
            actions = torch.cat([actions[rows, beam], (move // self.num_outcomes)[..., None]], 2)
            states = torch.cat([states[rows, beam], imagined.states[..., None]], 2)
            scores = torch.cat([scores[rows, beam], score[..., None]], 2)
            if step + 1 == due:
                kept, ancestors = imagined, torch.arange(score.shape[1], device=score.device).expand_as(score)
            elif step >= due:
                ancestors = ancestors[rows, beam]
        return scores, actions, states, (kept, ancestors)

    def _key(self, imagined: Imagined) -> tuple[Tensor, Tensor]:
        """The cell ahead, and the key of the step table."""
        if self.frame is None:
            return imagined.states, imagined.states
        ahead = self.frame.ahead[imagined.states]
        look = imagined.maps.gather(-1, ahead[..., None]).squeeze(-1)
        return ahead, look * self.num_carried + imagined.carried

    def _moves(self, imagined: Imagined, ahead: Tensor, key: Tensor) -> Moves:
        price, outcome = self.price[key], self.outcomes[key]
        if self.frame is None:
            return Moves(price, outcome)
        if self.adaptation is not None:
            return self._adapted(self.adaptation, imagined, ahead, key, price, outcome)
        return Moves(price, self.frame.following[imagined.states[..., None], outcome])

    def _adapted(
        self, adaptation: Adaptation, imagined: Imagined, ahead: Tensor, key: Tensor, price: Tensor, outcome: Tensor
    ) -> Moves:
        """What was observed in the episode comes before what the table says."""
        assert self.frame is not None
        config, states = self.config, imagined.states[..., None]
        beliefs, effects = adaptation.beliefs(self.ids, key), adaptation.effects
        observed = beliefs.observed
        if observed is not None:
            holds = self._per_move(observed.effect >= 0)
            instead = effects.outcome[observed.effect.clamp(min=0)]
            outcome = torch.where(holds, self._per_move(instead), outcome)
            price = torch.where(holds, 0.0, price)
        # The way ahead is free if anything is believed to lead there.
        free = ((outcome == ADVANCE) & (price > IMPOSSIBLE / 2)).any(-1, keepdim=True)
        here = self.visits.gather(1, imagined.states)[..., None]
        restless = (here >= RESTLESS) & adaptation.unseen[key][..., None]
        waits = tries = beliefs.unknown & (~free | restless)
        try_price = torch.where(here > 0, config.try_price / here, -IMPOSSIBLE)
        if observed is not None:
            helpless = (observed.contradicted & ~observed.prepares.any(-1))[
                ..., None
            ]  # what is known to help is better
            try_price = torch.where(helpless, config.preparation_price, try_price)
            price = torch.where(self._per_move(observed.prepares), -config.preparation_price, price)
            waits = tries | observed.prepares
        price = torch.where(self._per_move(tries), -self._per_move(try_price.expand_as(tries)), price)
        if observed is not None:
            price = price.masked_fill(self._per_move(observed.idle), IMPOSSIBLE)
        waits = self._per_move(waits)
        following = self.frame.following[states, outcome].where(~self._per_move(tries), states)
        visits = self.visits.gather(1, following.clamp(min=0).flatten(1)).view_as(price)
        price = price - (config.visit_price * visits).masked_fill(waits, 0.0)
        enters = following // 4 == ahead[..., None]
        price = price - 2 * config.preparation_price * (imagined.prepared[..., None] & ~enters)
        return Moves(price, following, waits, beliefs, tries)

    def _per_move(self, of_actions: Tensor) -> Tensor:
        """[..., A] -> [..., A · R]."""
        return of_actions if self.num_outcomes == 1 else of_actions.repeat_interleave(self.num_outcomes, -1)

    def _denoised(self, log_u: Tensor, log_v: Tensor | None, step: int, lag: Tensor, moves: Moves) -> Tensor:
        """The denoiser's terms of the score."""
        length, following = log_u.shape[1], moves.following.clamp(min=0)
        if moves.waits is None:
            terms = self._per_move(log_u[:, step, None])
            if log_v is not None and step + 1 < length and self.config.state_weight:
                value = log_v[:, step + 1].gather(1, following.flatten(1)).view_as(following)
                terms = terms + self.config.state_weight * value
            return terms
        clock = step - lag
        terms = self._per_move(log_u[self.rows, clock])
        if log_v is not None and self.config.state_weight:
            after = (clock + 1).clamp(max=length - 1)
            value = log_v[self.rows[..., None], after[..., None], following]
            terms = terms + self.config.state_weight * torch.where((clock + 1 < length)[..., None], value, 0.0)
        return torch.where(moves.waits, 0.0, terms)

    def _act(
        self, imagined: Imagined, ahead: Tensor, key: Tensor, moves: Moves, beam: Tensor, move: Tensor
    ) -> Imagined:
        """What the sequences `beam` [n, w] have come to after their moves."""
        rows, action = self.rows, move // self.num_outcomes
        states = moves.following[rows, beam, move].clamp(min=0)
        if self.frame is None:
            return imagined.rows(rows, beam)._replace(states=states)
        imagined, cell, key = imagined.rows(rows, beam), ahead[rows, beam], key[rows, beam]
        look, carried = self.table.look[key, action], self.table.carried[key, action]
        lag, prepared = imagined.lag, imagined.prepared
        if moves.beliefs is not None and moves.tries is not None and moves.waits is not None and self.adaptation:
            if moves.beliefs.observed is not None:
                effect = moves.beliefs.observed.effect[rows, beam, action]
                known, which = effect >= 0, effect.clamp(min=0)
                look = torch.where(known, self.adaptation.effects.look[which, key], look)
                carried = torch.where(known, self.adaptation.effects.carried[which, key], carried)
            tried = moves.tries[rows, beam, action]
            look, carried = torch.where(tried, self.floor, look), torch.where(tried, imagined.carried, carried)
            prepared = moves.waits[rows, beam, move]
            lag = lag + prepared
        return Imagined(
            states, imagined.maps.scatter(2, cell[..., None], look[..., None].int()), carried, lag, prepared
        )

    def _contradiction(self, following: Tensor, step: int, length: int) -> Tensor:
        """What moves lose that contradict what is given, [n, 1 or w, moves]."""
        lost = torch.zeros((), device=following.device)
        if (given := self.given.get("actions")) is not None:
            action = torch.arange(following.shape[-1], device=following.device) // self.num_outcomes
            differs = given[:, step, None] & (self.tokens["actions"][:, step, None] != action)
            lost = lost + IMPOSSIBLE * differs[:, None]
        if (given := self.given.get("states")) is not None and step + 1 < length:
            differs = given[:, step + 1, None, None] & (self.tokens["states"][:, step + 1, None, None] != following)
            lost = lost + IMPOSSIBLE * differs
        return lost
