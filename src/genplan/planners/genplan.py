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
from typing import Literal

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.flow import (
    DenoiserFn,
    EntropyBound,
    ProbPath,
    Rng,
    Sample,
    Source,
    Tokens,
    Trace,
    denoising_loss,
    entropy,
    plan_energy,
    sample,
)
from genplan.models.codecs import CodecConfig
from genplan.models.denoiser import NetworkSizes
from genplan.models.encoders import SceneEncoder
from genplan.models.encoding import Encoding
from genplan.models.networks import make_denoiser
from genplan.models.paper import PaperDenoiser, PaperEncoder
from genplan.planners.base import LearnedPlanner, MemoryConfig, NetworkConfig, at_least, distance_weights, probability
from genplan.planners.memory import PlannerMemory
from genplan.planners.outcomes import OutcomeMemory, Suggestion, prepend
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Oracle, Plan

# Labels of random draws, part of every result: never renamed.
RNG_NOISE, RNG_GIVEN, RNG_PADDING, RNG_AGAIN = "noise", "given", "blank", "again"
ORDERS = ("random", "confidence", "margin", "near-to-far")


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
        at_least(self, 1, "iterations", "num_candidates")
        if self.order not in ORDERS:
            raise UserError(f"order is '{self.order}', expected one of {', '.join(ORDERS)}")


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
        at_least(self, 1, "horizon", "action_steps")
        at_least(self, 0, "horizon_discount", "entropy_bound")
        probability(self, "full_noise_prob", "conditioning_prob")
        if self.action_steps > self.horizon:
            raise UserError(f"action_steps is {self.action_steps}, expected at most the horizon, {self.horizon}")
        for name, allowed in (("source", ("mask", "uniform")), ("preset", ("default", "paper"))):
            if getattr(self, name) not in allowed:
                raise UserError(f"{name} is '{getattr(self, name)}', expected one of {', '.join(allowed)}")
        if self.memory.visit_memory and self.preset == "paper":
            raise UserError("the preset 'paper' has no visit memory; use preset 'default', or visit_memory False")

    @property
    def sizes(self) -> NetworkSizes:
        network, memory = self.network, self.memory
        return NetworkSizes(
            network.hidden_size, network.num_heads, network.num_layers, self.horizon, memory.num_past, network.dropout,
            memory.visit_memory,
        )  # fmt: skip


