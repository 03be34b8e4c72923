"""Which positions change when: the strategies of the sampler.

A strategy turns one network call into one step of the plan. `random` is the continuous-time Markov chain of the paper:
every position jumps by itself at the rate R_t. The other orders *commit* tokens: they keep the chain's schedule — after
the step to t, a fraction kappa(t) of every stream is committed — but select the positions: the most confident ones,
those with the widest margin, or the nearest in time.

The labels in `rng.fold(…)` seed the draws: another label is another sample. They never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from genplan.flow.masks import Masks
from genplan.flow.path import ProbPath, Source, Tokens
from genplan.flow.rates import transition
from genplan.flow.rng import Rng, categorical

Guidance = Mapping[str, Callable[[Tensor], Tensor]]
"""Stream name -> (log p(x_1 | x_t) [..., S] -> the probabilities that its tokens are drawn from, [..., S])."""


class Order(StrEnum):
    RANDOM = "random"  # the Markov chain
    CONFIDENCE = "confidence"  # the largest probability first
    MARGIN = "margin"  # the largest gap between the two largest probabilities first
    NEAR_TO_FAR = "near-to-far"  # the earliest step of the plan first (the first axis of an event is time)


class Step(NamedTuple):
    """Step k of the time grid."""

    k: int
    t: float
    t_next: float


class Prediction(NamedTuple):
    """One network call, per stream."""

    log_p: Mapping[str, Tensor]  # [*batch, *event, S], log p(x_1 | x_t)
    max_log_prob: Mapping[str, Tensor]  # [*batch, *event]


@dataclass
class Draft:
    """An unfinished plan; strategies replace its tokens and account for what they draw."""

    tokens: Tokens  # x_t, [*batch, *event]
    log_probs: dict[str, Tensor]  # [*batch, *event], log p(token | x_t) at the call that drew it last; 0 at first
    nll: dict[str, Tensor]  # [*batch, *event], −log-probability of all draws so far, under what they were drawn from

    @staticmethod
    def of(x_0: Tokens) -> Draft:
        log_probs, nll = ({name: torch.zeros(x.shape, device=x.device) for name, x in x_0.items()} for _ in range(2))
        return Draft(dict(x_0), log_probs, nll)


class Strategy(Protocol):
    """One step of all streams at once, so that a strategy is free to draw them jointly."""

    @property
    def finished(self) -> AbstractSet[str]:
        """Streams that cannot change any more: predictions for them may be left out."""

    def step(self, draft: Draft, step: Step, prediction: Prediction, guidance: Guidance) -> None:
        """Move `draft` from step.t to step.t_next; its tokens are replaced by a new mapping, never written to."""


class CtmcStrategy:
    """The continuous-time Markov chain (Algorithm 2): every position that is not given jumps by itself."""

    finished: AbstractSet[str] = frozenset()

    def __init__(self, path: ProbPath, x_0: Tokens, rng: Rng, num_steps: int, given: Masks, eta: float) -> None:
        self.path, self.given, self.eta = path, given, eta
        self.uniforms = _uniforms(rng, num_steps, x_0)

    def step(self, draft: Draft, step: Step, prediction: Prediction, guidance: Guidance) -> None:
        draft.tokens = {name: self._ctmc_step(draft, name, step, prediction, guidance) for name in draft.tokens}

    def _ctmc_step(self, draft: Draft, name: str, step: Step, prediction: Prediction, guidance: Guidance) -> Tensor:
        x_t, log_p, given = draft.tokens[name], prediction.log_p[name], self.given[name]
        probs = guidance[name](log_p)
        t, t_next = (
            torch.full((1,) * x_t.ndim, time, dtype=probs.dtype, device=x_t.device) for time in (step.t, step.t_next)
        )
        step_probs = transition(self.path, name, probs, x_t, t, t_next, self.eta)
        tokens = torch.where(given, x_t, categorical(step_probs, self.uniforms[name][step.k]))
        draft.nll[name] += torch.where(given, 0.0, -step_probs.gather(-1, tokens[..., None]).squeeze(-1).log())
        resampled = ~given if self.path.source is Source.UNIFORM else tokens != x_t
        index = tokens.clamp(max=self.path.sizes[name] - 1)  # MASK has no logit; it never stays to the end
        log_prob = log_p.gather(-1, index[..., None]).squeeze(-1)
        draft.log_probs[name] = torch.where(resampled, log_prob, draft.log_probs[name])
        return tokens


class CommitStrategy:
    """Commits selected positions to draws from p(x_1 | x_t); with eta, committed tokens may go back to noise."""

    def __init__(
        self,
        order: Order,
        path: ProbPath,
        x_0: Tokens,
        rng: Rng,
        grid: Sequence[float],
        given: Masks,
        first_streams: Sequence[str],
        eta: float,
    ) -> None:
        self.path, self.rng, self.given, self.first_streams, self.eta = path, rng, given, first_streams, eta
        self.uniforms = _uniforms(rng, len(grid) - 1, x_0)
        self.schedule = _CommitSchedule(order, path, grid, given, first_streams, rng.key.ndim)
        self.committed = {name: given[name] | _is_data(path, name, x) for name, x in x_0.items()}
        self.finished: set[str] = set()

    def step(self, draft: Draft, step: Step, prediction: Prediction, guidance: Guidance) -> None:
        draft.tokens = {
            name: x_t if name in self.finished else self._commit_step(draft, name, step, prediction, guidance)
            for name, x_t in draft.tokens.items()
        }

    def _commit_step(self, draft: Draft, name: str, step: Step, prediction: Prediction, guidance: Guidance) -> Tensor:
        log_p, committed = prediction.log_p[name], self.committed[name]
        selected = self.schedule.select(name, step.k, log_p, prediction.max_log_prob[name], committed)
        tokens = _draw(draft, name, log_p, guidance[name], selected, self.uniforms[name][step.k])
        self.committed[name] = committed | selected
        if not self.eta and name in self.first_streams:
            self.finished.add(name)  # all of it is committed, and stays so
        if self.eta and step.t_next < 1:
            tokens = self._remask(name, step, tokens, selected)
        return tokens

    def _remask(self, name: str, step: Step, tokens: Tensor, selected: Tensor) -> Tensor:
        """Committed tokens go back to noise at the rate eta, to be drawn again; those of this step stay."""
        event = tokens.shape[self.rng.key.ndim :]
        remasked = self.rng.fold(name, "falls", step.k).uniform(event) < self.eta * (step.t_next - step.t)
        remasked &= self.committed[name] & ~self.given[name] & ~selected
        noise = self.path.stream_noise(name, event, self.rng.fold("again", step.k))
        self.committed[name] = self.committed[name] & ~remasked
        return torch.where(remasked, noise, tokens)


def _draw(
    draft: Draft, name: str, log_p: Tensor, guidance: Callable[[Tensor], Tensor], selected: Tensor, u: Tensor
) -> Tensor:
    """x_t with independent draws at the selected positions; only these go through the guidance."""
    x_t = draft.tokens[name]
    index = selected.reshape(-1).nonzero().squeeze(-1)
    log_p = log_p.flatten(0, -2).index_select(0, index)
    probs = guidance(log_p)
    drawn = categorical(probs, u.reshape(-1).index_select(0, index))
    token = drawn[:, None]
    log_probs, nll = draft.log_probs[name].view(-1), draft.nll[name].view(-1)
    log_probs.index_copy_(0, index, log_p.gather(-1, token).squeeze(-1).to(log_probs.dtype))
    nll.index_add_(0, index, probs.gather(-1, token).squeeze(-1).log().to(nll.dtype), alpha=-1)
    return x_t.reshape(-1).index_copy(0, index, drawn).reshape(x_t.shape)


class _CommitSchedule:
    """Who commits when: after step k, a fraction kappa(t_k) of every stream's positions that are not given.

    Rounded up: a step that commits nothing wastes a network call (the margin keeps 0.3 · 10 from becoming 4).
    """

    def __init__(
        self,
        order: Order,
        path: ProbPath,
        grid: Sequence[float],
        given: Masks,
        first_streams: Sequence[str],
        batch_ndim: int,
    ) -> None:
        self.order, self.batch_ndim = order, batch_ndim
        fractions = [path.kappa(t) for t in grid[1:]]
        self.all_at = {name: [name in first_streams or fraction >= 1 for fraction in fractions] for name in given}
        self.within_reach: dict[str, Sequence[Tensor]] = {}  # near to far; per stream and step, bool [*event]
        self.target_count: dict[str, Sequence[Tensor]] = {}  # others; per stream and step, int [*batch], given or not
        for name, mask in given.items():
            fraction = torch.tensor([1.0] * len(fractions) if name in first_streams else fractions, device=mask.device)
            if order is Order.NEAR_TO_FAR:
                # By time step, in all streams alike: a stream whose first step is given must not run ahead of the
                # others, or a state would be drawn together with the action that leads to it, and contradict it.
                event = mask.shape[batch_ndim:]
                reach = torch.ceil(fraction * event[0] - 1e-4)
                near = torch.arange(event[0], device=mask.device) < reach[:, None]
                self.within_reach[name] = near.reshape(-1, event[0], *(1 for _ in event[1:])).unbind()
            else:
                num_free = (~mask).flatten(batch_ndim).sum(-1)
                num_given = mask.flatten(batch_ndim).sum(-1)
                counts = torch.ceil(num_free[..., None] * fraction - 1e-4).long() + num_given[..., None]
                self.target_count[name] = counts.unbind(-1)

    def select(self, name: str, k: int, log_p: Tensor, max_log_prob: Tensor, committed: Tensor) -> Tensor:
        """The positions that commit in step k; bool like `committed`."""
        if self.all_at[name][k]:  # no ranking needed
            return ~committed
        if self.order is Order.NEAR_TO_FAR:
            return self.within_reach[name][k] & ~committed
        if self.order is Order.CONFIDENCE:
            score = max_log_prob
        else:
            top = log_p.topk(2, -1).values.exp()
            score = top[..., 0] - top[..., 1]
        score = torch.where(committed, torch.inf, score).flatten(self.batch_ndim)  # the committed rank first
        rank = score.argsort(dim=-1, descending=True, stable=True).argsort(-1)
        selected: Tensor = (rank < self.target_count[name][k][..., None]).reshape(committed.shape) & ~committed
        return selected


def _uniforms(rng: Rng, num_steps: int, x_0: Tokens) -> dict[str, Sequence[Tensor]]:
    """Uniform numbers for all steps and streams, made at once: making them one by one costs more than using them."""
    events = {name: x.shape[rng.key.ndim :] for name, x in x_0.items()}
    sizes = [num_steps * event.numel() for event in events.values()]
    parts = torch.split(rng.fold("chance").uniform((sum(sizes),)), sizes, -1)
    return {
        name: part.reshape(*rng.shape, num_steps, *event).unbind(rng.key.ndim)
        for part, (name, event) in zip(parts, events.items(), strict=True)
    }


def _is_data(path: ProbPath, name: str, x: Tensor) -> Tensor:
    """Committed from the start: what is not MASK. Uniform noise looks like any token, so nothing is."""
    return x != path.mask_token(name) if path.source is Source.MASK else torch.zeros_like(x, dtype=torch.bool)
