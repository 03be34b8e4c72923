"""Algorithm 2: run the denoising backwards, from noise to a plan. One loop, handed its parts.

    sample(path, logits, x_0, rng, steps=10, order=Order.NEAR_TO_FAR, temperature=0.3)

The *order* says which positions jump when. `random` is the continuous-time Markov chain of the paper: every position
jumps by itself at the rate of R_t. The others keep the chain's timetable — after the step to t, a share kappa(t) of
every stream is settled — but choose who is next: the surest positions, those with the widest margin, or the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from genplan.flow.checks import check_finite, check_logits, check_masks, check_tokens
from genplan.flow.energy import Logits, plan_energy
from genplan.flow.masks import Masks, mask_of, per_row
from genplan.flow.path import Path, Source, Tokens
from genplan.flow.rates import transition
from genplan.flow.rng import Rng, categorical


class Order(StrEnum):
    RANDOM = "random"  # the Markov chain itself
    CONFIDENCE = "confidence"  # the largest probability first
    MARGIN = "margin"  # the largest gap between the two largest probabilities first
    NEAR_TO_FAR = "near-to-far"  # the earliest step of the plan first (the first axis of an event is time)


class Posterior(StrEnum):
    """How p(x_1 | x_t) enters a step of the Markov chain. Rates are linear in it, so one step has the same law."""

    MEAN = "mean"  # rates averaged exactly over x_1
    DRAW = "draw"  # one x_1 drawn, its conditional rates used


COLDEST = 1e-6  # of temperatures; below, log-probabilities divided by it are no numbers any more


@dataclass(frozen=True)
class Trace:
    """A plan taking shape: K network calls, K + 1 states."""

    t: Tensor  # [K + 1]
    tokens: Mapping[str, Tensor]  # [K + 1, *batch, *event]
    predicted: Mapping[str, Tensor]  # [K, *batch, *event], the likeliest token at each call
    confidence: Mapping[str, Tensor]  # [K, *batch, *event], its probability
    energy: Tensor  # [K, *batch], −Σ log confidence over the energy's streams: falls as the plan settles


@dataclass(frozen=True)
class Sample:
    """What came out, and how sure of it the network was."""

    tokens: dict[str, Tensor]  # [*batch, *event]; never MASK
    log_probs: dict[str, Tensor]  # [*batch, *event]: log p(token | x_t) at the call that set it last; 0 where given
    energy: Tensor  # [*batch], the paper's: −Σ log p(token | all noise), over the energy's streams
    path_energy: Tensor  # [*batch], −log-probability of the denoising path under the chain that was run
    num_calls: int
    trace: Trace | None


def sample(
    path: Path,
    logits: Logits,
    x_0: Tokens,
    rng: Rng,
    *,
    steps: int | Sequence[float] = 10,
    order: Order | str = Order.RANDOM,
    first: Sequence[str] = (),
    temperature: float | Mapping[str, float] = 1.0,
    top_p: float | Mapping[str, float] = 1.0,
    eta: float = 0.0,
    posterior: Posterior | str = Posterior.MEAN,
    given: Masks | None = None,
    valid: Masks | None = None,
    energy_of: Sequence[str] | None = None,
    keep_trace: bool = False,
) -> Sample:
    """Denoise x_0 to the end.

    x_0          tokens at the first time of the grid, [*batch, *event]: `path.noise(...)`, with what is given put in
    rng          keys [*batch]
    steps        number of equal steps from 0 to 1, or the grid itself: rising times that end at 1. A grid that starts
                 later refines a plan that is already half there
    first        streams that settle wholly in the first step (only with an order that is not random)
    temperature  of p(x_1 | x_t), for all streams or each; 0 takes the likeliest token
    top_p        keep the likeliest tokens up to this total probability
    eta          stochasticity: the rate at which settled tokens fall back to noise, to be drawn again
    given        positions of x_0 that stay as they are
    valid        positions that count in the energies
    energy_of    streams whose energy is wanted (all by default; the paper: actions)
    """
    order, posterior = Order(order), Posterior(posterior)
    check_tokens(path.sizes, x_0, rng.shape, num_special=int(path.source is Source.MASK))
    check_masks(x_0, given, "given")
    check_masks(x_0, valid, "valid")
    grid = _grid(steps)
    sharpness = {name: _Sharpness.of(name, temperature, top_p) for name in path.sizes}
    if eta < 0:
        raise ValueError(f"eta is {eta}, expected at least 0")
    if unknown := set(first) - set(path.sizes):
        raise ValueError(f"first names the streams {sorted(unknown)}, expected some of {sorted(path.sizes)}")
    if first and order is Order.RANDOM:
        raise ValueError(
            f"first={list(first)} needs an order, found 'random': in the Markov chain all streams jump alike"
        )

    rows, device = rng.key.ndim, rng.key.device
    energy_of = list(path.sizes if energy_of is None else energy_of)
    fixed = {name: mask_of(given, name, x, False) for name, x in x_0.items()}
    settled = {name: fixed[name] | _is_token(path, name, x) for name, x in x_0.items()}
    for name, x in x_0.items():
        if path.source is Source.MASK and bool((fixed[name] & (x == path.mask_token(name))).any()):
            raise ValueError(f"stream '{name}' is MASK ({path.mask_token(name)}) where given, expected a token")

    chance = _chance(rng, len(grid) - 1, {name: x.shape[rows:] for name, x in x_0.items()})
    queue = None if order is Order.RANDOM else _Queue(order, path, grid, fixed, first, rows)
    x_t = dict(x_0)
    log_probs = {name: torch.zeros(x.shape, device=device) for name, x in x_0.items()}
    nats = {name: torch.zeros(x.shape, device=device) for name, x in x_0.items()}
    history = _History(energy_of, rows, valid) if keep_trace else None
    at_noise: Mapping[str, Tensor] | None = None
    num_calls = 0
    finished: set[str] = set()

    for k, (t, t_next) in enumerate(pairwise(grid)):
        # What has settled for good is asked about no more, unless the story of the plan is wanted.
        log_p, surest = _ask(path, logits, x_t, t, rng, set() if history is not None else finished)
        num_calls += 1
        if t == 0:
            at_noise = log_p
        if history is not None:
            history.add(t, x_t, log_p)
        x_next = {}
        for name, x in x_t.items():
            if name in finished:
                x_next[name] = x
                continue
            u = chance[name][k]
            if queue is None:
                probs = sharpness[name](log_p[name])
                if posterior is Posterior.DRAW:
                    probs = _one_hot(rng.fold(name, "x_1", k).categorical(probs), probs)
                step = _jump(path, name, x, probs, t, t_next, eta, fixed[name], u)
                readable = step.tokens.clamp(max=path.sizes[name] - 1)  # MASK has no logit; it never stays to the end
                now = log_p[name].gather(-1, readable[..., None]).squeeze(-1)
                log_probs[name] = torch.where(step.is_set, now, log_probs[name])
                nats[name] += step.nats
                x_next[name] = step.tokens
            else:
                chosen = queue.next(name, k, log_p[name], surest[name], settled[name])
                x_next[name] = _settle(x, log_p[name], sharpness[name], chosen, u, log_probs[name], nats[name])
                settled[name] = settled[name] | chosen
                if not eta and name in first:
                    finished.add(name)  # all of it is settled, and stays so
                if eta and t_next < 1:
                    falls = rng.fold(name, "falls", k).uniform(x.shape[rows:]) < eta * (t_next - t)
                    falls &= settled[name] & ~fixed[name] & ~chosen
                    again = path.stream_noise(name, x.shape[rows:], rng.fold("again", k))
                    x_next[name] = torch.where(falls, again, x_next[name])
                    settled[name] = settled[name] & ~falls
        x_t = x_next

    if at_noise is None:  # the grid began later: the paper's energy asks for one look at pure noise
        noise = path.noise({name: x.shape[rows:] for name, x in x_t.items()}, rng.fold("energy"))
        noise = {name: torch.where(fixed[name], x_t[name], x) for name, x in noise.items()}
        at_noise, _ = _ask(path, logits, noise, 0.0, rng, set())
        num_calls += 1
    return Sample(
        tokens=x_t,
        log_probs=log_probs,
        energy=plan_energy(at_noise, x_t, energy_of, rows, valid, given),
        path_energy=torch.stack([per_row(n, rows) for n in nats.values()]).sum(0),
        num_calls=num_calls,
        trace=history.trace(x_t) if history is not None else None,
    )


class _Step(NamedTuple):
    """One stream, one step of the chain."""

    tokens: Tensor  # [*batch, *event]
    is_set: Tensor  # bool: drawn anew in this step
    nats: Tensor  # −log-probability of what was drawn; 0 where nothing was


def _chance(rng: Rng, steps: int, events: Mapping[str, torch.Size]) -> dict[str, Sequence[Tensor]]:
    """Uniform numbers for all steps and streams, made at once: making them one by one costs more than using them."""
    sizes = [steps * event.numel() for event in events.values()]
    parts = torch.split(rng.fold("chance").uniform((sum(sizes),)), sizes, -1)
    return {
        name: part.reshape(*rng.shape, steps, *event).unbind(rng.key.ndim)
        for part, (name, event) in zip(parts, events.items(), strict=True)
    }


def _ask(
    path: Path, logits: Logits, x_t: Tokens, t: float, rng: Rng, without: set[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One call of the network: log-probabilities in at least float32, and the largest of each position."""
    answer = logits(x_t, torch.full(rng.shape, t, device=rng.key.device))
    check_logits(path.sizes, answer, x_t)
    wide = {name: a if a.dtype == torch.float64 else a.float() for name, a in answer.items() if name not in without}
    log_p = {name: a.log_softmax(-1) for name, a in wide.items()}
    surest = {name: a.amax(-1) for name, a in log_p.items()}
    # NaN, +inf or all −inf among logits make a NaN here; one look at the sum of all tells that there is none.
    if not math.isfinite(sum(best.sum() for best in surest.values())):
        broken = min(surest, key=lambda name: bool(surest[name].isfinite().all()))
        check_finite(broken, surest[broken])
    return log_p, surest


