"""GenPlan: plan by denoising states, goals and actions together (Algorithms 1 and 2 on our flow core).

GenPlan-M corrupts with masks, GenPlan-U with uniform noise. Training and planning reach the network through the same
`network` callable. Nothing here knows paths, doors or words: what it knows, it learnt.

Details, and where the `default` preset differs from the paper (the preset `paper` follows its tables to the letter)
- The network: an encoder that passes messages between the cells of the grid, modulated by the mission, and a small
  transformer over the plan that attends to it; 64 wide, three layers. The paper's is 128 wide, with four. Without a
  grid, or with several code tokens per action, one token per position of each stream (`models/sequence.py`).
- Memory: the last step, and the set of states visited with the actions done there; the paper's is a window of steps.
- Training: half of the windows are shown as pure noise, where every plan starts; now and then the goals or the states
  are shown as given. The nearer a step of the plan, the more it counts (`horizon_discount`; in the paper all count
  alike). Grids are rotated, reflected and recolored. The entropy bound is off (`entropy_bound`); the paper holds it at
  0.3, in adaptive rows at 0.7.
- Planning: ten iterations in all rows (the paper: 5 to 15), goals before the rest, and the most confident tokens first
  (the paper: in random order), at temperature 0.5 (the paper: 1). One action is executed per plan; the paper executes
  whole plans.
- In tasks never demonstrated: exploration, as all planners here have, and outcome memory, which needs predicted states
  (`outcomes.py`; `outcome_memory` False leaves it out).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.flow import DenoiserFn, EntropyBound, ProbPath, Rng, Source, denoising_loss, entropy, plan_energy
from genplan.flow.sampler import Sample, sample
from genplan.flow.tokens import sum_event
from genplan.models.encoders import Encoding, SceneEncoder
from genplan.models.paper import PaperDenoiser, PaperEncoder
from genplan.models.sequence import make_denoiser
from genplan.models.settings import CodecConfig, MemoryConfig, NetworkConfig, at_least, probability
from genplan.planners.base import LearnedPlanner, distance_weights
from genplan.planners.memory import PlannerMemory
from genplan.planners.outcomes import OutcomeMemory, Suggestion, prepend
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Oracle, Plan

# Labels of random draws, part of every result: never renamed.
RNG_NOISE, RNG_GIVEN, RNG_PADDING, RNG_AGAIN = "noise", "given", "blank", "again"


@dataclass(frozen=True)
class SamplerConfig:
    """How a plan is denoised."""

    iterations: int = 10
    order: Literal["random", "confidence", "margin", "near-to-far"] = "confidence"
    goals_first: bool = True
    temperature: float = 0.5
    top_p: float = 1.0
    eta: float = 0.0
    num_candidates: int = 1  # plans per decision, of which the one of least energy is taken

    def __post_init__(self) -> None:
        at_least(self, 1, "iterations", "num_candidates", most=4096)
        at_least(self, 0, "temperature", "eta")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}, expected more than 0 and at most 1")


@dataclass(frozen=True)
class GenPlanConfig:
    """Of GenPlan-M (source mask) and GenPlan-U (source uniform)."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    horizon: int = 10
    action_steps: int = 1  # actions executed of each plan
    subgoal_types: tuple[str, ...] = ("target",)
    source: Literal["mask", "uniform"] = "mask"
    preset: Literal["default", "paper"] = "default"
    full_noise_prob: float = 0.5  # of training windows shown as pure noise
    conditioning_prob: float = 0.2  # of streams shown as given, so that goal-conditioned plans are in distribution
    horizon_discount: float = 1.0  # a step n ahead counts n ** −horizon_discount in the loss
    entropy_bound: float = 0.0
    outcome_memory: bool = True  # with exploration: learn within an episode from what came otherwise than planned

    def __post_init__(self) -> None:
        at_least(self, 1, "horizon", "action_steps", most=4096)
        at_least(self, 0, "horizon_discount", "entropy_bound")
        probability(self, "full_noise_prob", "conditioning_prob")
        if self.action_steps > self.horizon:
            raise UserError(f"action_steps is {self.action_steps}, expected at most the horizon, {self.horizon}")
        if self.memory.visit_memory and self.preset == "paper":
            raise UserError("the preset 'paper' has no visit memory; use preset 'default', or visit_memory False")


