"""What all learned planners share: an encoder of the scene, an action codec, and what is remembered of an episode.

The memory is the same for all of them, so that a comparison is about ideas: the last steps with their actions, and,
with visit memory, the set of states visited before with what was done there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from genplan.config import leaves, override
from genplan.data.windows import TaskMixture, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.models.codecs import ActionCodec, ChunkCodes, demonstrated_actions, make_codec
from genplan.models.encoders import Encoding, fit_statistics
from genplan.models.offset import OffsetHead
from genplan.models.settings import MemoryConfig
from genplan.planners.memory import HistoryBuffer, PlannerMemory, SceneCache, VisitMemory
from genplan.spec import Geometry, PlanSpec
from genplan.types import Batch, Episode, History, Losses, Observations, Oracle, Plan, WindowNeeds

# Label of random draws, part of every result: never renamed.
RNG_FAILED = "vain"


class LearnedPlanner(nn.Module):
    """A planner with an `encoder`, to be given a `loss` and a `make_plan`.

    Config           settings of the method: a frozen dataclass with `memory: MemoryConfig` and `codec: CodecConfig`;
                     with `privileged_goals`, goals come from the simulator
    options          settings that are not built into the weights and can be chosen when planning, if `Config` has them
    variants         settings in which methods of METHODS that share the class differ; chosen by the name of the method
    keeps_trace      `plan(keep_trace=True)` records how a plan took shape
    size_free        its weights serve grids of all sizes
    """

    Config: ClassVar[type[Any]]
    options: ClassVar[tuple[str, ...]] = ("iterations", "temperature", "action_steps", "exploration")
    variants: ClassVar[tuple[str, ...]] = ()
    keeps_trace: ClassVar[bool] = False
    size_free = True
    encoder: nn.Module

    def __init__(self, spec: PlanSpec, config: Any) -> None:
        super().__init__()
        self.spec, self.config = spec, self.resolved(config, spec)
        self.privileged: bool = getattr(config, "privileged_goals", False)
        if self.privileged and spec.goals is None:
            raise UserError(
                "the method gets its goals from the simulator, and the task has no goals; use DT-noGC or LEAP-noGC"
            )
        self.codec = self.make_codec(spec, self.config)
        self._check_settings()

    @classmethod
    def resolved(cls, config: Any, spec: PlanSpec) -> Any:
        """The settings with those filled in that are left open (None, auto), as they suit a task."""
        return config

    def make_codec(self, spec: PlanSpec, config: Any) -> ActionCodec:
        """How actions become what the method predicts."""
        return make_codec(spec.actions, config.codec)

    def _check_settings(self) -> None:
        if isinstance(self.codec, ChunkCodes):
            self.codec.num_used(self.config.codec.used_levels)
        memory: MemoryConfig = self.config.memory
        codes = self.codec.stream
        one_token = self.codec.chunk == 1 and not codes.shape and codes.size == self.spec.actions.n
        if (memory.exploration or memory.visit_memory) and (self.spec.state_field is None or not one_token):
            raise UserError(
                "visit_memory and exploration count states and actions; expected a task with an observed states stream "
                "and discrete actions of one token each; set both to 0"
            )

    @property
    def action_steps(self) -> int | None:
        return getattr(self.config, "action_steps", None)

    @property
    def needs(self) -> WindowNeeds:
        """What the method needs of the data."""
        memory, types = self.config.memory, getattr(self.config, "subgoal_types", ("target",))
        return WindowNeeds(getattr(self.config, "horizon", 1), memory.context_length, types, memory.visit_memory)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    # --- learning ----------------------------------------------------------------------------------------------------

    def fit_codec(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Statistics of actions and vector observations, from the demonstrations; errors of reconstruction by name."""
        fit_statistics(self, episodes)
        return self.codec.fit(demonstrated_actions(self.spec, episodes, self.needs.horizon, self.codec.chunk))

    def pretrain(
        self, windows: Windows | TaskMixture, held_out: Windows | TaskMixture, most_steps: int
    ) -> dict[str, float]:
        """What is learnt once, before the training, in at most as many steps: losses on what was held out, by name."""
        return {}

    def loss(self, batch: Batch, rng: Rng) -> Losses:
        """The loss of a batch; changes nothing. `rng` has no batch axes."""
        raise NotImplementedError

    def after_step(self, losses: Losses) -> None:
        """Between the optimizer's step and the moving average: what is learnt by other means than gradients."""

    def after_validation(self, metrics: Mapping[str, float]) -> None:
        """With the means of what `loss` tells, on held-out demonstrations, of the averaged weights."""

    def origin(self, current: Observations) -> Tensor | None:
        """What actions are relative to, [B, A]."""
        if self.spec.actions.origin is None:
            return None
        name, first = self.spec.actions.origin
        return current[name][:, first : first + len(self.spec.actions.low)]

    def action_tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Demonstrated actions as tokens [B, H / chunk, *codes], and which are valid: of chunks that are whole."""
        valid = batch.valid["actions"]
        tokens = self.codec.encode(batch.actions, self.origin(batch.current))
        valid = valid.reshape(len(valid), -1, self.codec.chunk).all(-1)
        return tokens, valid.reshape(*valid.shape, *(1 for _ in self.codec.stream.shape)).expand_as(tokens)

    def plan_tokens(self, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """All tokens of a plan, and which are valid. Where a step of it stands for a chunk of actions, states and goals
        are those before the first."""
        tokens, valid = ({name: part[name][:, :: self.codec.chunk] for name in self.spec.streams}
                         for part in (batch.tokens, batch.valid))  # fmt: skip
        actions, valid_actions = self.action_tokens(batch)
        return {**tokens, "actions": actions}, {**valid, "actions": valid_actions}

    # --- offsets of codes that have them -----------------------------------------------------------------------------

    def make_offset_head(self, sees_goals: bool = True) -> OffsetHead | None:
        """What predicts the offsets of action codes; None where there are none."""
        if not isinstance(self.codec, ChunkCodes):
            return None
        config, number = self.config, self.needs.horizon // self.codec.chunk
        return OffsetHead(self.spec, config.network, config.memory, self.codec, number, sees_goals)

    def offset_loss(
        self, head: OffsetHead, batch: Batch, tokens: Mapping[str, Tensor], valid: Mapping[str, Tensor]
    ) -> Tensor:
        assert isinstance(self.codec, ChunkCodes)
        counted, goals = valid["actions"][..., 0], tokens.get("goals")
        if goals is not None and head.goal is not None:
            counted = counted & valid["goals"].flatten(2).all(-1)
        return head.loss(self.codec, batch, self.origin(batch.current), tokens["actions"], goals, counted)

    def decode(
        self, tokens: Tensor, observations: Observations, history: History | None = None, goals: Tensor | None = None
    ) -> Tensor:
        """Action tokens of plans -> actions [n, H, *A]: the one place where a codec is undone."""
        head: OffsetHead | None = getattr(self, "offset", None)
        if head is None or history is None or not isinstance(self.codec, ChunkCodes):
            return self.codec.decode(tokens, self.origin(observations))
        levels = torch.tensor([self.codec.num_used(self.config.codec.used_levels)], device=tokens.device)
        scaled = self.codec.scaled(tokens[:, None], levels[:, None])
        offset = head(observations.only(self.spec.step_fields), history, scaled, levels, goals)
        return self.codec.restored((scaled + offset).squeeze(1), self.origin(observations))

    def clipped_share(self, batch: Batch) -> Tensor:
        """Of the demonstrated actions, those that the codec cannot express and clips."""
        valid = batch.valid["actions"]
        return (self.codec.is_clipped(batch.actions, self.origin(batch.current)) & valid).sum() / valid.sum()

    def with_failed_actions(self, batch: Batch, rows: Rng) -> History:
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
        failed &= torch.arange(number, device=failed.device) != batch.actions[:, :1]
        often = torch.exp2(3 * rows.fold(RNG_FAILED, "often").uniform((number,))).round().long()  # 1 to 8 times
        return history._replace(action_counts=history.action_counts + failed * often)

    # --- planning ----------------------------------------------------------------------------------------------------

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> PlannerMemory:
        settings, device, spec = self.config.memory, self.device, self.spec
        observations = observations.to(device)
        memory = PlannerMemory(
            last=Observations({name: observations[name].clone() for name in spec.fields}),
            history=HistoryBuffer(spec, observations, device, settings.num_past),
            scenes=SceneCache(spec, observations, device),
        )
        if settings.visit_memory or settings.exploration:
            memory.visits = VisitMemory(spec, len(observations), device, settings.exploration)
        return memory

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, PlannerMemory]:  # fmt: skip
        observations, ids, rng = observations.to(self.device), ids.to(self.device), Rng(rng.key.to(self.device))
        goals = self._privileged_goals(oracle, ids) if self.privileged else None
        return self.make_plan(observations, memory, rng, ids, goals, keep_trace), memory

    def make_plan(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor, goals: Tensor | None,
        keep_trace: bool,
    ) -> Plan:  # fmt: skip
        """Plans for the rows `ids` [n], on the device of the weights; `goals` [n, num_goals] if privileged."""
        raise NotImplementedError

    def observe(self, memory: PlannerMemory, actions: Tensor, observations: Observations, ids: Tensor) -> PlannerMemory:
        ids, actions, observations = ids.to(self.device), actions.to(self.device), observations.to(self.device)
        last = memory.last[ids]
        memory.history.update(ids, last, actions)
        if memory.visits is not None:
            memory.visits.update(ids, last, actions, observations)
        if memory.adaptation is not None:
            memory.adaptation.update(ids, last, actions, observations)
        if memory.outcomes is not None:
            memory.outcomes.update(ids, actions, last, observations)
        for name, kept in memory.last.fields.items():
            kept[ids] = observations[name]
        return memory

    def exploratory_action(
        self, observations: Observations, memory: PlannerMemory, rng: Rng, ids: Tensor
    ) -> Tensor | None:
        """The action that each row is to begin with; −1 where there is none."""
        if memory.visits is None or not self.config.memory.exploration:
            return None
        return memory.visits.exploratory_action(ids, observations[memory.visits.state], rng)

    def conditioning(
        self, observations: Observations, memory: PlannerMemory, ids: Tensor, copies: int = 1
    ) -> tuple[Encoding, History]:
        """The encoded scenes of the rows `ids`, and their history, of which `copies` of each row in turn."""
        encoding = memory.scenes.encode(ids, observations, self.encoder)
        row_of_candidate = torch.arange(len(ids), device=ids.device).repeat_interleave(copies)
        history = memory.history[ids[row_of_candidate]]
        if self.config.memory.visit_memory and memory.visits is not None:
            history = memory.visits.add_to(history, ids, observations[memory.visits.state], row_of_candidate)
        return encoding, history

    def state_probs(self, observations: Observations, goal: int | None = None) -> Tensor | None:
        """p(state) at every step of a plan, from pure noise, [n, H, states]; None if the method predicts no states.

        goal  of all plans, if it is known
        """
        return None

    def _privileged_goals(self, oracle: Oracle | None, ids: Tensor) -> Tensor:
        """What the simulator says is to be reached next, [n, num_goals]; where fewer are left, the last again."""
        if oracle is None or oracle.privileged_goals is None:
            raise UserError(
                "this planner gets its goals from the simulator, and the task tells none; see Task.privileged_goals"
            )
        found, number = [oracle.privileged_goals(oracle.envs[row]) for row in ids.tolist()], self.spec.num_goals
        if not all(found):
            raise UserError("the task names no goal for an episode that is not over; see Task.privileged_goals")
        padded = [[*goals[:number], *([goals[-1]] * (number - len(goals)))] for goals in found]
        return torch.tensor(padded, device=ids.device)

    # --- other settings, other sizes ---------------------------------------------------------------------------------

    def with_options(self, **options: Any) -> Self:
        """The same weights, used in another way."""
        known = [name for name in self.options if name in leaves(self.config)]
        if wrong := [name for name in options if name not in known]:
            raise UserError(
                f"{wrong[0]} cannot be set for a trained {type(self).__name__}; expected {', '.join(known)}"
            )
        return self._with(config=self.resolved(override(self.config, **options), self.spec)) if options else self

    def for_spec(self, spec: PlanSpec) -> Self:
        """The same weights, in a task whose grid may be of another size."""
        own = self.spec
        if self.size_free and spec.geometry is not None and own.geometry is not None:
            own = _resized(own, spec.geometry)
        # How many goals are planned is the planner's choice.
        streams = {name: stream for name, stream in spec.streams.items() if name != "goals"}
        streams |= {} if own.goals is None else {"goals": own.goals}
        for part, found in {"fields": spec.fields, "actions": spec.actions, "streams": streams}.items():
            if found != (expected := getattr(own, part)):
                if isinstance(found, Mapping):  # what differs is enough
                    here = {name: one for name, one in found.items() if expected.get(name) != one}
                    there = {name: one for name, one in expected.items() if found.get(name) != one}
                    found, expected = here or "no more", there or "no more"
                raise UserError(f"the task has the {part} {found!s:.200}, expected {expected!s:.200}, with which the "
                                "planner learnt; name a task of its kind")  # fmt: skip
        return self if own == self.spec else self._with(spec=own)

    def _with(self, **changed: Any) -> Self:
        """A view of the same modules with another spec or config."""
        other = type(self).__new__(type(self))
        nn.Module.__init__(other)
        other.__dict__.update({**self.__dict__, **changed})
        other._check_settings()
        return other


def _resized(spec: PlanSpec, geometry: Geometry) -> PlanSpec:
    """The spec with a grid of another size."""
    fields, streams = dict(spec.fields), dict(spec.streams)
    for name, stream in spec.streams.items():
        if stream.points_at == spec.grid_field is not None:
            streams[name] = replace(stream, size=geometry.num_cells * stream.directions)
            fields[spec.grid_field] = replace(fields[spec.grid_field], shape=(geometry.width, geometry.height))
            if stream.observed is not None:
                fields[stream.observed] = replace(fields[stream.observed], sizes=(streams[name].size,))
    return PlanSpec(fields, spec.actions, streams)


def distance_weights(discount: float, ahead: Tensor) -> Tensor:
    """What steps count in the loss, by how far ahead they are: n ** −discount, 1 for the next one.

    What is far ahead is hard to predict. If all steps counted alike, that would drown out the next action, which is the
    one that is executed (docs/log.md).
    """
    return ahead.clamp(min=1).float() ** -discount
