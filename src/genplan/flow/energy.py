"""What is learnt and what is judged: the denoising loss, the entropy bound, and the energies of a plan.

Everything here is per token and in nats. `valid` marks positions inside an episode; what is not valid carries no loss,
no gradient, no entropy and no energy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.flow.checks import check_finite, check_logits, check_masks, check_tokens
from genplan.flow.masks import Masks, counted, per_row
from genplan.flow.path import Path, Source, Tokens

Logits = Callable[[Tokens, Tensor], Mapping[str, Tensor]]
"""(x_t, t [*batch]) -> logits per stream [*batch, *event, S]: the network, with its conditions already inside."""


@dataclass(frozen=True)
class Denoising:
    """The denoising loss of a batch: its total, and per stream the mean loss and the share of right guesses."""

    total: Tensor  # scalar, the sum over streams
    losses: Mapping[str, Tensor]  # scalar per stream: mean nats per counted position
    accuracies: Mapping[str, Tensor]  # scalar per stream: correct share of the *corrupted* positions
    counts: Mapping[str, Tensor]  # scalar per stream: counted positions


def denoising_loss(
    path: Path,
    logits: Mapping[str, Tensor],
    x_1: Tokens,
    x_t: Tokens,
    valid: Masks | None = None,
    given: Masks | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> Denoising:
    """−log p(x_1 | x_t), averaged over the positions that must be learnt (the paper's equation `general_loss`).

    weights  what positions count in the average, as tensors that broadcast to x_1; a stream may be left out

    Mask: the masked positions. Uniform: *all* valid positions that are not given, since the posterior must also learn
    "this token is already right": a network trained on corrupted positions alone never stays where it should.
    """
    check_tokens(path.sizes, x_1)
    check_tokens(path.sizes, x_t, num_special=int(path.source is Source.MASK))
    check_logits(path.sizes, logits, x_1)
    check_masks(x_1, valid, "valid")
    check_masks(x_1, given, "given")
    losses, accuracies, counts = {}, {}, {}
    for name, target in x_1.items():
        if x_t[name].shape != target.shape:
            raise ValueError(f"x_t['{name}'] has shape {tuple(x_t[name].shape)}, expected {tuple(target.shape)}")
        learnt = counted(name, target, valid, given)
        corrupted = learnt & (x_t[name] != target)
        if path.source is Source.MASK:
            learnt = corrupted
        # Only what counts goes through the softmax: padding gets no gradient, and large vocabularies cost less.
        chosen = logits[name][learnt].float()
        target = target[learnt]
        nats = nn.functional.cross_entropy(chosen, target, reduction="none")
        counts[name] = learnt.sum()
        if weights is not None and name in weights:
            weight = weights[name].expand_as(learnt)[learnt]
            losses[name] = (nats * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        else:
            losses[name] = nats.sum() / counts[name].clamp(min=1)
        with torch.no_grad():
            right = (chosen.argmax(-1) == target) & corrupted[learnt]
            accuracies[name] = right.sum() / corrupted.sum().clamp(min=1)
    total = torch.stack(list(losses.values())).sum()
    return Denoising(total, losses, accuracies, counts)


def entropy(logits: Tensor, valid: Tensor | None = None) -> Tensor:
    """Mean entropy, in nats per valid token, of the distributions in `logits` [..., S]."""
    chosen = logits.float() if valid is None else logits[valid].float()
    log_p = chosen.log_softmax(-1)
    # exp(−inf) · −inf is NaN, though a token of probability zero adds nothing.
    nats = -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)
    return nats.sum() / max(nats.numel(), 1)


class EntropyBound(nn.Module):
    """The lower bound beta on entropy, kept by a learnt multiplier lambda ≥ 0 (Algorithm 1, lines 6 to 9).

    Add `penalty(entropy)` to the loss, step the network, then `update(entropy)`: lambda rises while the entropy is
    below beta and falls, to zero at the lowest, while it is above. It is a buffer, so it is saved with the model.
    """

    multiplier: Tensor

    def __init__(self, beta: float, learning_rate: float = 1e-2) -> None:
        super().__init__()
        if beta < 0:
            raise ValueError(f"the entropy bound is {beta}, expected at least 0 nats")
        if learning_rate <= 0:
            raise ValueError(f"the multiplier's learning rate is {learning_rate}, expected more than 0")
        self.beta = beta
        self.learning_rate = learning_rate
        self.register_buffer("multiplier", torch.zeros(()))

    def penalty(self, entropy: Tensor) -> Tensor:
        return -self.multiplier * entropy

    @torch.no_grad()
    def update(self, entropy: Tensor) -> None:
        step = self.learning_rate * (entropy.detach().to(self.multiplier) - self.beta)
        self.multiplier.copy_((self.multiplier - step).clamp(min=0.0))


def plan_energy(
    logits: Mapping[str, Tensor],
    x: Tokens,
    streams: Sequence[str],
    rows: int,
    valid: Masks | None = None,
    given: Masks | None = None,
) -> Tensor:
    """The paper's energy, [*batch]: −Σ_k log p(x_k | all noise, o), over the `streams` named (the paper: actions).

    `logits` are the network's answer to pure noise at t = 0; `rows` is the number of batch axes.
    """
    energy: Tensor | None = None
    for name in streams:
        nats = -token_log_probs(name, logits[name], x[name])
        nats = torch.where(counted(name, x[name], valid, given), nats, 0.0)
        energy = per_row(nats, rows) if energy is None else energy + per_row(nats, rows)
    if energy is None:
        raise ValueError("an energy needs at least 1 stream, found 0")
    return energy


def pseudo_energy(
    path: Path,
    logits: Logits,
    x: Tokens,
    streams: Sequence[str],
    rows: int,
    valid: Masks | None = None,
    given: Masks | None = None,
) -> Tensor:
    """LEAP's pseudo-energy, [*batch]: −Σ_k log p(x_k | every other token), one network call per position.

    The network is told t = 1 − 1/N for a plan of N tokens: the time at which one token in N is still masked.
    """
    if path.source is not Source.MASK:
        raise ValueError(
            f"the pseudo-energy hides one token at a time and needs the mask source, found '{path.source}'"
        )
    check_tokens(path.sizes, x)
    check_masks(x, valid, "valid")
    check_masks(x, given, "given")
    any_stream = next(iter(x.values()))
    batch = any_stream.shape[:rows]
    num_tokens = sum(tokens.shape[rows:].numel() for tokens in x.values())
    t = torch.full(batch, path.schedule.time(1 - 1 / num_tokens), device=any_stream.device)
    energy = torch.zeros(batch, device=any_stream.device)
    for name in streams:
        counts = counted(name, x[name], valid, given).flatten(rows)
        for position in range(counts.shape[-1]):
            hidden = x[name].flatten(rows).clone()
            hidden[..., position] = path.mask_token(name)
            answer = logits({**x, name: hidden.reshape(x[name].shape)}, t)
            check_logits(path.sizes, answer, x)
            log_p = token_log_probs(name, answer[name], x[name]).flatten(rows)[..., position]
            energy = energy - torch.where(counts[..., position], log_p, 0.0)
    return energy


def token_log_probs(name: str, logits: Tensor, x: Tensor) -> Tensor:
    """log p(x) under `logits` [..., S], at least in float32; [...]."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    normaliser = logits.logsumexp(-1)
    check_finite(name, normaliser)
    return logits.gather(-1, x[..., None]).squeeze(-1) - normaliser
