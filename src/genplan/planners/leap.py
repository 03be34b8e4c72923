"""LEAP: plan by lowering the energy of a sequence of actions, bit by bit (Chen et al., 2023).

A masked language model of actions tells p(a_k | all other actions, what is seen); the energy of a plan is its
negative pseudo-likelihood, −Σ_k log p(a_k | the others); planning is a Metropolis walk over plans whose proposals
come from the model and whose temperature falls to zero.

Details
- The network is GenPlan's, asked about actions only: the states to come are never shown, the goals are told by the
  simulator (`oracle`) as in the GenPlan paper, or not at all (`goals` False: LEAP⊖GC). Encoder and memory are the
  same.
- Training: per window, a share of the actions drawn uniformly from 0 to 1 is masked (at least one, an eighth of the
  windows wholly), and the loss is their cross-entropy. The original masks one action at a time and sums over all.
- Planning: the first plan is drawn with everything masked. Each of the `iterations` draws one action anew from p(a_k
  | the others), at a position chosen at random, and keeps it if the energy of the whole plan does not rise, or with
  chance exp(−rise / temperature). At temperature 0 the energy never rises. The plan of least energy met is kept.
- LEAP⊕H holds the entropy of actions under the all-masked plan above `entropy_bound`, as GenPlan does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from genplan.config import LEAPConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
from genplan.flow import EntropyBound, Rng, entropy
from genplan.models.denoiser import Denoiser
from genplan.models.encoder import Context, Encoder
from genplan.planners.learned import Learned, Losses, Memory, told_goals
from genplan.types import Observations, Oracle, Plan

Conditionals = Callable[[Tensor], Tensor]
"""Plans [B, H] -> log p(· | the other actions) for each position, [B, H, actions]."""


class Leap(Learned):
    config: LEAPConfig

    def __init__(self, spec: PlanSpec, config: LEAPConfig) -> None:
        super().__init__(spec, config)
        self.needs_oracle = config.goals
        sizes = (config.width, config.heads, config.layers, config.horizon, config.context, config.dropout)
        self.encoder = Encoder(spec, config)
        self.denoiser = Denoiser(spec, *sizes, config.trail)
        self.bound = EntropyBound(config.entropy_bound)

    def network(
        self, context: Context, features: Tensor | None, past: Past, per_map: int, state: Tensor, goals: Tensor | None
    ) -> Callable[[Tensor], Tensor]:
        """Masked actions [B, H] -> logits [B, H, actions]. State [B] and goals [B, G] are of the current step."""
        known = self.denoiser.know(context, features, past, per_map)
        batch, horizon = len(state), self.config.horizon
        states = torch.full((batch, horizon), self.spec.num_states, device=state.device)
        states[:, 0] = state
        streams = {"states": states}
        if self.spec.num_goals:
            hidden = torch.full((batch, self.spec.num_goals), self.spec.goal_size, device=state.device)
            streams["goals"] = (hidden if goals is None else goals)[:, None].expand(-1, horizon, -1)
        t = torch.zeros(batch, device=state.device)

        def logits(actions: Tensor) -> Tensor:
            return self.denoiser({**streams, "actions": actions}, t, known)["actions"]  # type: ignore[no-any-return]

        return logits

    def loss(self, batch: PlanBatch, rng: Rng) -> Losses:
        size, number = len(batch), batch.num_maps
        rows = rng.fold(torch.arange(size, device=batch.map_row.device))
        actions, valid = batch.x_1["actions"], batch.valid["actions"]
        wholly = rows.fold("wholly").uniform() < 0.125
        share = torch.where(wholly, 1.0, rows.fold("share").uniform())[:, None]
        u = rows.fold("masked").uniform(actions.shape[1:])
        # Behind the end of an episode everything is masked, as it is there when a plan is begun.
        masked = (u <= share) | (u == u.amin(-1, keepdim=True)) | ~valid
        context = self.encoder(batch.map, batch.mission, number)
        goals = batch.x_1["goals"][:, 0] if self.config.goals else None
        past = self.tried_in_vain(batch, rows)
        network = self.network(context, batch.features, past, size // number, batch.x_1["states"][:, 0], goals)
        logits = network(torch.where(masked, self.spec.num_actions, actions))
        counts = masked & valid
        nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), actions.flatten(), reduction="none")
        learnt = (nats * counts.flatten()).sum() / counts.sum().clamp(min=1)
        right = ((logits.argmax(-1) == actions) & counts).sum() / counts.sum().clamp(min=1)
        curious = entropy(logits, valid & wholly[:, None])
        metrics = {"loss/actions": learnt, "right/actions": right, "entropy": curious}
        total = learnt
        if self.config.entropy_bound > 0:
            total = total + self.bound.penalty(curious)
            metrics["multiplier"] = self.bound.multiplier
            if self.training:
                self.bound.update(curious)
        return Losses(total, {name: value.detach() for name, value in metrics.items()})

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        config, horizon = self.config, self.config.horizon
        goals = told_goals(self.spec, oracle, rows) if config.goals else None
        each = torch.arange(len(rows)).repeat_interleave(
            horizon
        )  # a row's plan, with each of its actions masked in turn
        context, past = self.recall(observations, memory, rows, horizon)
        features = None if observations.features is None else observations.features[each]
        logits = self.network(
            context, features, past, horizon, observations.state[each], None if goals is None else goals[each]
        )
        diagonal = torch.eye(horizon, dtype=torch.bool).repeat(len(rows), 1)

        def conditionals(actions: Tensor) -> Tensor:
            answer = logits(torch.where(diagonal, self.spec.num_actions, actions[each]))
            own = answer.reshape(len(rows), horizon, horizon, -1).diagonal(dim1=1, dim2=2)  # [B, actions, H]
            return own.transpose(1, 2).log_softmax(-1)

        nothing = torch.full((len(each), horizon), self.spec.num_actions)
        at_first = logits(nothing)[::horizon].log_softmax(-1)
        actions = rng.fold("first").categorical(sharpened(at_first, config.temperature))
        found = descend(actions, conditionals, rng, config.iterations, config.temperature)
        return found, memory


def descend(actions: Tensor, conditionals: Conditionals, rng: Rng, iterations: int, temperature: float) -> Plan:
    """The Metropolis walk from `actions` [B, H]; the plan of least pseudo-energy met."""
    batch, horizon = actions.shape
    row = torch.arange(batch)
    log_p = conditionals(actions)
    energy = pseudo_energy(log_p, actions)
    best, least, sure = actions, energy, log_p
    for number in range(iterations):
        heat = temperature * (1 - number / iterations)
        chance = rng.fold("step", number)
        position = chance.fold("position").integers(horizon)
        proposed = actions.clone()
        proposed[row, position] = chance.categorical(sharpened(log_p[row, position], heat))
        next_log_p = conditionals(proposed)
        next_energy = pseudo_energy(next_log_p, proposed)
        rise = next_energy - energy
        bold = torch.exp(-rise / heat) if heat > 0 else torch.zeros_like(rise)
        taken = (rise <= 0) | (chance.fold("accept").uniform() < bold)
        actions = torch.where(taken[:, None], proposed, actions)
        log_p = torch.where(taken[:, None, None], next_log_p, log_p)
        energy = torch.where(taken, next_energy, energy)
        better = energy < least
        best = torch.where(better[:, None], actions, best)
        sure = torch.where(better[:, None, None], log_p, sure)
        least = torch.where(better, energy, least)
    confidence = sure.gather(-1, best[..., None]).squeeze(-1).exp()
    return Plan(actions=best, energy=least, confidence=confidence)


def pseudo_energy(log_p: Tensor, actions: Tensor) -> Tensor:
    """−Σ_k log p(a_k | the others), [B], of conditionals [B, H, actions]."""
    return -log_p.gather(-1, actions[..., None]).squeeze(-1).sum(-1)


def sharpened(log_p: Tensor, temperature: float) -> Tensor:
    if temperature <= 0:
        return torch.nn.functional.one_hot(log_p.argmax(-1), log_p.shape[-1]).to(log_p.dtype)
    return (log_p / temperature).softmax(-1)
