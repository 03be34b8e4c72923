"""What all learned planners share: an encoder of the scene, an action codec, and what is remembered of an episode.

The memory is the same for all of them, so that a comparison is about ideas: the last steps with their actions, and,
with visit memory, the set of states visited before with what was done there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from genplan import config as settings
from genplan.errors import UserError
from genplan.flow import Rng, apply_temperature
from genplan.models.codecs import CodecConfig, demonstrated_actions, make_codec
from genplan.models.encoders import fit_statistics
from genplan.models.encoding import EncoderSizes, Encoding
from genplan.planners.memory import Exploration, HistoryBuffer, PlannerMemory, SceneCache, VisitMemory
from genplan.spec import PlanSpec
from genplan.types import Batch, Episode, History, Losses, Observations, Oracle, Plan, WindowNeeds

# Label of random draws, part of every result: never renamed.
RNG_FAILED = "vain"


@dataclass(frozen=True)
class EncoderConfig:
    """The network that reads observations."""

    hidden_size: int = 64
    num_heads: int = 4
    encoder_iterations: int = 24  # of the grid encoder's convolution
    position_embedding: bool = False  # codes of a cell's position beside what the grid shows there
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 1, "hidden_size", "num_heads", "encoder_iterations")
        if self.hidden_size % self.num_heads:
            raise UserError(f"hidden_size is {self.hidden_size}, expected a multiple of the {self.num_heads} heads")
        probability(self, "dropout")

    @property
    def sizes(self) -> EncoderSizes:
        return EncoderSizes(self.hidden_size, self.encoder_iterations, self.position_embedding)


@dataclass(frozen=True)
class NetworkConfig(EncoderConfig):
    """The network that reads observations, and the transformer behind it."""

    num_layers: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "num_layers")


@dataclass(frozen=True)
class MemoryConfig:
    """What is remembered of an episode."""

    context_length: int = 2  # observations that are shown, the current one counted
    visit_memory: bool = False  # the set of all states visited before, and what was done there
    failed_action_prob: float = 0.25  # of training windows shown actions that failed before (with visit memory)
    exploration: float = 0.0  # at test time: how readily another action is tried where nothing new happens

    def __post_init__(self) -> None:
        at_least(self, 1, "context_length")
        at_least(self, 0, "exploration")
        probability(self, "failed_action_prob")

    @property
    def num_past(self) -> int:
        return self.context_length - 1


def at_least(config: Any, least: float, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= least:
            raise UserError(f"{name} is {getattr(config, name)}, expected at least {least}")


def probability(config: Any, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}, expected 0 to below 1")


class LearnedPlanner(nn.Module):
    """A planner with an `encoder`, to be given a `loss` and a `plan`.

    Config           settings of the method: a frozen dataclass with `memory: MemoryConfig` and `codec: CodecConfig`
    predicts_states  its plans hold states
    keeps_trace      `plan(keep_trace=True)` records how a plan took shape
    """

    Config: ClassVar[type[Any]]
    predicts_states: ClassVar[bool] = False
    keeps_trace: ClassVar[bool] = False
    privileged = False
    encoder: nn.Module
    size_free = True  # whether its weights serve grids of all sizes

    def __init__(self, spec: PlanSpec, config: Any) -> None:
        super().__init__()
        memory: MemoryConfig = config.memory
        if (memory.exploration or memory.visit_memory) and (spec.state_field is None or spec.actions.n is None):
            raise UserError(
                "visit_memory and exploration count states and actions; expected a task with an observed states stream "
                "and discrete actions; set both to 0"
            )
        self.spec, self.config = spec, config
        codec_config: CodecConfig = config.codec
        self.codec = make_codec(spec.actions, codec_config)

    @property
    def action_steps(self) -> int | None:
        return getattr(self.config, "action_steps", None)

    @property
    def needs(self) -> WindowNeeds:
        """What the method needs of the data."""
        memory, types = self.config.memory, getattr(self.config, "subgoal_types", ("target",))
        return WindowNeeds(getattr(self.config, "horizon", 1), memory.context_length, types, memory.visit_memory)

    # --- learning ----------------------------------------------------------------------------------------------------

    def fit_codec(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Statistics of actions and vector observations, from the demonstrations; errors of reconstruction by name."""
        fit_statistics(self, episodes)
        return self.codec.fit(demonstrated_actions(self.spec, episodes, self.needs.horizon))

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        """The loss of a batch; changes nothing. `rng` has no batch axes."""
        raise NotImplementedError

    def after_step(self, losses: Losses) -> None:
        """Between the optimizer's step and the moving average: what is learnt by other means than gradients."""

    def origin(self, current: Observations) -> Tensor | None:
        """What actions are relative to, [B, A]."""
        if self.spec.actions.origin is None:
            return None
        name, first = self.spec.actions.origin
        return current[name][:, first : first + len(self.spec.actions.low)]

    def action_tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Demonstrated actions as tokens [B, H / chunk, *codes], and which are valid: of chunks that are whole."""
        valid = batch.valid["actions"]
        tokens = self.codec.encode(batch.actions, self.origin(batch.current), valid)
        if self.codec.chunk > 1:
            valid = valid.reshape(len(valid), -1, self.codec.chunk).all(-1)
        codes = self.codec.stream.shape
        return tokens, valid.reshape(*valid.shape, *(1 for _ in codes)).expand(*valid.shape, *codes)

    def with_failed_actions(self, batch: Batch, rows: Rng, first_actions: Tensor) -> History:
        """Now and then, other actions than the demonstrated one were done before, and left everything as it was.

        Demonstrations hardly ever return to a state: without this, nothing would be known of what to do next there.
        """
        history, prob = batch.history, self.config.memory.failed_action_prob
        if history.action_counts is None or not prob:
            return history
        number = history.action_counts.shape[1]
        share = rows.fold(RNG_FAILED, "share").uniform()[:, None]  # few or many
        shown = rows.fold(RNG_FAILED).uniform()[:, None] < prob
        failed = shown & (rows.fold(RNG_FAILED, "actions").uniform((number,)) < share)
        failed &= torch.arange(number, device=failed.device) != first_actions[:, None]
        often = torch.exp2(3 * rows.fold(RNG_FAILED, "often").uniform((number,))).round().long()  # 1 to 8 times
        return history._replace(action_counts=history.action_counts + failed * often)

    # --- planning ----------------------------------------------------------------------------------------------------

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> PlannerMemory:
        settings_ = self.config.memory
        observations = observations.to(self.device)
        memory = PlannerMemory(
            state=Observations({name: observations[name].clone() for name in self.spec.step_fields}),
            history=HistoryBuffer(self.spec, observations, settings_.num_past),
            scenes=SceneCache(self.spec, len(observations)),
        )
        if settings_.visit_memory or settings_.exploration:
            memory.visits = VisitMemory(self.spec, observations)
        if settings_.exploration:
            memory.exploration = Exploration(observations, settings_.exploration)
        return memory

    def plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, PlannerMemory]:  # fmt: skip
        raise NotImplementedError

    def observe(self, memory: PlannerMemory, actions: Tensor, observations: Observations, ids: Tensor) -> PlannerMemory:
        ids, actions, observations = ids.to(self.device), actions.to(self.device), observations.to(self.device)
        memory.history.update(ids, memory.state[ids], actions)
        if memory.visits is not None:
            name = self.spec.state_field or ""
            memory.visits.update(ids, memory.state[name][ids], actions, observations)
            if memory.exploration is not None:
                memory.exploration.update(ids, observations[name], memory.visits)
        for name in self.spec.step_fields:
            memory.state[name][ids] = observations[name]
        return memory

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def exploratory_action(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor
    ) -> Tensor | None:
        """The action that each row is to begin with; −1 where there is none."""
        if memory.exploration is None or memory.visits is None:
            return None
        states = observations[self.spec.state_field or ""]
        return memory.exploration.exploratory_action(ids, states, memory.visits, rng)

    def conditioning(
        self, observations: Observations, memory: PlannerMemory, ids: Tensor, copies: int = 1
    ) -> tuple[Encoding, History]:
        """The encoded scenes of the rows `ids`, and their history, of which `copies` of each row in turn."""
        encoding = memory.scenes.encode(ids, observations, self.encoder)
        row_of_candidate = torch.arange(len(ids), device=ids.device).repeat_interleave(copies)
        history = memory.history[ids[row_of_candidate]]
        if self.config.memory.visit_memory and memory.visits is not None:
            states = observations[self.spec.state_field or ""]
            history = memory.visits.add_to(history, ids, states, row_of_candidate)
        return encoding, history

    # --- other settings, other sizes ---------------------------------------------------------------------------------

    def with_options(self, **options: Any) -> Self:
        """The same weights, used in another way (iterations, temperature, order, …)."""
        return self._with(config=settings.override(self.config, **options)) if options else self

    def for_spec(self, spec: PlanSpec) -> Self:
        """The same weights, in a task whose grid may be of another size."""
        own = self.spec
        if self.size_free and spec.geometry is not None and own.geometry is not None:
            own = _resized(own, spec)
        parts = {"fields": spec.fields, "actions": spec.actions, "streams": _with_goals_of(own, spec)}
        for part, found in parts.items():
            if found != (expected := getattr(own, part)):
                raise UserError(f"the task has the {part} {found}, expected {expected}, with which the planner learnt")
        return self if own == self.spec else self._with(spec=own)

    def _with(self, **changed: Any) -> Self:
        """A view of the same modules with another spec or config."""
        other = type(self).__new__(type(self))
        nn.Module.__init__(other)
        other.__dict__.update({**self.__dict__, **changed})
        return other


def _resized(own: PlanSpec, other: PlanSpec) -> PlanSpec:
    """The spec `own` with the grid's size of `other`."""
    assert own.states is not None
    assert other.states is not None
    assert own.grid_field is not None
    assert other.geometry is not None
    fields = dict(own.fields)
    shape = (other.geometry.width, other.geometry.height)
    fields[own.grid_field] = dataclasses.replace(fields[own.grid_field], shape=shape)
    size = other.geometry.num_cells * own.states.directions
    if own.state_field is not None:
        fields[own.state_field] = dataclasses.replace(fields[own.state_field], sizes=(size,))
    streams = {"states": dataclasses.replace(own.states, size=size)}
    if own.goals is not None:
        streams["goals"] = dataclasses.replace(own.goals, size=other.geometry.num_cells * own.goals.directions)
    return PlanSpec(fields, own.actions, streams)