class GenPlan(LearnedPlanner):
    Config = GenPlanConfig
    config: GenPlanConfig
    predicts_states = True
    keeps_trace = True

    def __init__(self, spec: PlanSpec, config: GenPlanConfig) -> None:
        super().__init__(spec, config)
        self.encoder: nn.Module
        self.denoiser: nn.Module
        if config.preset == "paper":
            self.encoder = PaperEncoder(spec, config.network.hidden_size)
            self.denoiser = PaperDenoiser(spec, config.sizes, self.codec.stream)
        else:
            self.encoder = SceneEncoder(spec, config.network.sizes)
            self.denoiser = make_denoiser(spec, config.sizes, self.codec)
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

    # --- the one way to the network ----------------------------------------------------------------------------------

    def network(self, encoding: Encoding, current: Observations, history: History, copies: int) -> DenoiserFn:
        """(x_t, t) -> logits, with everything that does not change while denoising computed beforehand."""
        prepared = self.denoiser.prepare(encoding, current, history, copies)  # type: ignore[operator]

        def logits(x_t: Tokens, t: Tensor) -> Mapping[str, Tensor]:
            return self.denoiser(x_t, t, prepared)  # type: ignore[no-any-return]

        return logits

    # --- learning ----------------------------------------------------------------------------------------------------

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        """Algorithm 1 for one batch; `rng` has no batch axes."""
        size, path = len(batch), self.path
        rows = rng.fold(torch.arange(size, device=batch.actions.device))
        t = rows.fold("t").uniform()
        # Some windows as pure noise: where every plan starts, and where entropy and energy are read.
        noisy = rows.fold(RNG_NOISE).uniform() < self.config.full_noise_prob
        t = torch.where(noisy, 0.0, t)
        tokens, valid_actions = self.action_tokens(batch)
        # In this order, since the sum of the streams' losses depends on it in its last digit.
        x_1 = {name: x for name, x in (("states", batch.tokens.get("states")), ("actions", tokens)) if x is not None}
        x_1 |= {name: x for name, x in batch.tokens.items() if name not in x_1}
        valid = {**{name: batch.valid[name] for name in batch.tokens}, "actions": valid_actions}
        given = self._given(x_1, valid, rows, noisy)
        x_t = path.corrupt(x_1, t, rows, given)
        # Behind the end of an episode stands noise, as it does there when a plan is begun.
        for name, x in x_t.items():
            padding_noise = path.stream_noise(name, x.shape[1:], rows.fold(RNG_PADDING))
            x_t[name] = torch.where(valid[name], x, padding_noise)
        encoding = self.encoder(batch.scene, batch.num_scenes)
        history = self.with_failed_actions(batch, rows, batch.actions[:, 0])
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
        discount, weights = self.config.horizon_discount, {}
        for name, shape in self.shapes.items():
            ahead = torch.arange(shape[0], device=device) + (name != "states")  # the first state is given
            chunk = self.codec.chunk if name == "actions" else 1
            weight = distance_weights(discount, ahead if chunk == 1 else (ahead - 1) * chunk + 1)
            weights[name] = weight.reshape(-1, *(1 for _ in shape[1:]))
        return weights

    def _given(
        self, x_1: Mapping[str, Tensor], valid: Mapping[str, Tensor], rows: Rng, noisy: Tensor
    ) -> dict[str, Tensor]:
        """The current state, and now and then a whole stream of goals or states."""
        given: dict[str, Tensor] = {}
        if "states" in x_1:
            given["states"] = torch.zeros_like(valid["states"])
            given["states"][:, 0] = self.spec.state_field is not None
        for name in ("goals", "states"):
            if name in x_1 and self.config.conditioning_prob:
                shown = (rows.fold(RNG_GIVEN, name).uniform() < self.config.conditioning_prob) & ~noisy
                whole = shown.reshape(-1, *(1 for _ in x_1[name].shape[1:])) & valid[name]
                given[name] = given[name] | whole if name in given else whole
        return given

    # --- planning ----------------------------------------------------------------------------------------------------

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> PlannerMemory:
        memory = super().reset(observations, oracle)
        config = self.config
        wanted = config.outcome_memory and config.memory.exploration > 0 and config.horizon > 1
        if wanted and self.spec.grid_field is not None:
            memory.outcomes = OutcomeMemory(self.spec, len(observations), self.device)
        return memory

    def observe(self, memory: PlannerMemory, actions: Tensor, observations: Observations, ids: Tensor) -> PlannerMemory:
        if isinstance(memory.outcomes, OutcomeMemory) and memory.visits is not None:
            rows = ids.to(self.device)
            last = Observations({**memory.visits.last_seen(rows).fields, **memory.state[rows].fields})
            memory.outcomes.update(rows, actions.to(self.device), last, observations.to(self.device))
        return super().observe(memory, actions, observations, ids)

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, PlannerMemory]:  # fmt: skip
        device, copies = self.device, self.config.sampler.num_candidates
        observations, ids, rng = observations.to(device), ids.to(device), Rng(rng.key.to(device))
        rows = torch.arange(len(ids), device=device).repeat_interleave(copies)  # candidates of a row stand together
        encoding, history = self.conditioning(observations, memory, ids, copies)
        current = observations.only(self.spec.step_fields)
        current = current if copies == 1 else current[rows]
        logits = self.network(encoding, current, history, copies)
        first = self.exploratory_action(observations, memory, rng, ids)
        if copies > 1:
            rng = rng[rows].fold(torch.arange(copies, device=device).repeat(len(ids)))
        x_0, given = self._start(current, rng, None if first is None else first[rows])
        result = self._sample(logits, x_0, given, rng, keep_trace)
        candidate_energies = result.energy.reshape(len(ids), copies)
        best = torch.arange(len(ids), device=device) * copies + candidate_energies.argmin(-1)
        tokens = {name: x[best] for name, x in result.tokens.items()}
        confidence = self._confidence(result.log_probs["actions"][best])
        plan = Plan(
            actions=self.codec.decode(tokens["actions"], self.origin(observations)),
            tokens=tokens,
            energy=result.energy[best],
            candidate_energies=candidate_energies,
            confidence=confidence,
            trace=result.trace,
        )
        if isinstance(memory.outcomes, OutcomeMemory):  # it has the last word, over exploration too
            suggestion = memory.outcomes.suggest(ids, observations, tokens["actions"], tokens["states"])
            memory.outcomes.commit(ids, suggestion)
            plan = _revised(plan, suggestion, {name: x[best] for name, x in result.log_p_noise.items()}, best)
        return plan, memory

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

    def _sample(
        self, logits: DenoiserFn, x_0: Tokens, given: Mapping[str, Tensor], rng: Rng, keep_trace: bool
    ) -> Sample:
        config = self.config.sampler
        goals_first = config.order != "random" and config.goals_first and self.spec.goals is not None
        return sample(
            self.path,
            logits,
            x_0,
            rng,
            steps=config.iterations,
            order=config.order,
            first_streams=["goals"] if goals_first else [],
            temperature=config.temperature,
            top_p=config.top_p,
            eta=config.eta,
            given=given,
            energy_streams=["actions"],
            keep_trace=keep_trace,
        )

    def _confidence(self, log_probs: Tensor) -> Tensor:
        """Of every action [B, H], from the log-probabilities of its tokens [B, H / chunk, *codes]."""
        if log_probs.ndim > 2:
            log_probs = log_probs.flatten(2).sum(-1)
        return log_probs.exp().repeat_interleave(self.codec.chunk, 1)