def _jump(
    path: Path,
    name: str,
    x: Tensor,
    probs: Tensor,
    t: float,
    t_next: float,
    eta: float,
    fixed: Tensor,
    u: Tensor,
) -> _Step:
    """One step of the Markov chain: every free position jumps by itself."""
    now, then = (torch.full((1,) * x.ndim, time, dtype=probs.dtype, device=x.device) for time in (t, t_next))
    law = transition(path, name, probs, x, now, then, eta)
    tokens = torch.where(fixed, x, categorical(law, u))
    nats = torch.where(fixed, 0.0, -law.gather(-1, tokens[..., None]).squeeze(-1).log())
    is_set = ~fixed if path.source is Source.UNIFORM else tokens != x
    return _Step(tokens, is_set, nats)


def _settle(
    x: Tensor, log_p: Tensor, sharpness: _Sharpness, chosen: Tensor, u: Tensor, log_probs: Tensor, nats: Tensor
) -> Tensor:
    """The chosen positions become draws from p(x_1 | x_t); the others stay, and cost nothing.

    Writes the draws' log-probabilities into `log_probs`, and adds what they cost under the law drawn from to `nats`.
    """
    where = chosen.reshape(-1).nonzero().squeeze(-1)
    free = log_p.flatten(0, -2).index_select(0, where)
    probs = sharpness(free)
    drawn = categorical(probs, u.reshape(-1).index_select(0, where))
    token = drawn[:, None]
    log_probs.view(-1).index_copy_(0, where, free.gather(-1, token).squeeze(-1).to(log_probs.dtype))
    nats.view(-1).index_add_(0, where, probs.gather(-1, token).squeeze(-1).log().to(nats.dtype), alpha=-1)
    return x.reshape(-1).index_copy(0, where, drawn).reshape(x.shape)


