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
- With the order `chain`, states and actions are drawn jointly, near to far, by a learnt model of one step (chain.py),
  which adapts to what is observed in the episode (adaptation.py); training then shows half of the windows as prefixes
  (prefixes.py). GenPlan-U has no chains: uniform noise looks like any token, so the network cannot tell what is known.
- Otherwise: ten iterations in all rows (the paper: 5 to 15), goals first, and the most confident tokens first (the
  paper: in random order), at temperature 0.5 (the paper: 1). One action is executed per plan (the paper: whole plans).
- In tasks never demonstrated, without a step model: exploration, and outcome memory (`outcomes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan.data.windows import TaskMixture, Windows
from genplan.errors import UserError
from genplan.flow import EntropyBound, ProbPath, Rng, Source, denoising_loss, entropy, plan_energy
from genplan.flow.sampler import sample
from genplan.flow.tokens import sum_event
from genplan.models.cost import CostToGo, PreparedCost
from genplan.models.denoiser import Denoiser
from genplan.models.encoders import Encoding, SceneEncoder
from genplan.models.paper import PaperDenoiser, PaperEncoder
from genplan.models.sequence import make_denoiser
from genplan.models.settings import CodecConfig, MemoryConfig, NetworkConfig, SamplerConfig, at_least, probability
from genplan.models.step import GridStepModel, make_step_model, step_model_class
from genplan.planners.base import distance_weights
from genplan.planners.chain import OPTIONS, Chain, ChainConfig
from genplan.planners.chained import ChainPlanner
from genplan.planners.memory import PlannerMemory
from genplan.planners.outcomes import OutcomeMemory, prepend, revised, with_given_actions
from genplan.planners.prefixes import RNG_PREFIX, draw_prefixes
from genplan.planners.step_training import goals_are_faced, has_any_order
from genplan.planners.value_iteration import value_targets
from genplan.spec import PlanSpec
from genplan.types import Batch, History, Losses, Observations, Oracle, Plan

# Labels of random draws, part of every result: never renamed.
RNG_NOISE, RNG_GIVEN, RNG_PADDING, RNG_AGAIN = "noise", "given", "blank", "again"
GOALS_ALONE = 1e-6  # the time of the second call, where the first commits goals and no codes: these depend on them
COST_SHARE, OFFSET_SHARE = 1.0, 1.0  # of the losses of cost-to-go and of offsets in the total


@dataclass(frozen=True)
class GenPlanConfig:
    """Of GenPlan-M (source mask) and GenPlan-U (source uniform)."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    chain: ChainConfig = field(default_factory=ChainConfig)
    horizon: int = 10
    action_steps: int | None = None  # actions executed of each plan; None: all of a chain, else one
    subgoal_types: tuple[str, ...] = ("target",)
    predict_goals: bool = True  # plans have the goals of the task as a stream
    source: Literal["mask", "uniform"] = "mask"
    preset: Literal["default", "paper"] = "default"
    prefix_prob: float = 0.9  # for chains: of training windows shown up to some step, as plans are that grow
    full_noise_prob: float | None = None  # of windows, or prefixes, shown as noise; None: 0.35 of a chain, or 0.5
    conditioning_prob: float = 0.2  # of streams shown as given, so that goal-conditioned plans are in distribution
    horizon_discount: float = 1.0  # a step n ahead counts n ** −horizon_discount in the loss
    entropy_bound: float | None = None  # None: found in training, from what held-out demonstrations cost
    outcome_memory: bool = True  # with exploration: learn within an episode from what came otherwise than planned

    def __post_init__(self) -> None:
        at_least(self, 1, "horizon", "action_steps", most=4096)
        at_least(self, 0, "horizon_discount", "entropy_bound")
        probability(self, "prefix_prob", "full_noise_prob", "conditioning_prob")
        if self.action_steps is not None and self.action_steps > self.horizon:
            raise UserError(f"action_steps is {self.action_steps}, expected at most the horizon, {self.horizon}")
        if self.memory.visit_memory and self.preset == "paper":
            raise UserError("the preset 'paper' has no visit memory; use preset 'default', or visit_memory False")


class GenPlan(ChainPlanner):
    Config = GenPlanConfig
    config: GenPlanConfig
    options = (
        "iterations", "order", "goals_first", "temperature", "top_p", "eta", "num_candidates", "action_steps",
        "exploration", "outcome_memory", "goal_temperature", "used_levels", *OPTIONS,
    )  # fmt: skip
    variants = ("source", "predict_goals")
    keeps_trace = True

    def __init__(self, spec: PlanSpec, config: GenPlanConfig) -> None:
        spec = spec if config.predict_goals else spec.without_goals()
        super().__init__(spec, config)
        config = self.config
        sizes = (spec, config.network, config.memory, config.horizon)
        self.denoiser: nn.Module
        if config.preset == "paper":
            self.encoder = PaperEncoder(spec, config.network)
            self.denoiser = PaperDenoiser(*sizes, self.codec.stream)
        else:
            self.encoder = SceneEncoder(spec, config.network)
            self.denoiser = make_denoiser(*sizes, self.codec)
        self.offset = self.make_offset_head()
        self.size_free = bool(self.denoiser.size_free)
        self.bound = EntropyBound(config.entropy_bound)
        self.step_model = make_step_model(spec) if self.order == "chain" else None
        self.cost: CostToGo | None = None
        if isinstance(self.step_model, GridStepModel) and isinstance(self.denoiser, Denoiser):
            self.cost = CostToGo(config.network.hidden_size, config.horizon)

    @classmethod
    def resolved(cls, config: GenPlanConfig, spec: PlanSpec) -> GenPlanConfig:
        sampler, learnable = config.sampler, step_model_class(spec) is not None
        fits = learnable and config.source == "mask" and config.horizon > 1 and config.preset == "default"
        fits = fits and not sampler.eta  # which would mask again what follows from all before
        if sampler.order == "chain" and not fits:
            raise UserError(
                "the order 'chain' needs masks as the source, a horizon of at least 2, eta 0, and a task whose steps "
                "can be learnt: observed states and discrete actions, beside them categories at most; use 'near-to-far'"
            )
        order = sampler.order if sampler.order != "auto" else "chain" if fits else "confidence"
        iterations, temperature, steps = (4, 0.0, config.horizon) if order == "chain" else (10, 0.5, 1)
        sampler = replace(
            sampler, order=order, iterations=sampler.iterations or iterations,
            temperature=temperature if sampler.temperature is None else sampler.temperature,
            goals_first=order != "chain" if sampler.goals_first is None else sampler.goals_first,
        )  # fmt: skip
        noise = config.full_noise_prob if config.full_noise_prob is not None else 0.35 if order == "chain" else 0.5
        return replace(config, sampler=sampler, action_steps=config.action_steps or steps, full_noise_prob=noise)

    @property
    def order(self) -> str:
        """In which plans are denoised."""
        return self.config.sampler.order

    @property
    def draws_chains(self) -> bool:
        return self.order == "chain"

    @property
    def path(self) -> ProbPath:
        sizes = {name: stream.size for name, stream in self.spec.streams.items()}
        return ProbPath({**sizes, "actions": self.codec.stream.size}, Source(self.config.source))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Stream -> the shape of its tokens in one plan."""
        streams = {**self.spec.streams, "actions": self.codec.stream}
        return {name: (self.config.horizon // self.codec.chunk, *one.shape) for name, one in streams.items()}

    def network(
        self, encoding: Encoding, current: Observations, history: History, copies: int
    ) -> partial[dict[str, Tensor]]:
        """(x_t, t) -> logits, in training and planning alike; what does not change while denoising is computed here."""
        prepared = self.denoiser.prepare(encoding, current, history, copies)  # type: ignore[operator]
        return partial(self.denoiser, prepared=prepared)

    # --- learning ----------------------------------------------------------------------------------------------------

    def pretrain(
        self, windows: Windows | TaskMixture, held_out: Windows | TaskMixture, most_steps: int
    ) -> dict[str, float]:
        if self.cost is not None:
            self.cost.faced.fill_(self.config.chain.value_iteration and goals_are_faced(windows))
            self.cost.any_order.fill_(has_any_order(windows))
        return super().pretrain(windows, held_out, most_steps)

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        """Algorithm 1 for one batch; `rng` has no batch axes."""
        spec = batch.spec if self.config.predict_goals else batch.spec.without_goals()
        if spec != self.spec:  # of several tasks that are trained together, another
            return self.for_spec(spec).loss(batch, rng)
        path, rows = self.path, rng.fold(torch.arange(len(batch), device=batch.actions.device))
        # Some windows as pure noise: where every plan starts, and where entropy and energy are read.
        prefixes = self.step_model is not None and self.config.prefix_prob > 0
        noise_prob = self.config.full_noise_prob or 0.0
        noisy = rows.fold(RNG_NOISE).uniform() < (0.0 if prefixes else noise_prob)
        t = torch.where(noisy, 0.0, rows.fold("t").uniform())
        streams, valid = self.plan_tokens(batch)
        tokens, valid_actions = streams["actions"], valid["actions"]
        # In this order, since the sum of the streams' losses depends on it in its last digit.
        x_1: dict[str, Tensor] = {name: streams[name] for name in ("states", "actions", "goals") if name in streams}
        given = self._given(x_1, valid, rows, noisy)
        x_t, weights = path.corrupt(x_1, t, rows, given), self._weights(t.device)
        if prefixes:
            drawn = draw_prefixes(self.config.horizon, self.config.prefix_prob, noise_prob, rows)
            noise = path.noise(self.shapes, rows.fold(RNG_PREFIX))
            x_t, weights = drawn.show(x_1, x_t, noise, given, self.config.horizon_discount)
            t = torch.where(drawn.chosen, drawn.length / self.config.horizon, t)
            noisy = drawn.chosen & (drawn.length == 0)
        # Behind the end of an episode stands noise, as it does there when a plan is begun.
        for name, x in x_t.items():
            x_t[name] = torch.where(valid[name], x, path.stream_noise(name, x.shape[1:], rows.fold(RNG_PADDING)))
        encoding = self.encoder(batch.scene, batch.num_scenes)
        history = self.with_failed_actions(batch, rows)
        network = self.network(encoding, batch.current, history, batch.windows_per_scene)
        logits = network(x_t, t)
        denoised = denoising_loss(path, logits, x_1, x_t, valid, given, weights)
        if noise_prob:
            at_noise, counted = logits["actions"], valid_actions & noisy.reshape(-1, *(1 for _ in tokens.shape[1:]))
        else:  # Algorithm 1 to the letter: a second call, at pure noise
            noise = path.corrupt(x_1, 0.0, rows.fold(RNG_AGAIN), given)
            at_noise, counted = network(noise, torch.zeros_like(t))["actions"], valid_actions
        nats = entropy(at_noise, counted)
        metrics = {f"loss/{name}": loss for name, loss in denoised.losses.items()}
        metrics |= {f"accuracy/{name}": value for name, value in denoised.accuracies.items()}
        metrics |= {"entropy": nats, "entropy_multiplier": self.bound.multiplier.clone()}
        total = denoised.total
        if self.cost is not None and batch.steps_left is not None:
            prepared = self._prepared_cost(self.cost, encoding, network, batch.windows_per_scene)
            of_cost = self._cost_losses(self.cost, prepared, batch, batch.steps_left, rng)
            metrics, total = metrics | of_cost, total + COST_SHARE * sum(of_cost.values())
        if self.offset is not None:
            metrics["loss/offset"] = self.offset_loss(self.offset, batch, streams, valid)
            total = total + OFFSET_SHARE * metrics["loss/offset"]
        if self.bound.is_on:
            total = total + self.bound.penalty(nats)
        if self.bound.is_found:
            metrics["nll/noise"] = functional.cross_entropy(at_noise[counted], tokens[counted])
        return Losses(total, {name: value.detach() for name, value in metrics.items()})

    def _cost_losses(
        self, cost: CostToGo, prepared: PreparedCost, batch: Batch, steps_left: Tensor, rng: Rng
    ) -> dict[str, Tensor]:
        next_goal = batch.tokens["goals"].flatten(2)[..., 0] if "goals" in batch.tokens else None
        losses = {"loss/cost": prepared.loss(batch.tokens["states"], next_goal, steps_left, batch.valid["states"])}
        if bool(cost.faced) and isinstance(self.step_model, GridStepModel):
            cutoff = self.config.chain.cutoff or math.inf
            values = value_targets(self.step_model, batch, cutoff, bool(cost.any_order), rng)
            losses["loss/values"] = prepared.value_loss(*values)
        return losses

    def _prepared_cost(
        self, cost: CostToGo, encoding: Encoding, network: partial[dict[str, Tensor]], copies: int
    ) -> PreparedCost:
        """The cost-to-go of plans, with what the last call of the network made of their current steps."""
        assert self.spec.geometry is not None
        context = network.keywords["prepared"].hidden[:, 0]
        return cost.prepare(encoding.grids[self.spec.grid_field or ""], context, self.spec.geometry, copies)

    def after_step(self, losses: Losses) -> None:
        if self.bound.is_on:
            self.bound.update(losses.metrics["entropy"])

    def after_validation(self, metrics: Mapping[str, float]) -> None:
        if self.bound.is_found and math.isfinite(nll := metrics["nll/noise"]):
            self.bound.observe(nll)

    def _weights(self, device: torch.device) -> dict[str, Tensor]:
        weights = {}
        for name, shape in self.shapes.items():
            ahead = torch.arange(shape[0], device=device) * self.codec.chunk + (
                name != "states"
            )  # whose first is given
            weight = distance_weights(self.config.horizon_discount, ahead)
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
            shown = rows.fold(RNG_GIVEN, name).uniform() < self.config.conditioning_prob
            shown = shown if self.offset is not None else shown & ~noisy  # before codes are drawn, goals are known
            mask |= shown.reshape(-1, *(1 for _ in mask.shape[1:])) & valid[name]
        return given

    # --- planning ----------------------------------------------------------------------------------------------------

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> PlannerMemory:
        memory, config = super().reset(observations, oracle), self.config
        wanted = config.outcome_memory and config.memory.exploration > 0 and config.horizon > 1
        if wanted and self.spec.grid_field is not None and not self.draws_chains:
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
        shown = observations if memory.adaptation is None else memory.adaptation.familiar(observations)
        current = shown.only(self.spec.step_fields)[rows]
        first = self.exploratory_action(observations, memory, rng, ids)
        if copies > 1:
            rng = rng[rows].fold(torch.arange(copies, device=device).repeat(number))
        x_0, given = self._start(current, rng, None if first is None else first[rows])
        network = self.network(encoding, current, history, copies)
        head, steps = self._head(observations[rows], memory, ids[rows])
        if head is not None and self.cost is not None and self.config.chain.cost_weight:
            head.cost = partial(self._prepared_cost, self.cost, encoding, network, copies)
        goals_first = self.order != "random" and config.goals_first and self.spec.goals is not None
        result = sample(
            self.path, network, x_0, rng, steps=steps, order=self.order,
            first_streams=["goals"] if goals_first else [], temperature=self._temperatures(), top_p=config.top_p,
            eta=config.eta, given=given, energy_streams=["actions"], head=head, keep_trace=keep_trace,
        )  # fmt: skip
        if first is not None:  # an action that is tried was given to the sampler, but it is executed: it counts
            result = with_given_actions(result, given["actions"])
        if head is not None:
            result = replace(result, energy=head.energy)
        best = rows[::copies] * copies + result.energy.reshape(number, copies).argmin(-1)
        confidence = sum_event(result.log_probs["actions"][best], 2).exp().repeat_interleave(self.codec.chunk, 1)
        if memory.outcomes is not None:  # it has the last word, over exploration too
            chosen = {name: x[best] for name, x in result.tokens.items()}
            suggestion = memory.outcomes.suggest(ids, observations, chosen["actions"], chosen["states"])
            memory.outcomes.commit(ids, suggestion)
            if bool(suggestion.override.any()):
                result = revised(result, suggestion, best)
                confidence = prepend(suggestion.override, suggestion.success_rate, confidence)
        tokens = {name: x[best] for name, x in result.tokens.items()}
        actions = self.decode(tokens["actions"], observations, memory.history[ids], tokens.get("goals"))
        energy = result.energy[best]
        if self.config.codec.used_levels is not None:  # not all codes that were drawn were used: those of the actions
            tokens["actions"] = self.codec.encode(actions, self.origin(observations))
            energy = plan_energy({"actions": result.log_p_noise["actions"][best]}, tokens, ["actions"], 1)
        return Plan(
            actions=actions,
            tokens=tokens,
            energy=energy,
            candidate_energies=result.energy.reshape(number, copies),
            confidence=confidence,
            trace=result.trace,
            selected=best,
            cut=head is not None,
            sure_steps=None if head is None else self._sure_steps(confidence),
        )

    @torch.inference_mode()
    def state_probs(self, observations: Observations, goal: int | None = None) -> Tensor:
        ids = torch.arange(len(observations), device=self.device)
        observations = observations.to(self.device)
        encoding, history = self.conditioning(observations, self.reset(observations), ids)
        current = observations.only(self.spec.step_fields)
        x_0, _ = self._start(current, Rng.of(0, ids), None)
        if goal is not None and "goals" in x_0:
            x_0["goals"][:] = goal
        logits = self.network(encoding, current, history, 1)(x_0, torch.zeros(len(ids), device=self.device))
        return logits["states"].softmax(-1)

    def _temperatures(self) -> dict[str, float]:
        config = self.config.sampler
        temperatures = dict.fromkeys(self.shapes, config.temperature or 0.0)
        if config.goal_temperature is not None and "goals" in temperatures:
            temperatures["goals"] = config.goal_temperature
        return temperatures

    def _head(
        self, observations: Observations, memory: PlannerMemory, ids: Tensor
    ) -> tuple[Chain | None, int | list[float]]:
        """What draws states and actions jointly, and the times of the sampler."""
        sampler, horizon = self.config.sampler, self.config.horizon
        if self.order != "chain":
            calls = sampler.iterations or 1
            if self.offset is None or self.spec.goals is None or not sampler.goals_first or calls == 1:
                return None, calls
            return None, [0.0, GOALS_ALONE, *(number / (calls - 1) for number in range(1, calls))]
        if self.step_model is None:
            raise UserError("the order 'chain' needs a step model, which this planner was trained without; use another "
                            "order, or train with --order chain")  # fmt: skip
        calls = min(sampler.iterations or 1, horizon)
        times = [0.0, *(-(-horizon * (number + 1) // calls) / horizon for number in range(calls))]  # as in training
        return self.chain_head(observations, memory, ids, sampler.temperature or 0.0), times

    def _start(
        self, current: Observations, rng: Rng, first: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Noise with what is given: the current state, and an action that is to be tried first (where not −1)."""
        x_0, given = self.path.noise(self.shapes, rng), dict[str, Tensor]()
        now = torch.arange(self.config.horizon // self.codec.chunk, device=self.device) == 0
        if self.spec.state_field is not None:
            x_0["states"][:, 0] = current[self.spec.state_field]
            given["states"] = now.expand_as(x_0["states"])
        if first is not None:  # the rest is planned around it
            given["actions"] = now & (first[:, None] >= 0)
            x_0["actions"] = torch.where(given["actions"], first[:, None], x_0["actions"])
        return x_0, given
