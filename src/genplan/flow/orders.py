"""Which positions change when: the strategies of the sampler.

A strategy turns one network call into one step of the plan. `random` is the continuous-time Markov chain of the paper:
every position jumps by itself at the rate R_t. The other orders *commit* tokens: they keep the chain's schedule — after
the step to t, a fraction kappa(t) = t of every stream is committed — but select the positions: the most confident ones,
those with the widest margin, or the nearest in time. In all of these, tokens of one call are drawn independently; the
order `chain` hands states and actions to a *head* instead, which draws
them jointly, near to far.

The labels in `rng.fold(…)` seed the draws: another label is another sample. They never change.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from genplan.flow.path import ProbPath, Source
from genplan.flow.rates import transition
from genplan.flow.rng import Rng, categorical
from genplan.flow.tokens import Masks, Tokens

Guidance = Mapping[str, Callable[[Tensor], Tensor]]
"""Stream name -> (log p(x_1 | x_t) [..., S] -> the probabilities that its tokens are drawn from, [..., S])."""


class Order(StrEnum):
    RANDOM = "random"  # the Markov chain
    CONFIDENCE = "confidence"  # the largest probability first
    MARGIN = "margin"  # the largest gap between the two largest probabilities first
    NEAR_TO_FAR = "near-to-far"  # the earliest step of the plan first (the first axis of an event is time)
    CHAIN = "chain"  # near to far, states and actions jointly by a head


class Call(NamedTuple):
    """The network call at step k of the time grid."""

    k: int
    t: float
    t_next: float
    log_p: Mapping[str, Tensor]  # per stream [*batch, *event, S], log p(x_1 | x_t)
    max_log_prob: Mapping[str, Tensor]  # per stream [*batch, *event]


class Proposal(NamedTuple):
    """What a head would have of a whole plan, at one network call; per stream of the head."""

    tokens: Mapping[str, Tensor]  # [*batch, *event]
    log_probs: Mapping[str, Tensor]  # [*batch, *event], log p(token | x_t)


class Head(Protocol):
    """Draws the tokens of several streams jointly, step by step in time."""

    @property
    def streams(self) -> Sequence[str]: ...

    def start(self, x_0: Tokens, given: Masks, rng: Rng) -> None:
        """A new plan; what is given stays as it is."""

    def propose(self, log_p: Mapping[str, Tensor], known: int, due: int) -> Proposal:
        """A plan from the first `known` steps on, of which those before `due` are now committed."""


class Strategy(ABC):
    """A plan that takes shape.

    tokens     x_t, [*batch, *event]; every step replaces the mapping, and writes into no tensor of it
    log_probs  [*batch, *event], log p(token | x_t) at the call that drew it last; 0 at first
    finished   streams that cannot change any more: predictions for them may be left out
    """

    def __init__(
        self, path: ProbPath, x_0: Tokens, rng: Rng, grid: Sequence[float], given: Masks, guidance: Guidance, eta: float
    ) -> None:
        if eta < 0:
            raise ValueError(f"eta is {eta}, expected at least 0")
        self.path, self.rng, self.given, self.guidance, self.eta = path, rng, given, guidance, eta
        self.tokens, self.finished = x_0, set[str]()
        self.log_probs = {name: torch.zeros(x.shape, device=x.device) for name, x in x_0.items()}
        # Uniform numbers for all steps and streams, made at once: making them one by one costs more than using them.
        num_steps, events = len(grid) - 1, {name: x.shape[rng.key.ndim :] for name, x in x_0.items()}
        sizes = [num_steps * event.numel() for event in events.values()]
        parts = torch.split(rng.fold("chance").uniform((sum(sizes),)), sizes, -1)
        self.uniforms = {
            name: part.reshape(*rng.shape, num_steps, *event).unbind(rng.key.ndim)
            for part, (name, event) in zip(parts, events.items(), strict=True)
        }

    def step(self, call: Call) -> None:
        """From t to t_next, all streams at once, so that a strategy is free to draw them jointly."""
        self.tokens = {
            name: x_t if name in self.finished else self.stream_step(name, x_t, call)
            for name, x_t in self.tokens.items()
        }

    @abstractmethod
    def stream_step(self, name: str, x_t: Tensor, call: Call) -> Tensor:
        """The next x_t of one stream."""

    def predictions(self, call: Call) -> Proposal:
        """What the plan would be after this call, if it were finished now: the most probable tokens."""
        best = {name: log_p.max(-1) for name, log_p in call.log_p.items()}
        return Proposal({n: one.indices for n, one in best.items()}, {n: one.values for n, one in best.items()})


class CtmcStrategy(Strategy):
    """The continuous-time Markov chain (Algorithm 2): every position that is not given jumps by itself."""

    def stream_step(self, name: str, x_t: Tensor, call: Call) -> Tensor:
        log_p, given = call.log_p[name], self.given[name]
        probs = self.guidance[name](log_p)
        t, t_next = (
            torch.full((1,) * x_t.ndim, time, dtype=probs.dtype, device=x_t.device) for time in (call.t, call.t_next)
        )
        step_probs = transition(self.path, name, probs, x_t, t, t_next, self.eta)
        tokens = torch.where(given, x_t, categorical(step_probs, self.uniforms[name][call.k]))
        resampled = ~given if self.path.source is Source.UNIFORM else tokens != x_t
        index = tokens.clamp(max=self.path.sizes[name] - 1)  # MASK has no logit; it never stays to the end
        log_prob = log_p.gather(-1, index[..., None]).squeeze(-1)
        self.log_probs[name] = torch.where(resampled, log_prob, self.log_probs[name])
        return tokens


class CommitStrategy(Strategy):
    """Commits selected positions to draws from p(x_1 | x_t); with eta, committed tokens may go back to noise.

    After step k, a fraction kappa(t_k) of every stream's positions that are not given is committed; all of
    `first_streams` after the first. Rounded up: a step that commits nothing wastes a network call (the margin keeps
    0.3 · 10 from becoming 4).
    """

    def __init__(
        self, order: Order, first_streams: Sequence[str], path: ProbPath, x_0: Tokens, rng: Rng, grid: Sequence[float],
        given: Masks, guidance: Guidance, eta: float,
    ) -> None:  # fmt: skip
        super().__init__(path, x_0, rng, grid, given, guidance, eta)
        if unknown := set(first_streams) - set(path.sizes):
            raise ValueError(f"first_streams names {sorted(unknown)}, expected some of {sorted(path.sizes)}")
        self.order, self.first_streams = order, first_streams
        self.committed = dict(given)
        if path.source is Source.MASK:  # uniform noise looks like any token, so nothing more is known
            self.committed = {name: given[name] | (x != path.mask_token(name)) for name, x in x_0.items()}
        fractions = torch.tensor(grid[1:], device=rng.key.device)
        # Per stream and step. Near to far: bool [*event]; others: how many, int [*batch], given or not.
        self.due = {name: self._due(fractions, mask) for name, mask in given.items()}

    def _due(self, fractions: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        batch_ndim = self.rng.key.ndim
        if self.order is Order.NEAR_TO_FAR:
            # By time step, in all streams alike: a stream whose first step is given must not run ahead of the others,
            # or a state would be drawn together with the action that leads to it, and contradict it.
            length, *others = given.shape[batch_ndim:]
            near = torch.arange(length, device=given.device) < torch.ceil(fractions * length - 1e-4)[:, None]
            return near.reshape(-1, length, *(1 for _ in others)).unbind()
        num_given, num_free = (mask.flatten(batch_ndim).sum(-1)[..., None] for mask in (given, ~given))
        return (torch.ceil(num_free * fractions - 1e-4).long() + num_given).unbind(-1)

    def stream_step(self, name: str, x_t: Tensor, call: Call) -> Tensor:
        selected = self._select(name, call)
        tokens = self._draw(name, x_t, selected, call)
        self.committed[name] = self.committed[name] | selected
        if not self.eta and name in self.first_streams:
            self.finished.add(name)  # all of it is committed, and stays so
        if not self.eta or call.t_next == 1:
            return tokens
        # Committed tokens go back to noise at the rate eta, to be drawn again; those of this step stay.
        event = tokens.shape[self.rng.key.ndim :]
        remasked = self.rng.fold(name, "falls", call.k).uniform(event) < self.eta * (call.t_next - call.t)
        remasked &= self.committed[name] & ~self.given[name] & ~selected
        self.committed[name] = self.committed[name] & ~remasked
        return torch.where(remasked, self.path.stream_noise(name, event, self.rng.fold("again", call.k)), tokens)

    def _select(self, name: str, call: Call) -> Tensor:
        """The positions that commit in this step; bool [*batch, *event]."""
        committed = self.committed[name]
        if name in self.first_streams or call.t_next == 1:  # no ranking needed
            return ~committed
        if self.order is Order.NEAR_TO_FAR:
            return self.due[name][call.k] & ~committed
        score = call.max_log_prob[name]
        if self.order is Order.MARGIN:
            top = call.log_p[name].topk(2, -1).values.exp()
            score = top[..., 0] - top[..., 1]
        score = torch.where(committed, torch.inf, score).flatten(self.rng.key.ndim)  # the committed rank first
        rank = score.argsort(dim=-1, descending=True, stable=True).argsort(-1)
        return (rank < self.due[name][call.k][..., None]).reshape(committed.shape).logical_and(~committed)

    def _draw(self, name: str, x_t: Tensor, selected: Tensor, call: Call) -> Tensor:
        """x_t with independent draws at the selected positions; only these go through the guidance."""
        index = selected.reshape(-1).nonzero().squeeze(-1)
        log_p = call.log_p[name].flatten(0, -2).index_select(0, index)
        probs = self.guidance[name](log_p)
        drawn = categorical(probs, self.uniforms[name][call.k].reshape(-1).index_select(0, index))
        log_probs = self.log_probs[name].view(-1)
        log_probs.index_copy_(0, index, log_p.gather(-1, drawn[:, None]).squeeze(-1).to(log_probs.dtype))
        return x_t.reshape(-1).index_copy(0, index, drawn).reshape(x_t.shape)


class ChainStrategy(CommitStrategy):
    """Commits near to far; states and actions as the head draws them, so that each follows from what comes before.

    Of a plan whose first n steps are known, the actions before n are committed, and the states up to n: the one at n is
    where the known actions lead.
    """

    def __init__(self, head: Head, first_streams: Sequence[str], *parts: Any) -> None:
        super().__init__(Order.NEAR_TO_FAR, first_streams, *parts)
        if self.eta:
            raise ValueError(f"eta is {self.eta}, expected 0: a chain commits what follows from all before")
        self.head, self.known = head, 0
        head.start(self.tokens, self.given, self.rng)

    def step(self, call: Call) -> None:
        others = {name: x for name, x in self.tokens.items() if name not in self.head.streams}
        drawn = {name: x if name in self.finished else self.stream_step(name, x, call) for name, x in others.items()}
        length = self.tokens["actions"].shape[self.rng.key.ndim]
        due = min(math.ceil(call.t_next * length - 1e-4), length)
        self.proposal = self.head.propose(call.log_p, self.known, due)
        time = torch.arange(length, device=self.rng.key.device)
        for name in self.head.streams:
            end, start = (step + (name == "states") for step in (due, self.known))
            new = (time >= start) & (time < end) & ~self.given[name]
            drawn[name] = torch.where(new, self.proposal.tokens[name], self.tokens[name])
            self.log_probs[name] = torch.where(new, self.proposal.log_probs[name], self.log_probs[name])
        self.tokens, self.known = {name: drawn[name] for name in self.tokens}, due

    def predictions(self, call: Call) -> Proposal:
        """As the head would have the rest."""
        tokens, log_probs = super().predictions(call)
        return Proposal({**tokens, **self.proposal.tokens}, {**log_probs, **self.proposal.log_probs})