class GenPlan(LearnedPlanner):
    Config = GenPlanConfig
    config: GenPlanConfig
    predicts_states = True
    keeps_trace = True

    def __init__(self, spec: PlanSpec, config: GenPlanConfig) -> None:
        super().__init__(spec, config)
        sizes = (spec, config.network, config.memory, config.horizon)
        self.denoiser: nn.Module
        if config.preset == "paper":
            self.encoder = PaperEncoder(spec, config.network)
            self.denoiser = PaperDenoiser(*sizes, self.codec.stream)
        else:
            self.encoder = SceneEncoder(spec, config.network)
            self.denoiser = make_denoiser(*sizes, self.codec)
        self.size_free = bool(self.denoiser.size_free)
        self.bound = EntropyBound(config.entropy_bound)

    @property
    def path(self) -> ProbPath:
        sizes = {name: stream.size for name, stream in self.spec.streams.items()}
        return ProbPath({**sizes, "actions": self.codec.stream.size}, Source(self.config.source))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Stream -> the shape of its tokens in one plan."""
        horizon = self.config.horizon
        shapes = {name: (horizon, *stream.shape) for name, stream in self.spec.streams.items()}
        return {**shapes, "actions": (horizon // self.codec.chunk, *self.codec.stream.shape)}

    def network(self, encoding: Encoding, current: Observations, history: History, copies: int) -> DenoiserFn:
        """(x_t, t) -> logits, in training and planning alike; what does not change while denoising is computed here."""
        prepared = self.denoiser.prepare(encoding, current, history, copies)  # type: ignore[operator]
        return partial(self.denoiser, prepared=prepared)

    # --- learning ----------------------------------------------------------------------------------------------------

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        """Algorithm 1 for one batch; `rng` has no batch axes."""
        if batch.spec != self.spec:  # of several tasks that are trained together, another
            return self.for_spec(batch.spec).loss(batch, rng)
        path, rows = self.path, rng.fold(torch.arange(len(batch), device=batch.actions.device))
        # Some windows as pure noise: where every plan starts, and where entropy and energy are read.
        noisy = rows.fold(RNG_NOISE).uniform() < self.config.full_noise_prob
        t = torch.where(noisy, 0.0, rows.fold("t").uniform())
        tokens, valid_actions = self.action_tokens(batch)
        streams, valid = {**batch.tokens, "actions": tokens}, {**batch.valid, "actions": valid_actions}
        # In this order, since the sum of the streams' losses depends on it in its last digit.
        x_1: dict[str, Tensor] = {name: streams[name] for name in ("states", "actions", "goals") if name in streams}
        given = self._given(x_1, valid, rows, noisy)
        x_t = path.corrupt(x_1, t, rows, given)
        # Behind the end of an episode stands noise, as it does there when a plan is begun.
        for name, x in x_t.items():
            x_t[name] = torch.where(valid[name], x, path.stream_noise(name, x.shape[1:], rows.fold(RNG_PADDING)))
        encoding = self.encoder(batch.scene, batch.num_scenes)
        history = self.with_failed_actions(batch, rows)
        network = self.network(encoding, batch.current, history, batch.windows_per_scene)
        logits = network(x_t, t)
        denoised = denoising_loss(path, logits, x_1, x_t, valid, given, self._weights(t.device))
        if self.config.full_noise_prob:
            nats = entropy(logits["actions"], valid_actions & noisy.reshape(-1, *(1 for _ in tokens.shape[1:])))
        else:  # Algorithm 1 to the letter: a second call, at pure noise
            noise = path.corrupt(x_1, 0.0, rows.fold(RNG_AGAIN), given)
            nats = entropy(network(noise, torch.zeros_like(t))["actions"], valid_actions)
        metrics = {f"loss/{name}": loss for name, loss in denoised.losses.items()}
        metrics |= {f"accuracy/{name}": value for name, value in denoised.accuracies.items()}
        metrics |= {"entropy": nats, "entropy_multiplier": self.bound.multiplier.clone()}
        total = denoised.total
        if self.config.entropy_bound > 0:
            total = total + self.bound.penalty(nats)
        return Losses(total, {name: value.detach() for name, value in metrics.items()})

    def after_step(self, losses: Losses) -> None:
        if self.config.entropy_bound > 0:
            self.bound.update(losses.metrics["entropy"])

    def _weights(self, device: torch.device) -> dict[str, Tensor]:
        weights = {}
        for name, shape in self.shapes.items():
            chunk, first = self.codec.chunk if name == "actions" else 1, name != "states"  # the first state is given
            weight = distance_weights(
                self.config.horizon_discount, torch.arange(shape[0], device=device) * chunk + first
            )
            weights[name] = weight.reshape(-1, *(1 for _ in shape[1:]))
        return weights

    def _given(
        self, x_1: Mapping[str, Tensor], valid: Mapping[str, Tensor], rows: Rng, noisy: Tensor
    ) -> dict[str, Tensor]:
        """The current state, and now and then a whole stream of goals or states."""
        given = {name: torch.zeros_like(valid[name]) for name in x_1 if name != "actions"}
        if self.spec.state_field is not None:
            given["states"][:, 0] = True
        for name, mask in given.items():
            shown = (rows.fold(RNG_GIVEN, name).uniform() < self.config.conditioning_prob) & ~noisy
            mask |= shown.reshape(-1, *(1 for _ in mask.shape[1:])) & valid[name]
        return given

    # --- planning ----------------------------------------------------------------------------------------------------

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> PlannerMemory:
        memory, config = super().reset(observations, oracle), self.config
        wanted = config.outcome_memory and config.memory.exploration > 0 and config.horizon > 1
        if wanted and self.spec.grid_field is not None:
            memory.outcomes = OutcomeMemory(self.spec, len(observations), self.device)
        return memory

    def make_plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, goals: Tensor | None,
        keep_trace: bool,
    ) -> Plan:  # fmt: skip
        config, device = self.config.sampler, ids.device
        number, copies = len(ids), config.num_candidates
        rows = torch.arange(number, device=device).repeat_interleave(copies)  # candidates of a row stand together
        encoding, history = self.conditioning(observations, memory, ids, copies)
        current = observations.only(self.spec.step_fields)[rows]
        first = self.exploratory_action(observations, memory, rng, ids)
        if copies > 1:
            rng = rng[rows].fold(torch.arange(copies, device=device).repeat(number))
        x_0, given = self._start(current, rng, None if first is None else first[rows])
        goals_first = config.order != "random" and config.goals_first and self.spec.goals is not None
        result = sample(
            self.path, self.network(encoding, current, history, copies), x_0, rng, steps=config.iterations,
            order=config.order, first_streams=["goals"] if goals_first else [], temperature=config.temperature,
            top_p=config.top_p, eta=config.eta, given=given, energy_streams=["actions"], keep_trace=keep_trace,
        )  # fmt: skip
        if first is not None:  # an action that is tried was given to the sampler, but it is executed: it counts
            result = _with_given_actions(result, given["actions"])
        best = rows[::copies] * copies + result.energy.reshape(number, copies).argmin(-1)
        confidence = sum_event(result.log_probs["actions"][best], 2).exp().repeat_interleave(self.codec.chunk, 1)
        if memory.outcomes is not None:  # it has the last word, over exploration too
            chosen = {name: x[best] for name, x in result.tokens.items()}
            suggestion = memory.outcomes.suggest(ids, observations, chosen["actions"], chosen["states"])
            memory.outcomes.commit(ids, suggestion)
            if bool(suggestion.override.any()):
                result = _revised(result, suggestion, best)
                confidence = prepend(suggestion.override, suggestion.success_rate, confidence)
        tokens = {name: x[best] for name, x in result.tokens.items()}
        return Plan(
            actions=self.codec.decode(tokens["actions"], self.origin(observations)),
            tokens=tokens,
            energy=result.energy[best],
            candidate_energies=result.energy.reshape(number, copies),
            confidence=confidence,
            trace=result.trace,
            selected=best,
        )

    def _start(
        self, current: Observations, rng: Rng, first: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Noise with what is given: the current state, and an action that is to be tried first (where not −1)."""
        x_0 = self.path.noise(self.shapes, rng)
        given: dict[str, Tensor] = {}
        now = torch.arange(self.config.horizon, device=self.device) == 0
        if self.spec.state_field is not None:
            x_0["states"][:, 0] = current[self.spec.state_field]
            given["states"] = now.expand_as(x_0["states"])
        if first is not None:  # the rest is planned around it
            given["actions"] = now & (first[:, None] >= 0)
            x_0["actions"] = torch.where(given["actions"], first[:, None], x_0["actions"])
        return x_0, given


