"""Algorithm 2: denoise from noise to a plan, and the record of how it took shape.

    sample(path, denoiser, x_0, rng, steps=10, order=Order.NEAR_TO_FAR, temperature=0.3)

`sample` is one loop, handed its parts: the time grid, the strategy (orders.py: which positions change when), the
guidance (temperature and top-p), and a head that draws streams jointly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from genplan.flow.energy import plan_energy
from genplan.flow.orders import (
    Call,
    ChainStrategy,
    CommitStrategy,
    CtmcStrategy,
    Guidance,
    Head,
    Order,
    Proposal,
    Strategy,
)  # fmt: skip
from genplan.flow.path import ProbPath, Source
from genplan.flow.rng import Rng
from genplan.flow.tokens import Masks, Tokens, check_finite, check_logits, check_masks, check_tokens, mask_of, sum_event

DenoiserFn = Callable[[Tokens, Tensor], Mapping[str, Tensor]]
"""(x_t, t [*batch]) -> logits per stream [*batch, *event, S]: the network, with its conditions already inside."""

MIN_TEMPERATURE = 1e-6  # below, log-probabilities divided by it overflow


@dataclass(frozen=True)
class Trace:
    """The steps of one sample: K network calls, K + 1 values of x_t."""

    t: Tensor  # [K + 1]
    tokens: Mapping[str, Tensor]  # [K + 1, *batch, *event]
    predicted: Mapping[str, Tensor]  # [K, *batch, *event], the most probable token at each call
    confidence: Mapping[str, Tensor]  # [K, *batch, *event], its probability
    energy: Tensor  # [K, *batch], −Σ log confidence over the energy's streams: falls as tokens are committed

    def rows(self, ids: Tensor) -> Trace:
        """Of these rows of the batch [n]."""
        tokens, predicted, confidence = (
            {name: x[:, ids] for name, x in one.items()} for one in (self.tokens, self.predicted, self.confidence)
        )
        return Trace(self.t, tokens, predicted, confidence, self.energy[:, ids])


@dataclass(frozen=True)
class Sample:
    """A finished plan, and the network's probabilities of it."""

    tokens: Mapping[str, Tensor]  # [*batch, *event]; never MASK
    log_probs: Mapping[str, Tensor]  # [*batch, *event]: log p(token | x_t) at the call that drew it last; 0 where given
    log_p_noise: Mapping[str, Tensor]  # [*batch, *event, S]: log p(· | all noise), from which the energy is read
    energy: Tensor  # [*batch], the paper's: −Σ log p(token | all noise), over the energy's streams
    num_calls: int
    trace: Trace | None


def sample(
    path: ProbPath, denoiser: DenoiserFn, x_0: Tokens, rng: Rng, *,
    steps: int | Sequence[float] = 10, order: Order | str = Order.RANDOM, first_streams: Sequence[str] = (),
    temperature: float | Mapping[str, float] = 1.0, top_p: float | Mapping[str, float] = 1.0, eta: float = 0.0,
    given: Masks | None = None, valid: Masks | None = None, energy_streams: Sequence[str] | None = None,
    head: Head | None = None, keep_trace: bool = False,
) -> Sample:  # fmt: skip
    """Denoise x_0 to the end.

    x_0             tokens at the first time of the grid, [*batch, *event]: `path.noise(...)`, with what is given put in
    rng             keys [*batch]
    steps           number of equal steps from 0 to 1, or the grid itself: rising times that end at 1. A grid that
                    starts later refines a plan that is partly there
    first_streams   streams that are committed as a whole in the first step (only with an order that is not random)
    temperature     of p(x_1 | x_t), for all streams or each; 0 takes the most probable token
    top_p           keep the most probable tokens up to this total probability
    eta             stochasticity: the rate at which committed tokens go back to noise, to be drawn again
    given           positions of x_0 that stay as they are
    valid           positions that count in the energies
    energy_streams  streams of the energy (all by default; the paper: actions)
    head            draws states and actions jointly; with the order 'chain', and with no other
    """
    check_tokens(path.sizes, x_0, rng.shape, path.num_special)
    check_masks(x_0, given=given, valid=valid)
    grid, batch_ndim = _time_grid(steps), rng.key.ndim
    given = _complete(path, x_0, given)
    parts = (path, x_0, rng, grid, given, _make_guidance(path, temperature, top_p), eta)
    strategy = _make_strategy(Order(order), head, first_streams, parts)
    log_p_noise: Mapping[str, Tensor] | None = None
    shown, predictions = [], []
    for k, (t, t_next) in enumerate(pairwise(grid)):
        skip = frozenset[str]() if keep_trace else strategy.finished  # a trace shows all streams
        call = Call(k, t, t_next, *_predict(path, denoiser, strategy.tokens, t, rng, skip))
        if t == 0:
            log_p_noise = call.log_p
        if keep_trace:
            shown.append(strategy.tokens)
        strategy.step(call)
        if keep_trace:
            predictions.append(strategy.predictions(call))
    tokens, num_calls = strategy.tokens, len(grid) - 1
    if log_p_noise is None:  # the grid started later: the paper's energy needs one more call, at pure noise
        noise = path.noise({name: x.shape[batch_ndim:] for name, x in x_0.items()}, rng.fold("energy"))
        noise = {name: torch.where(given[name], tokens[name], x) for name, x in noise.items()}
        log_p_noise, _ = _predict(path, denoiser, noise, 0.0, rng)
        num_calls += 1
    streams = list(path.sizes if energy_streams is None else energy_streams)
    energy = plan_energy(log_p_noise, tokens, streams, batch_ndim, valid, given)
    trace = _make_trace(grid, [*shown, tokens], predictions, streams, batch_ndim, valid) if keep_trace else None
    return Sample(tokens, strategy.log_probs, log_p_noise, energy, num_calls, trace)


