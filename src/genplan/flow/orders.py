"""Which positions change when: the strategies of the sampler.

A strategy turns one network call into one step of the plan. `random` is the continuous-time Markov chain of the paper:
every position jumps by itself at the rate R_t. The other orders *commit* tokens: they keep the chain's schedule — after
the step to t, a fraction kappa(t) = t of every stream is committed — but select the positions: the most confident ones,
those with the widest margin, or the nearest in time.

The labels in `rng.fold(…)` seed the draws: another label is another sample. They never change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

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


class Call(NamedTuple):
    """The network call at step k of the time grid."""

    k: int
    t: float
    t_next: float
    log_p: Mapping[str, Tensor]  # per stream [*batch, *event, S], log p(x_1 | x_t)
    max_log_prob: Mapping[str, Tensor]  # per stream [*batch, *event]


class Strategy(ABC):
    """A plan that takes shape.

    tokens     x_t, [*batch, *event]; every step replaces the mapping, and writes into no tensor of it
    log_probs  [*batch, *event], log p(token | x_t) at the call that drew it last; 0 at first
    nll        [*batch, *event], −log-probability of all draws so far, under what they were drawn from
    finished   streams that cannot change any more: predictions for them may be left out
    """

    def __init__(
        self, path: ProbPath, x_0: Tokens, rng: Rng, grid: Sequence[float], given: Masks, guidance: Guidance, eta: float
    ) -> None:
        if eta < 0:
            raise ValueError(f"eta is {eta}, expected at least 0")
        self.path, self.rng, self.given, self.guidance, self.eta = path, rng, given, guidance, eta
        self.tokens, self.finished = x_0, set[str]()
        self.log_probs, self.nll = (
            {name: torch.zeros(x.shape, device=x.device) for name, x in x_0.items()} for _ in range(2)
        )
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
        self.nll[name] += torch.where(given, 0.0, -step_probs.gather(-1, tokens[..., None]).squeeze(-1).log())
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
        token = drawn[:, None]
        log_probs, nll = self.log_probs[name].view(-1), self.nll[name].view(-1)
        log_probs.index_copy_(0, index, log_p.gather(-1, token).squeeze(-1).to(log_probs.dtype))
        nll.index_add_(0, index, probs.gather(-1, token).squeeze(-1).log().to(nll.dtype), alpha=-1)
        return x_t.reshape(-1).index_copy(0, index, drawn).reshape(x_t.shape)