def _with_goals_of(own: PlanSpec, spec: PlanSpec) -> dict[str, Any]:
    """The streams of `spec`, with the goals of `own`: how many are planned is the planner's choice."""
    streams = {name: stream for name, stream in spec.streams.items() if name != "goals"}
    return streams if own.goals is None else {**streams, "goals": own.goals}


def bc_loss(logits: Tensor, tokens: Tensor, counts: Tensor) -> Losses:
    """Cross-entropy of demonstrated action tokens [B, T, *codes] under logits [B, T, *codes, S], where `counts`."""
    nll = functional.cross_entropy(logits.flatten(0, -2), tokens.flatten(), reduction="none")
    loss = (nll * counts.flatten()).sum() / counts.sum()
    correct = (logits[:, -1].argmax(-1) == tokens[:, -1]).float().mean()
    return Losses(loss, {"loss/actions": loss.detach(), "accuracy/actions": correct})


def past_and_current(planner: LearnedPlanner, batch: Batch, same_goals: bool = False) -> tuple[Tensor, Tensor]:
    """Action tokens [B, C + 1, *codes] of past steps and the current one, and which count in a loss.

    Past steps count where the scene was as it is now, and with `same_goals`, where the same goals were ahead. They
    count only where an action is a step of the plan by itself: chunks and actions relative to a step are left out.
    """
    tokens, valid = planner.action_tokens(batch)
    tokens, valid, history = tokens[:, :1], valid[:, :1], batch.history
    if planner.codec.chunk > 1 or planner.spec.actions.origin is not None:
        past = torch.zeros(
            len(tokens), history.valid.shape[1], *tokens.shape[2:], dtype=torch.int64, device=tokens.device
        )
        return torch.cat([past, tokens], 1), torch.cat([past.bool(), valid], 1)
    assert history.same_scene is not None
    alike = history.valid & history.same_scene
    if same_goals and history.same_goals is not None:
        alike = alike & history.same_goals
    past = planner.codec.encode(history.actions, None, history.valid)
    alike = alike.reshape(*alike.shape, *(1 for _ in past.shape[2:])).expand_as(past)
    return torch.cat([past, tokens], 1), torch.cat([alike, valid], 1)