def _with_given_actions(result: Sample, given: Tensor) -> Sample:
    """The sample with the probabilities and energies of its given actions, at pure noise."""
    tokens, log_p = result.tokens["actions"], result.log_p_noise["actions"]
    log_probs = torch.where(given, log_p.gather(-1, tokens[..., None]).squeeze(-1), result.log_probs["actions"])
    energy = plan_energy(result.log_p_noise, result.tokens, ["actions"], 1)
    return replace(result, log_probs={**result.log_probs, "actions": log_probs}, energy=energy)


def _revised(result: Sample, suggestion: Suggestion, best: Tensor) -> Sample:
    """The sample with suggested actions put first in its rows `best` [n], and everything else a step later.

    It is scored as what it now is, and traced as if the suggested actions had been given from the start.
    """
    where, action = suggestion.override, suggestion.action

    def shifted(parts: Mapping[str, Tensor], first_action: Tensor, dim: int) -> dict[str, Tensor]:
        revised = {}
        for name, values in parts.items():  # [rows, H, …], or behind the axis of a trace's steps; `dim` is that of H
            old = values.index_select(dim - 1, best)
            first = old.select(dim, 0)
            first = first_action.to(old.dtype).expand_as(first) if name == "actions" else first
            revised[name] = values.index_copy(dim - 1, best, prepend(where, first, old, dim))
        return revised

    tokens, trace = shifted(result.tokens, action, 1), result.trace
    energy = plan_energy(result.log_p_noise, tokens, ["actions"], 1)[best]
    energy = result.energy.index_copy(0, best, torch.where(where, energy, result.energy[best]))
    if trace is not None:
        confidence = shifted(trace.confidence, suggestion.success_rate, 2)
        trace = replace(
            trace, tokens=shifted(trace.tokens, action, 2), predicted=shifted(trace.predicted, action, 2),
            confidence=confidence, energy=-confidence["actions"].log().flatten(2).sum(-1),
        )  # fmt: skip
    return replace(result, tokens=tokens, energy=energy, trace=trace)
