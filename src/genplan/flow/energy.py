"""The denoising loss, the entropy bound, and the energy of a plan.

Everything is per token and in nats. `valid` marks positions inside an episode; what is not valid carries no loss, no
gradient, no entropy and no energy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.flow.path import ProbPath, Source
from genplan.flow.tokens import Masks, Tokens, check_finite, check_logits, check_masks, check_tokens, mask_of, sum_event


@dataclass(frozen=True)
class DenoisingLoss:
    """The denoising loss of a batch: its total, and the mean loss and the accuracy of each stream."""

    total: Tensor  # scalar, the sum over streams
    losses: Mapping[str, Tensor]  # scalar per stream: mean nats per position of the loss
    accuracies: Mapping[str, Tensor]  # scalar per stream: correct fraction of the *corrupted* positions


def denoising_loss(
    path: ProbPath, logits: Mapping[str, Tensor], x_1: Tokens, x_t: Tokens, valid: Masks | None = None,
    given: Masks | None = None, weights: Mapping[str, Tensor] | None = None,
) -> DenoisingLoss:  # fmt: skip
    """−log p(x_1 | x_t), averaged over the positions of the loss (the paper's equation `general_loss`).

    weights  of positions in the average, as tensors that broadcast to x_1; a stream may be left out

    Mask: the masked positions. Uniform: *all* valid positions that are not given, since the posterior must also learn
    "this token is already correct": a network trained on corrupted positions alone never keeps what it should.
    """
    check_tokens(path.sizes, x_1)
    check_tokens(path.sizes, x_t, num_special=path.num_special)
    check_logits(path.sizes, logits, x_1)
    check_masks(x_1, valid=valid, given=given)
    losses, accuracies = {}, {}
    for name, target in x_1.items():
        if x_t[name].shape != target.shape:
            raise ValueError(f"x_t['{name}'] has shape {tuple(x_t[name].shape)}, expected {tuple(target.shape)}")
        mask = _loss_mask(name, target, valid, given)
        corrupted = mask & (x_t[name] != target)
        if path.source is Source.MASK:
            mask = corrupted
        # Only the loss's positions go through the softmax: padding gets no gradient, large vocabularies cost less.
        selected, target = logits[name][mask].float(), target[mask]
        nll = nn.functional.cross_entropy(selected, target, reduction="none")
        if weights is not None and name in weights:
            weight = weights[name].expand_as(mask)[mask]
            losses[name] = (nll * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        else:
            losses[name] = nll.sum() / mask.sum().clamp(min=1)
        with torch.no_grad():
            correct = (selected.argmax(-1) == target) & corrupted[mask]
            accuracies[name] = correct.sum() / corrupted.sum().clamp(min=1)
    return DenoisingLoss(torch.stack(list(losses.values())).sum(), losses, accuracies)


def _loss_mask(name: str, x: Tensor, valid: Masks | None, given: Masks | None) -> Tensor:
    """Positions that count in losses and energies: valid, and not given."""
    return mask_of(valid, name, x, True) & ~mask_of(given, name, x, False)


def entropy(logits: Tensor, valid: Tensor | None = None) -> Tensor:
    """Mean entropy, in nats per valid token, of the distributions in `logits` [..., S]."""
    selected = logits.float() if valid is None else logits[valid].float()
    log_p = selected.log_softmax(-1)
    # exp(−inf) · −inf is NaN, though a token of probability zero adds nothing.
    nats = -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)
    return nats.sum() / max(nats.numel(), 1)


class EntropyBound(nn.Module):
    """The lower bound beta on entropy, kept by a learned multiplier lambda ≥ 0 (Algorithm 1, lines 6 to 9).

    Add `penalty(entropy)` to the loss, step the network, then `update(entropy)`: lambda rises while the entropy is
    below beta and falls, to zero at the lowest, while it is above. It is a buffer, so it is saved with the model.

    beta  None: found in training. The demonstrations' own entropy is at most what held-out ones cost a model, their
          negative log-likelihood; the lowest that was `observed`, times SHARE, is the bound. A model that is surer than
          that of what it was trained on has learnt demonstrations by heart.
    """

    SHARE = 0.9  # a moving average of the weights is evaluated, which lags behind
    multiplier: Tensor
    beta: Tensor

    def __init__(
        self, beta: float | None, learning_rate: float = 1e-2, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        if beta is not None and beta < 0:
            raise ValueError(f"the entropy bound is {beta}, expected at least 0 nats")
        if learning_rate <= 0:
            raise ValueError(f"the multiplier's learning rate is {learning_rate}, expected more than 0")
        self.learning_rate, self.is_found, self.is_on = learning_rate, beta is None, beta != 0
        self.register_buffer("multiplier", torch.zeros((), device=device))
        # A hand-set bound is no weight; one that was found must be there when a training is resumed.
        self.register_buffer("beta", torch.tensor(beta or 0.0, device=device), persistent=beta is None)

    @torch.no_grad()
    def observe(self, nll: float) -> None:
        """What held-out demonstrations cost, in nats per token at pure noise."""
        if self.is_found:
            found = self.SHARE * nll
            self.beta.fill_(min(found, self.beta.item()) if self.beta else found)

    def penalty(self, entropy: Tensor) -> Tensor:
        return -self.multiplier * entropy

    @torch.no_grad()
    def update(self, entropy: Tensor) -> None:
        step = self.learning_rate * (entropy.detach().to(self.multiplier) - self.beta)
        self.multiplier.copy_((self.multiplier - step).clamp(min=0.0))


def plan_energy(
    logits: Mapping[str, Tensor], x: Tokens, streams: Sequence[str], batch_ndim: int, valid: Masks | None = None,
    given: Masks | None = None,
) -> Tensor:  # fmt: skip
    """The paper's energy, [*batch]: −Σ_k log p(x_k | all noise, o), over the `streams` named (the paper: actions).

    `logits` are the network's at pure noise and t = 0, normalized or not; `batch_ndim` is the number of batch axes.
    """
    if not streams:
        raise ValueError("an energy needs at least 1 stream, found 0")
    energies = []
    for name in streams:
        wide = logits[name] if logits[name].dtype == torch.float64 else logits[name].float()
        normalizer = wide.logsumexp(-1)
        check_finite(name, normalizer)
        nll = -(wide.gather(-1, x[name][..., None]).squeeze(-1) - normalizer)
        energies.append(sum_event(torch.where(_loss_mask(name, x[name], valid, given), nll, 0.0), batch_ndim))
    return sum(energies[1:], energies[0])