def sample_action(
    planner: LearnedPlanner, logits: Tensor, current: Observations, rng: Rng, first: Tensor | None
) -> Plan:
    """One step of a plan per row, drawn from logits [B, *codes, S], unless another action is to be tried first."""
    log_p = logits.log_softmax(-1)
    tokens = rng.categorical(apply_temperature(log_p, planner.config.temperature))
    if first is not None:
        tokens = torch.where(first >= 0, first, tokens)
    chosen = log_p.gather(-1, tokens[..., None]).squeeze(-1).flatten(1) if tokens.ndim > 1 else (
        log_p.gather(-1, tokens[:, None])
    )  # fmt: skip
    actions = planner.codec.decode(tokens[:, None], planner.origin(current))
    energy = -chosen.sum(-1)
    confidence = energy.neg().exp()[:, None].expand(-1, actions.shape[1])
    return Plan(actions, {"actions": tokens[:, None]}, energy=energy, confidence=confidence)


def distance_weights(discount: float, ahead: Tensor) -> Tensor:
    """What steps count in the loss, by how far ahead they are: n ** −discount, 1 for the next one.

    What is far ahead is hard to predict. If all steps counted alike, that would drown out the next action, which is the
    one that is executed (docs/log.md).
    """
    return ahead.clamp(min=1).float() ** -discount


def privileged_goals(spec: PlanSpec, oracle: Oracle | None, ids: Tensor) -> Tensor:
    """What the simulator says is to be reached next, [n, num_goals]; where fewer are left, the last stands again."""
    if oracle is None or oracle.privileged_goals is None:
        raise UserError(
            "this planner gets its goals from the simulator, and the task tells none; see Task.privileged_goals"
        )
    found = [oracle.privileged_goals(oracle.envs[row]) for row in ids.tolist()]
    number = spec.num_goals
    padded = [[*goals[:number], *([goals[-1]] * (number - len(goals)))] for goals in found]
    return torch.tensor(padded, device=ids.device)
