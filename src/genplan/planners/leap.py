"""LEAP: plan by lowering the energy of a sequence of actions step by step (Chen et al., 2023).

A masked language model of actions gives p(a_k | all other actions, observations); the energy of a plan is its negative
pseudo-likelihood, −Σ_k log p(a_k | the others); planning is a Metropolis chain over plans whose proposals come from the
model and whose temperature falls to zero.

Details, and where it differs from its paper
- The network, encoder and memory are GenPlan's, asked about actions only: future states are never shown, the goals come
  from the simulator (`oracle`) as in the GenPlan paper, or not at all (`privileged_goals` False: LEAP⊖GC). The last
  step is not read in the training task of the adaptive rows, where it harms (docs/log.md).
- Behind an episode's last action stands END, a token that is learnt and planned like an action: a plan of fixed length
  can then say that it is over sooner, and its energy counts nothing that was never learnt. No plan begins with it.
- Training: per window, a share of the tokens drawn uniformly from 0 to 1 is masked (at least one; with
  `full_noise_prob` all), and the loss is their cross-entropy, in which near actions count more (`horizon_discount`), as
  in GenPlan. The original masks one action at a time and sums over all; that is here too (`single_mask_prob`), and
  worse (docs/log.md).
- Ten actions are planned in all rows, as by GenPlan here (the GenPlan paper: up to 30), with that paper's iterations of
  each row.
- Planning: the first plan is drawn with everything masked. Each of the `iterations` draws one token anew from p(a_k |
  the others), at a position chosen at random, and keeps it if the energy of the whole plan does not rise, or with
  probability exp(−rise / temperature). At temperature 0 the energy never rises. The plan of least energy met is kept.
  The test before a draw is kept is ours: Gibbs sampling keeps every draw. It costs the conditionals of the whole plan
  after every draw that changes it; a draw that repeats what stands there costs nothing. One action is executed per
  plan, as by all planners here; the paper executes whole plans.
- LEAP⊖GC⊕S (`step_model`) plans as above, and what it found is then made to hold: a chain (chain.py) is drawn by the
  conditionals p(a_k | the others) of that plan and by GenPlan's model of one step, which is learnt before and adapts in
  the episode (adaptation.py). What a conditional gives to END, all actions share. Chance is in the first plan alone.
  States are those of the chain; the energy is that of its actions by the same conditionals.
- LEAP⊕H holds the entropy of actions under the all-masked plan above `entropy_bound`, as GenPlan does; it gets no
  goals, as in the GenPlan paper's table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from genplan.errors import UserError
from genplan.flow import EntropyBound, Rng, apply_temperature, entropy
from genplan.models.encoders import Encoding, SceneEncoder
from genplan.models.sequence import make_denoiser
from genplan.models.settings import CodecConfig, MemoryConfig, NetworkConfig, at_least, probability
from genplan.planners.base import distance_weights
from genplan.planners.chain import OPTIONS, ChainConfig
from genplan.planners.chained import ChainPlanner, required_step_model
from genplan.planners.memory import PlannerMemory
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Plan

Conditionals = Callable[[Tensor, Tensor], Tensor]
"""Plans [n, N] of n rows, and which rows [n] -> log p(· | the other tokens) for each position, [n, N, S + 1]."""

# Labels of random draws, part of every result: never renamed.
RNG_ALL, RNG_SHARE, RNG_MASKED, RNG_SINGLE = "wholly", "share", "masked", "single"


@dataclass(frozen=True)
class LEAPConfig:
    """Of LEAP; without `privileged_goals` LEAP⊖GC, with an entropy bound LEAP⊕H, with `step_model` LEAP⊖GC⊕S."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    horizon: int = 10
    action_steps: int = 1  # actions executed of each plan
    subgoal_types: tuple[str, ...] = ("target",)
    privileged_goals: bool = True  # from the simulator
    full_noise_prob: float = 0.5  # of training windows with all actions masked, as every plan starts
    single_mask_prob: float = 0.0  # of the others: with one action masked, as in its paper
    horizon_discount: float = 1.0  # a step n ahead counts n ** −horizon_discount in the loss
    entropy_bound: float = 0.0
    iterations: int = 10
    temperature: float = 0.5
    step_model: bool = False
    chain: ChainConfig = field(default_factory=ChainConfig)  # with the step model; no states or costs are predicted

    def __post_init__(self) -> None:
        at_least(self, 1, "horizon", "action_steps", "iterations", most=4096)
        at_least(self, 2 if self.step_model else 1, "horizon")
        at_least(self, 0, "horizon_discount", "entropy_bound", "temperature")
        probability(self, "full_noise_prob")
        if self.action_steps > self.horizon:
            raise UserError(f"action_steps is {self.action_steps}, expected at most the horizon, {self.horizon}")
        if not 0 <= self.single_mask_prob <= 1:
            raise UserError(f"single_mask_prob is {self.single_mask_prob}, expected 0 to 1")
        if self.entropy_bound and not self.full_noise_prob:
            raise UserError("full_noise_prob is 0, expected more: the entropy bound is held in windows wholly masked")


