"""LEAP: plan by lowering the energy of a sequence of actions, bit by bit (Chen et al., 2023).

A masked language model of actions tells p(a_k | all other actions, what is seen); the energy of a plan is its
negative pseudo-likelihood, −Σ_k log p(a_k | the others); planning is a Metropolis walk over plans whose proposals
come from the model and whose temperature falls to zero.

Details, and where it differs from its paper
- The network is GenPlan's, asked about actions only: the states to come are never shown, the goals are told by the
  simulator (`oracle`) as in the GenPlan paper, or not at all (`goals` False: LEAP⊖GC). Encoder and memory are the
  same, but that the last step is not read in the training world of the adaptive rows, where it harms (docs/log.md).
- Behind an episode's last action stands END, a token that is learnt and planned like an action: a plan of fixed length
  can then say that it is over sooner, and its energy counts nothing that was never learnt. No plan begins with it.
- Training: per window, a share of the tokens drawn uniformly from 0 to 1 is masked (at least one; a `noise_share` of
  the windows wholly), and the loss is their cross-entropy, in which near actions count more
  (`nearness`), as in GenPlan. The original masks one action at a time and sums over all; that is here too
  (`single_share`), and worse (docs/log.md).
- Ten actions are planned in all rows, as by GenPlan here (the GenPlan paper: up to 30), with that paper's iterations of
  each row.
- Planning: the first plan is drawn with everything masked. Each of the `iterations` draws one action anew from p(a_k
  | the others), at a position chosen at random, and keeps it if the energy of the whole plan does not rise, or with
  chance exp(−rise / temperature). At temperature 0 the energy never rises. The plan of least energy met is kept.
  The test before a draw is kept is ours: Gibbs sampling keeps every draw. It costs the conditionals of the whole plan
  after every draw that changes it, ten plans for one; a draw that repeats what stands there costs nothing. One action
  is executed per plan, as by all planners here; the paper executes whole plans.
- LEAP⊕H holds the entropy of actions under the all-masked plan above `entropy_bound`, as GenPlan does; it is told no
  goals, as in the GenPlan paper's table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from genplan.config import LEAPConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
from genplan.flow import EntropyBound, Rng, entropy, sharpen
from genplan.models.denoiser import Denoiser
from genplan.models.encoder import Context, Encoder
from genplan.planners.learned import Learned, Losses, Memory, near, told_goals
from genplan.types import Observations, Oracle, Plan

Conditionals = Callable[[Tensor, Tensor], Tensor]
"""Plans [n, H] of n rows, and which rows [n] -> log p(· | the other actions) for each position, [n, H, actions + 1]."""


class Leap(Learned):
    config: LEAPConfig

    def __init__(self, spec: PlanSpec, config: LEAPConfig) -> None:
        super().__init__(spec, config)
        self.needs_oracle = config.goals
        self.end = spec.num_actions
        self.mask = self.end + 1
        sizes = (config.width, config.heads, config.layers, config.horizon, config.context, config.dropout)
        self.encoder = Encoder(spec, config)
        with_end = dataclasses.replace(spec, num_actions=spec.num_actions + 1, mirrored_actions=())
        self.denoiser = Denoiser(with_end, *sizes, config.trail)
        self.bound = EntropyBound(config.entropy_bound)

    def network(
        self, context: Context, features: Tensor | None, past: Past, per_map: int, state: Tensor, goals: Tensor | None
    ) -> Callable[..., Tensor]:
        """Masked plans [B, H] -> logits [B, H, actions + 1]. State [B] and goals [B, G] are of the current step.

        With `rows` [n], of several plans in turn for each of them: [n · copies, H]; with `only` [n · copies], of that
        step of each alone, [n · copies, 1, actions + 1].
        """
        if past.tried is not None:
            past = past._replace(tried=functional.pad(past.tried, (0, 1)))
        known = self.denoiser.know(context, features, past, per_map)
        batch, horizon = len(state), self.config.horizon
        states = torch.full((batch, horizon), self.spec.num_states, device=state.device)
        states[:, 0] = state
        streams = {"states": states}
        if self.spec.num_goals:
            hidden = torch.full((batch, self.spec.num_goals), self.spec.goal_size, device=state.device)
            streams["goals"] = (hidden if goals is None else goals)[:, None].expand(-1, horizon, -1)

        def logits(actions: Tensor, rows: Tensor | None = None, only: Tensor | None = None) -> Tensor:
            part, shown = known, streams
            if rows is not None:
                copies = len(actions) // len(rows)
                each = rows.repeat_interleave(copies)
                part, shown = known.part(rows, copies), {name: tokens[each] for name, tokens in streams.items()}
            t = torch.zeros(len(actions), device=actions.device)
            answer: Tensor = self.denoiser({**shown, "actions": actions}, t, part, False, only)["actions"]
            return answer

        return logits

    def loss(self, batch: PlanBatch, rng: Rng) -> Losses:
        size, number = len(batch), batch.num_maps
        rows = rng.fold(torch.arange(size, device=batch.map_row.device))
        valid = batch.valid["actions"]
        actions = torch.where(valid, batch.x_1["actions"], self.end)
        wholly = rows.fold("wholly").uniform() < self.config.noise_share
        share = torch.where(wholly, 1.0, rows.fold("share").uniform())[:, None]
        u = rows.fold("masked").uniform(actions.shape[1:])
        single = (~wholly & (rows.fold("single").uniform() < self.config.single_share))[:, None]
        masked = (u == u.amin(-1, keepdim=True)) | ((u <= share) & ~single)
        context = self.encoder(batch.map, batch.mission, number)
        goals = batch.x_1["goals"][:, 0] if self.config.goals else None
        past = self.tried_in_vain(batch, rows)
        network = self.network(context, batch.features, past, size // number, batch.x_1["states"][:, 0], goals)
        logits = network(torch.where(masked, self.mask, actions))
        ahead = torch.arange(1, actions.shape[1] + 1, device=actions.device)
        # One of them stands for all: the original sums over each being masked in turn.
        weight = (near(self.config.nearness, ahead) * torch.where(single, len(ahead), 1))[masked]
        nats = functional.cross_entropy(logits[masked], actions[masked], reduction="none")
        learnt = (nats * weight).sum() / weight.sum()
        counts = masked & valid
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
        context, past = self.recall(observations, memory, rows)
        logits = self.network(context, observations.features, past, 1, observations.state, goals)
        in_turn = torch.eye(horizon, dtype=torch.bool)

        def conditionals(actions: Tensor, which: Tensor) -> Tensor:
            """Each plan with each of its actions masked in turn."""
            plans = torch.where(in_turn, self.mask, actions[:, None])  # [n, H, H]
            masked = torch.arange(horizon).repeat(len(actions))
            return self._begun(logits(plans.flatten(0, 1), which, masked).reshape(-1, horizon, self.mask))

        nothing = torch.full((len(rows), horizon), self.mask)
        actions = rng.fold("first").categorical(sharpen(self._begun(logits(nothing)), config.temperature))
        urge = self.urge(observations, memory, rng, rows)
        if urge is not None:
            actions[:, 0] = torch.where(urge >= 0, urge, actions[:, 0])
        urged = None if urge is None else urge >= 0
        found = descend(actions, conditionals, rng, config.iterations, config.temperature, urged)
        # Behind its end there is nothing to be done: what stands there is an action only to be a number.
        return dataclasses.replace(found, actions=found.actions.masked_fill(found.actions == self.end, 0)), memory

    def _begun(self, logits: Tensor) -> Tensor:
        """log p of logits [n, H, actions + 1], where nothing is over before it began."""
        logits = logits.clone()
        logits[:, 0, self.end] = -torch.inf
        return logits.log_softmax(-1)


def descend(
    actions: Tensor, conditionals: Conditionals, rng: Rng, iterations: int, temperature: float,
    begun: Tensor | None = None, tell: Callable[[Tensor, Tensor], None] = lambda actions, energy: None,
) -> Plan:  # fmt: skip
    """The Metropolis walk from `actions` [B, H]; the plan of least pseudo-energy met.

    begun  bool [B]: where the first action stays as it is
    tell   is told where the walk is after each step: actions [B, H] and their energy [B]
    """
    batch, horizon = actions.shape
    row = torch.arange(batch)
    log_p = conditionals(actions, row)
    energy = pseudo_energy(log_p, actions)
    best, least, sure = actions, energy, log_p
    for number in range(iterations):
        heat = temperature * (1 - number / iterations)
        chance = rng.fold("step", number)
        position = chance.fold("position").integers(horizon)
        proposed = actions.clone()
        drawn = chance.categorical(sharpen(log_p[row, position], heat))
        if begun is not None:
            drawn = torch.where(begun & (position == 0), actions[:, 0], drawn)
        proposed[row, position] = drawn
        other = (proposed != actions).any(-1).nonzero().squeeze(-1)
        next_log_p = log_p.clone()
        if len(other):
            next_log_p[other] = conditionals(proposed[other], other)
        next_energy = pseudo_energy(next_log_p, proposed)
        rise = next_energy - energy
        bold = torch.exp(-rise / heat) if heat > 0 else torch.zeros_like(rise)
        taken = (rise <= 0) | (chance.fold("accept").uniform() < bold)
        actions = torch.where(taken[:, None], proposed, actions)
        log_p = torch.where(taken[:, None, None], next_log_p, log_p)
        energy = torch.where(taken, next_energy, energy)
        tell(actions, energy)
        better = energy < least
        best = torch.where(better[:, None], actions, best)
        sure = torch.where(better[:, None, None], log_p, sure)
        least = torch.where(better, energy, least)
    confidence = sure.gather(-1, best[..., None]).squeeze(-1).exp()
    return Plan(actions=best, energy=least, confidence=confidence)


def pseudo_energy(log_p: Tensor, actions: Tensor) -> Tensor:
    """−Σ_k log p(a_k | the others), [B], of conditionals [B, H, actions]."""
    return -log_p.gather(-1, actions[..., None]).squeeze(-1).sum(-1)