def _make_strategy(order: Order, head: Head | None, first_streams: Sequence[str], parts: tuple[Any, ...]) -> Strategy:
    if (order is Order.CHAIN) != (head is not None):
        raise ValueError(f"the order is '{order}' with head={head}, expected a head with 'chain', and with no other")
    if head is not None:
        return ChainStrategy(head, first_streams, *parts)
    if order is not Order.RANDOM:
        return CommitStrategy(order, first_streams, *parts)
    if first_streams:
        raise ValueError(
            f"first_streams={list(first_streams)} needs an order, found 'random': in the Markov chain all streams "
            "jump alike; use 'confidence', 'margin' or 'near-to-far'"
        )
    return CtmcStrategy(*parts)


def _predict(
    path: ProbPath, denoiser: DenoiserFn, x_t: Tokens, t: float, rng: Rng, skip: AbstractSet[str] = frozenset()
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One network call: log-probabilities in at least float32, and the largest of each position."""
    logits = denoiser(x_t, torch.full(rng.shape, t, device=rng.key.device))
    check_logits(path.sizes, logits, x_t)
    wide = {name: a if a.dtype == torch.float64 else a.float() for name, a in logits.items() if name not in skip}
    log_p = {name: a.log_softmax(-1) for name, a in wide.items()}
    max_log_prob = {name: a.amax(-1) for name, a in log_p.items()}
    for name, best in max_log_prob.items():
        if not math.isfinite(best.sum()):  # NaN, +inf or all −inf among logits make a NaN here
            check_finite(name, best)
    return log_p, max_log_prob


def _make_trace(
    grid: Sequence[float], tokens: Sequence[Tokens], predictions: Sequence[Proposal],
    energy_streams: Sequence[str], batch_ndim: int, valid: Masks | None,
) -> Trace:  # fmt: skip
    x_1 = tokens[-1]
    confidence = {name: torch.stack([call.log_probs[name] for call in predictions]).exp() for name in x_1}
    counted = (
        torch.where(mask_of(valid, name, x_1[name], True), -confidence[name].log(), 0.0) for name in energy_streams
    )
    return Trace(
        t=torch.tensor(grid, device=next(iter(x_1.values())).device),
        tokens={name: torch.stack([x[name] for x in tokens]) for name in x_1},
        predicted={name: torch.stack([call.tokens[name] for call in predictions]) for name in x_1},
        confidence=confidence,
        energy=torch.stack([sum_event(nll, 1 + batch_ndim) for nll in counted]).sum(0),
    )


def _time_grid(steps: int | Sequence[float]) -> list[float]:
    if isinstance(steps, int):
        if steps < 1:
            raise ValueError(f"steps is {steps}, expected at least 1")
        return [k / steps for k in range(steps + 1)]
    grid = [float(t) for t in steps]
    rises = all(a < b for a, b in pairwise(grid))
    if len(grid) < 2 or not rises or grid[0] < 0 or grid[-1] != 1:
        raise ValueError(f"the step grid is {grid}, expected at least 2 rising times between 0 and 1 that end at 1")
    return grid


def _complete(path: ProbPath, x_0: Tokens, given: Masks | None) -> dict[str, Tensor]:
    """The mask of what is given for every stream; no position of it may be MASK."""
    masks = {name: mask_of(given, name, x, False) for name, x in x_0.items()}
    for name, x in x_0.items():
        if path.source is Source.MASK and bool((masks[name] & (x == path.mask_token(name))).any()):
            raise ValueError(f"stream '{name}' is MASK ({path.mask_token(name)}) where given, expected a token")
    return masks


def _make_guidance(
    path: ProbPath, temperatures: float | Mapping[str, float], top_ps: float | Mapping[str, float]
) -> Guidance:
    guidance = {}
    for name in path.sizes:
        temperature, top_p = (one.get(name, 1.0) if isinstance(one, Mapping) else one for one in (temperatures, top_ps))
        if not temperature >= 0:
            raise ValueError(f"the temperature of '{name}' is {temperature}, expected at least 0")
        if not 0 < top_p <= 1:
            raise ValueError(f"the top_p of '{name}' is {top_p}, expected more than 0 and at most 1")
        guidance[name] = partial(_warp, temperature=temperature, top_p=top_p)
    return guidance


def _warp(log_p: Tensor, temperature: float, top_p: float) -> Tensor:
    """Log-probabilities [..., S] -> probabilities to draw from."""
    probs = apply_temperature(log_p, temperature)
    if top_p < 1:
        ranked, index = probs.sort(-1, descending=True)
        before = ranked.cumsum(-1) - ranked
        ranked = ranked.masked_fill(before >= top_p, 0.0)  # the most probable token always stays
        probs = torch.zeros_like(probs).scatter_(-1, index, ranked)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def apply_temperature(log_p: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [..., S] -> probabilities to draw from; near temperature 0, the most probable token."""
    if temperature < MIN_TEMPERATURE:
        return torch.nn.functional.one_hot(log_p.argmax(-1), log_p.shape[-1]).to(log_p.dtype)
    return log_p.exp() if temperature == 1 else (log_p / temperature).softmax(-1)