def _revised(plan: Plan, suggestion: Suggestion, log_p_noise: Mapping[str, Tensor], best: Tensor) -> Plan:
    """The plan with suggested actions put first, and everything else a step later: scored as what it now is."""
    where = suggestion.override
    if not bool(where.any()):
        return plan
    assert plan.energy is not None
    assert plan.confidence is not None
    assert plan.candidate_energies is not None
    tokens = {name: prepend(where, x[:, 0], x) for name, x in plan.tokens.items()}
    tokens["actions"] = prepend(where, suggestion.action, plan.tokens["actions"])
    energy = torch.where(where, plan_energy(log_p_noise, tokens, ["actions"], 1), plan.energy)
    rows = torch.arange(len(where), device=where.device)
    candidate_energies = plan.candidate_energies.clone()
    candidate_energies[rows, plan.candidate_energies.argmin(-1)] = energy
    return replace(
        plan,
        actions=tokens["actions"],
        tokens=tokens,
        energy=energy,
        candidate_energies=candidate_energies,
        confidence=prepend(where, suggestion.success_rate, plan.confidence),
        trace=None if plan.trace is None else _revised_trace(plan.trace, suggestion, best),
    )


def _revised_trace(trace: Trace, suggestion: Suggestion, best: Tensor) -> Trace:
    """The trace of chosen candidates `best` [n], as if the suggested action had been given from the start."""
    chosen = best[suggestion.override]
    action, rate = suggestion.action[suggestion.override], suggestion.success_rate[suggestion.override]

    def shifted(parts: Mapping[str, Tensor], first_action: Tensor) -> dict[str, Tensor]:
        revised = {}
        for name, values in parts.items():
            values = values.clone()  # [K, rows, H, …]
            old = values[:, chosen]
            first = first_action.expand_as(old[:, :, 0]) if name == "actions" else old[:, :, 0]
            values[:, chosen] = torch.cat([first[:, :, None], old[:, :, :-1]], 2)
            revised[name] = values
        return revised

    confidence = shifted(trace.confidence, rate.to(next(iter(trace.confidence.values())).dtype))
    energy = trace.energy.clone()
    energy[:, chosen] = -confidence["actions"][:, chosen].log().flatten(2).sum(-1)
    return replace(
        trace, tokens=shifted(trace.tokens, action), predicted=shifted(trace.predicted, action), confidence=confidence,
        energy=energy,
    )  # fmt: skip