class Leap(ChainPlanner):
    Config = LEAPConfig
    config: LEAPConfig
    options = (*ChainPlanner.options, *OPTIONS)
    variants = ("privileged_goals", "step_model")

    def __init__(self, spec: PlanSpec, config: LEAPConfig) -> None:
        super().__init__(spec, config)
        self.end = self.codec.stream.size
        self.mask = self.end + 1
        self.encoder = SceneEncoder(spec, config.network)
        self.denoiser = make_denoiser(spec, config.network, config.memory, config.horizon, self.codec, num_extra=1)
        self.size_free = bool(self.denoiser.size_free)
        self.bound = EntropyBound(config.entropy_bound)
        self.step_model = required_step_model(spec) if config.step_model else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the action tokens of a plan."""
        return (self.config.horizon // self.codec.chunk, *self.codec.stream.shape)

    def network(
        self, encoding: Encoding, current: Observations, history: History, copies: int, goals: Tensor | None
    ) -> Callable[..., Tensor]:
        """Masked plans [B, N] -> logits [B, N, S + 1]. Goals [B, G] are of the current step.

        With `ids` [n], of several plans in turn for each of them: [n · copies, N]; with `query` [n · copies], of that
        token of each alone, [n · copies, 1, S + 1].
        """
        if history.action_counts is not None and self.size_free:
            history = history._replace(action_counts=functional.pad(history.action_counts, (0, 1)))
        prepared = self.denoiser.prepare(encoding, current, history, copies)
        batch, horizon, spec = len(history.valid), self.config.horizon, self.spec
        streams = {
            name: torch.full((batch, horizon, *stream.shape), stream.size, device=self.device)
            for name, stream in spec.streams.items()
        }
        if spec.state_field is not None:
            streams["states"][:, 0] = current[spec.state_field]
        if goals is not None:
            streams["goals"] = goals[:, None].expand(-1, horizon, -1)

        def logits(tokens: Tensor, ids: Tensor | None = None, query: Tensor | None = None) -> Tensor:
            part, shown = prepared, streams
            if ids is not None:
                number = len(tokens) // len(ids)
                rows = ids.repeat_interleave(number)
                part, shown = prepared.part(ids, number), {name: x[rows] for name, x in streams.items()}
            t = torch.zeros(len(tokens), device=tokens.device)
            x_t = {**shown, "actions": tokens.reshape(-1, *self.shape)}
            answer: Tensor = self.denoiser(x_t, t, part, actions_only=True, query_step=query)["actions"]
            return answer if query is not None else answer.flatten(1, -2)

        return logits

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        if batch.spec != self.spec:  # of several tasks that are trained together, another
            return self.for_spec(batch.spec).loss(batch, rng)
        rows = rng.fold(torch.arange(len(batch), device=batch.actions.device))
        tokens, valid = (part.flatten(1) for part in self.action_tokens(batch))
        tokens = torch.where(valid, tokens, self.end)
        all_masked = rows.fold(RNG_ALL).uniform() < self.config.full_noise_prob
        share = torch.where(all_masked, 1.0, rows.fold(RNG_SHARE).uniform())[:, None]
        u = rows.fold(RNG_MASKED).uniform(tokens.shape[1:])
        single = (~all_masked & (rows.fold(RNG_SINGLE).uniform() < self.config.single_mask_prob))[:, None]
        masked = (u == u.amin(-1, keepdim=True)) | ((u <= share) & ~single)
        encoding = self.encoder(batch.scene, batch.num_scenes)
        goals = batch.tokens["goals"][:, 0] if self.privileged else None
        history = self.with_failed_actions(batch, rows)
        network = self.network(encoding, batch.current, history, batch.windows_per_scene, goals)
        logits = network(torch.where(masked, self.mask, tokens))
        step = torch.arange(self.shape[0], device=tokens.device).repeat_interleave(math.prod(self.shape[1:]))
        discount = distance_weights(self.config.horizon_discount, step * self.codec.chunk + 1)
        # One of them stands for all: the original sums over each being masked in turn.
        weight = (discount * torch.where(single, len(step), 1))[masked]
        nll = functional.cross_entropy(logits[masked], tokens[masked], reduction="none")
        loss = (nll * weight).sum() / weight.sum()
        counts = masked & valid
        correct = ((logits.argmax(-1) == tokens) & counts).sum() / counts.sum().clamp(min=1)
        nats = entropy(logits, valid & all_masked[:, None])
        metrics, total = {"loss/actions": loss, "accuracy/actions": correct, "entropy": nats}, loss
        if self.config.entropy_bound > 0:
            total = total + self.bound.penalty(nats)
            metrics["entropy_multiplier"] = self.bound.multiplier.clone()
        return Losses(total, {name: value.detach() for name, value in metrics.items()})

    def after_step(self, losses: Losses) -> None:
        if self.config.entropy_bound > 0:
            self.bound.update(losses.metrics["entropy"])

    def make_plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, goals: Tensor | None,
        keep_trace: bool,
    ) -> Plan:  # fmt: skip
        config, length = self.config, math.prod(self.shape)
        encoding, history = self.conditioning(observations, memory, ids)
        logits = self.network(encoding, observations.only(self.spec.step_fields), history, 1, goals)
        in_turn = torch.eye(length, dtype=torch.bool, device=self.device)

        def conditionals(tokens: Tensor, which: Tensor) -> Tensor:
            """Each plan with each of its tokens masked in turn."""
            plans = torch.where(in_turn, self.mask, tokens[:, None])  # [n, N, N]
            query = torch.arange(length, device=tokens.device).repeat(len(tokens))
            return self._forbid_leading_end(logits(plans.flatten(0, 1), which, query).reshape(-1, length, self.mask))

        nothing = torch.full((len(ids), length), self.mask, device=self.device)
        log_p = self._forbid_leading_end(logits(nothing))
        tokens = rng.fold("first").categorical(apply_temperature(log_p, config.temperature))
        first = self.exploratory_action(observations, memory, rng, ids)
        if first is not None:
            tokens[:, 0] = torch.where(first >= 0, first, tokens[:, 0])
        fixed = None if first is None else first >= 0
        tokens, energy, log_p = least_energy(
            metropolis(tokens, conditionals, rng, config.iterations, config.temperature, fixed)
        )
        if self.step_model is not None:
            log_u = torch.logaddexp(log_p[..., : self.end], log_p[..., self.end :] - math.log(self.end))
            return self.draw_chain(log_u, observations, memory, rng, ids, first, 0.0)
        confidence = log_p.gather(-1, tokens[..., None]).exp().reshape(len(ids), self.shape[0], -1).prod(-1)
        tokens = self._without_end(tokens.reshape(-1, *self.shape))
        actions = self.codec.decode(tokens, self.origin(observations))
        confidence = confidence.repeat_interleave(self.codec.chunk, 1)
        return Plan(actions, {"actions": tokens}, energy=energy, confidence=confidence)

    def _without_end(self, tokens: Tensor) -> Tensor:
        """Plans [n, H, …] in which the last step before END stands for all after it."""
        step = torch.arange(tokens.shape[1], device=tokens.device)
        ended = (tokens == self.end).flatten(2).any(-1) if tokens.ndim > 2 else tokens == self.end
        last = torch.where(ended.cummax(1).values, -1, step).cummax(1).values
        return tokens[torch.arange(len(tokens), device=tokens.device)[:, None], last]

    def _forbid_leading_end(self, logits: Tensor) -> Tensor:
        """log p of logits [n, N, S + 1], where no plan is over before it began."""
        logits = logits.clone()
        logits[:, : math.prod(self.shape[1:]), self.end] = -torch.inf  # the tokens of the first step
        return logits.log_softmax(-1)


def metropolis(
    tokens: Tensor, conditionals: Conditionals, rng: Rng, iterations: int, temperature: float,
    first_fixed: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:  # fmt: skip
    """The Metropolis chain from `tokens` [B, N], itself the first: tokens, pseudo-energy [B], conditionals.

    first_fixed  bool [B]: where the first token stays as it is
    """
    batch, length = tokens.shape
    row = torch.arange(batch, device=tokens.device)
    log_p = conditionals(tokens, row)
    energy = pseudo_energy(log_p, tokens)
    yield tokens, energy, log_p
    for number in range(iterations):
        current_temperature = temperature * (1 - number / iterations)
        step_rng = rng.fold("step", number)
        position = step_rng.fold("position").integers(length)
        drawn = step_rng.categorical(apply_temperature(log_p[row, position], current_temperature))
        if first_fixed is not None:
            drawn = torch.where(first_fixed & (position == 0), tokens[:, 0], drawn)
        proposed, next_log_p = tokens.clone(), log_p.clone()
        proposed[row, position] = drawn
        changed = (proposed != tokens).any(-1).nonzero().squeeze(-1)
        if len(changed):
            next_log_p[changed] = conditionals(proposed[changed], changed)
        next_energy = pseudo_energy(next_log_p, proposed)
        delta = next_energy - energy
        accept_prob = torch.exp(-delta / current_temperature) if current_temperature > 0 else torch.zeros_like(delta)
        accepted = (delta <= 0) | (step_rng.fold("accept").uniform() < accept_prob)
        tokens, energy, log_p = _where(accepted, (proposed, next_energy, next_log_p), (tokens, energy, log_p))
        yield tokens, energy, log_p


def least_energy(chain: Iterator[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Row by row, the link of a chain with the least energy, the first of them."""
    best = next(chain)
    for link in chain:
        best = _where(link[1] < best[1], link, best)
    return best


def _where(rows: Tensor, some: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    a, b, c = (
        torch.where(rows.reshape(-1, *(1 for _ in x.shape[1:])), x, y) for x, y in zip(some, others, strict=True)
    )
    return a, b, c


def pseudo_energy(log_p: Tensor, tokens: Tensor) -> Tensor:
    """−Σ_k log p(a_k | the others), [B], of conditionals [B, N, S]."""
    return -log_p.gather(-1, tokens[..., None]).squeeze(-1).sum(-1)