def sharpen(log_p: Tensor, temperature: float) -> Tensor:
    """Log-probabilities -> probabilities to draw from; where it is too cold to divide by, the likeliest token."""
    if temperature < COLDEST:
        return _one_hot(log_p.argmax(-1), log_p)
    return log_p.exp() if temperature == 1 else (log_p / temperature).softmax(-1)


@dataclass(frozen=True)
class _Sharpness:
    """Temperature and top-p of one stream: log-probabilities -> probabilities to draw from."""

    temperature: float
    top_p: float

    @staticmethod
    def of(name: str, temperature: float | Mapping[str, float], top_p: float | Mapping[str, float]) -> _Sharpness:
        heat = temperature.get(name, 1.0) if isinstance(temperature, Mapping) else temperature
        nucleus = top_p.get(name, 1.0) if isinstance(top_p, Mapping) else top_p
        if not heat >= 0:
            raise ValueError(f"the temperature of '{name}' is {heat}, expected at least 0")
        if not 0 < nucleus <= 1:
            raise ValueError(f"the top_p of '{name}' is {nucleus}, expected more than 0 and at most 1")
        return _Sharpness(heat, nucleus)

    def __call__(self, log_p: Tensor) -> Tensor:
        probs = sharpen(log_p, self.temperature)
        if self.top_p < 1:
            ranked, index = probs.sort(-1, descending=True)
            before = ranked.cumsum(-1) - ranked
            ranked = ranked.masked_fill(before >= self.top_p, 0.0)  # the likeliest token always stays
            probs = torch.zeros_like(probs).scatter_(-1, index, ranked)
            probs = probs / probs.sum(-1, keepdim=True)
        return probs


class _History:
    """Collects a Trace."""

    def __init__(self, energy_of: Sequence[str], rows: int, valid: Masks | None) -> None:
        self.energy_of, self.rows, self.valid = energy_of, rows, valid
        self.t: list[float] = []
        self.tokens: list[Tokens] = []
        self.predicted: list[Tokens] = []
        self.confidence: list[Mapping[str, Tensor]] = []
        self.energy: list[Tensor] = []

    def add(self, t: float, x_t: Tokens, log_p: Mapping[str, Tensor]) -> None:
        best = {name: a.max(-1) for name, a in log_p.items()}
        sure = {name: b.values.exp() for name, b in best.items()}
        self.t.append(t)
        self.tokens.append(dict(x_t))
        self.predicted.append({name: b.indices for name, b in best.items()})
        self.confidence.append(sure)
        nats = [torch.where(mask_of(self.valid, n, x_t[n], True), -sure[n].log(), 0.0) for n in self.energy_of]
        self.energy.append(torch.stack([per_row(n, self.rows) for n in nats]).sum(0))

    def trace(self, final: Tokens) -> Trace:
        states = [*self.tokens, final]
        return Trace(
            t=torch.tensor([*self.t, 1.0]),
            tokens={name: torch.stack([s[name] for s in states]) for name in final},
            predicted={name: torch.stack([p[name] for p in self.predicted]) for name in final},
            confidence={name: torch.stack([c[name] for c in self.confidence]) for name in final},
            energy=torch.stack(self.energy),
        )


def _grid(steps: int | Sequence[float]) -> list[float]:
    if isinstance(steps, int):
        if steps < 1:
            raise ValueError(f"steps is {steps}, expected at least 1")
        return [k / steps for k in range(steps + 1)]
    grid = [float(t) for t in steps]
    rises = all(a < b for a, b in pairwise(grid))
    if len(grid) < 2 or not rises or grid[0] < 0 or grid[-1] != 1:
        raise ValueError(f"the step grid is {grid}, expected at least 2 rising times between 0 and 1 that end at 1")
    return grid


class _Queue:
    """Who settles when, in an order that is not random: after step k, a share kappa(t_k) of every stream's free places.

    Rounded up: a step that settles nothing wastes a network call (the margin keeps 0.3 · 10 from becoming 4).
    """

    def __init__(
        self, order: Order, path: Path, grid: Sequence[float], fixed: Masks, first: Sequence[str], rows: int
    ) -> None:
        self.order, self.rows = order, rows
        shares = path.schedule.kappa(torch.tensor(grid[1:], dtype=torch.float64)).tolist()
        self.all_due = {name: [name in first or share >= 1 for share in shares] for name in fixed}
        self.due: dict[str, Sequence[Tensor]] = {}  # per stream and step, bool: near enough; or int: settled or fixed
        for name, mask in fixed.items():
            share = torch.tensor([1.0] * len(shares) if name in first else shares, device=mask.device)
            if order is Order.NEAR_TO_FAR:
                # By time step, in all streams alike: a stream whose first step is given must not run ahead of the
                # others, or a state would be drawn beside the action that leads to it, and contradict it.
                event = mask.shape[rows:]
                reach = torch.ceil(share * event[0] - 1e-4)
                near = torch.arange(event[0], device=mask.device) < reach[:, None]
                self.due[name] = near.reshape(-1, event[0], *(1 for _ in event[1:])).unbind()
            else:
                free = (~mask).flatten(rows).sum(-1)
                given = mask.flatten(rows).sum(-1)
                self.due[name] = (torch.ceil(free[..., None] * share - 1e-4).long() + given[..., None]).unbind(-1)

    def next(self, name: str, k: int, log_p: Tensor, surest: Tensor, settled: Tensor) -> Tensor:
        """The positions that settle in step k; bool like `settled`."""
        if self.all_due[name][k]:  # nobody needs to be chosen
            return ~settled
        if self.order is Order.NEAR_TO_FAR:
            return self.due[name][k] & ~settled
        if self.order is Order.CONFIDENCE:
            score = surest
        else:
            top = log_p.topk(2, -1).values.exp()
            score = top[..., 0] - top[..., 1]
        score = torch.where(settled, torch.inf, score).flatten(self.rows)  # those that are settled stand in front
        place = score.argsort(dim=-1, descending=True, stable=True).argsort(-1)
        chosen: Tensor = (place < self.due[name][k][..., None]).reshape(settled.shape) & ~settled
        return chosen


def _is_token(path: Path, name: str, x: Tensor) -> Tensor:
    """Already settled at the start: what is not MASK. Uniform noise looks like any token, so nothing is."""
    return x != path.mask_token(name) if path.source is Source.MASK else torch.zeros_like(x, dtype=torch.bool)


def _one_hot(x: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(x, like.shape[-1]).to(like.dtype)
