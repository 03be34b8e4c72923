"""GenPlan: plan by denoising states, goals and actions together (Algorithms 1 and 2 on our flow core).

GenPlan-M corrupts with masks, GenPlan-U with uniform noise. Training and planning reach the network through the same
`network` callable. Nothing here knows paths, doors or words: what it knows, it learnt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from genplan.config import GenPlanConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
from genplan.errors import UserError
from genplan.flow import (
    EntropyBound,
    Logits,
    Path,
    Rng,
    Source,
    Tokens,
    denoising_loss,
    entropy,
    sample,
)
from genplan.models.denoiser import Denoiser
from genplan.models.encoder import Context, Encoder
from genplan.models.paper import PaperDenoiser, PaperEncoder
from genplan.types import Observations, Oracle, Plan

ENCODED_TOGETHER = 64  # maps


@dataclass(frozen=True)
class Losses:
    total: Tensor
    metrics: dict[str, Tensor]


@dataclass
class Memory:
    """What is remembered of every row: its last steps, where it has been, and the encoding of its map."""

    states: Tensor  # [B, C]
    actions: Tensor  # [B, C]
    valid: Tensor  # bool [B, C]
    state: Tensor  # [B], the state seen last
    visited: Tensor | None = None  # bool [B, states]: the trail
    tried: Tensor | None = None  # int16 [B, states, actions]: how often, since anything changed but the state
    last: Observations | None = None  # what was seen last
    map: Tensor | None = None  # what was encoded
    mission: Tensor | None = None
    cells: Tensor | None = None  # the encoding
    words: Tensor | None = None
    encoded: Tensor | None = None  # bool [B]


class GenPlan(nn.Module):
    needs_oracle = False

    def __init__(self, spec: PlanSpec, config: GenPlanConfig) -> None:
        super().__init__()
        self.spec, self.config = spec, config
        self.path = Path(spec.sizes, Source(config.source))
        sizes = (config.width, config.heads, config.layers, config.horizon, config.context, config.dropout)
        self.encoder: nn.Module
        self.denoiser: nn.Module
        if config.preset == "paper":
            self.encoder, self.denoiser = PaperEncoder(spec, config.width), PaperDenoiser(spec, *sizes)
        else:
            self.encoder = Encoder(spec, config.width, config.passes)
            self.denoiser = Denoiser(spec, *sizes, config.trail)
        self.bound = EntropyBound(config.entropy_bound)

    # --- the one way to the network ----------------------------------------------------------------------------------

    def network(
        self,
        context: Context,
        features: Tensor | None,
        past: Past,
        per_map: int,
    ) -> Logits:
        """(x_t, t) -> logits, with everything that does not change while denoising computed beforehand."""
        known = self.denoiser.know(context, features, past, per_map)  # type: ignore[operator]

        def logits(x_t: Tokens, t: Tensor) -> Mapping[str, Tensor]:
            return self.denoiser(x_t, t, known)  # type: ignore[no-any-return]

        return logits

    # --- learning ----------------------------------------------------------------------------------------------------

    def loss(self, batch: PlanBatch, rng: Rng) -> Losses:
        """Algorithm 1 for one batch; `rng` has no batch axes."""
        size, number = len(batch), batch.num_maps
        rows = rng.fold(torch.arange(size, device=batch.map_row.device))
        t = rows.fold("t").uniform()
        # Some windows as pure noise: where every plan starts, and where entropy and energy are read.
        noisy = rows.fold("noise").uniform() < self.config.noise_share
        t = torch.where(noisy, 0.0, t)
        given = self._given(batch, rows, noisy)
        path = self.path if batch.sizes == self.path.sizes else Path(batch.sizes, self.path.source)
        x_t = path.corrupt(batch.x_1, t, rows, given)
        # Behind the end of an episode stands noise, as it does there when a plan is begun.
        for name, x in x_t.items():
            blank = path.stream_noise(name, x.shape[1:], rows.fold("blank"))
            x_t[name] = torch.where(batch.valid[name], x, blank)
        context = self.encoder(batch.map, batch.mission, number)
        network = self.network(context, batch.features, self._tried_in_vain(batch, rows), size // number)
        logits = network(x_t, t)
        learnt = denoising_loss(path, logits, batch.x_1, x_t, batch.valid, given)
        if self.config.noise_share:
            nats = entropy(logits["actions"], batch.valid["actions"] & noisy[:, None])
        else:  # Algorithm 1 to the letter: a second look, at pure noise
            noise = path.corrupt(batch.x_1, 0.0, rows.fold("again"), given)
            nats = entropy(network(noise, torch.zeros_like(t))["actions"], batch.valid["actions"])
        metrics = {f"loss/{name}": loss for name, loss in learnt.losses.items()}
        metrics |= {f"right/{name}": right for name, right in learnt.accuracies.items()}
        metrics |= {"entropy": nats, "multiplier": self.bound.multiplier}
        total = learnt.total
        if self.config.entropy_bound > 0:
            total = total + self.bound.penalty(nats)
            if self.training:
                self.bound.update(nats)
        return Losses(total, {name: value.detach() for name, value in metrics.items()})

    def _given(self, batch: PlanBatch, rows: Rng, noisy: Tensor) -> dict[str, Tensor]:
        """The current state, and now and then a whole stream of goals or states."""
        given = {"states": batch.given["states"]}
        for name in ("goals", "states"):
            if name in batch.x_1 and self.config.given_share:
                shown = (rows.fold("given", name).uniform() < self.config.given_share) & ~noisy
                shape = (-1, *(1 for _ in batch.x_1[name].shape[1:]))
                whole = shown.reshape(shape) & batch.valid[name]
                given[name] = given[name] | whole if name in given else whole
        return given

    def _tried_in_vain(self, batch: PlanBatch, rows: Rng) -> Past:
        """Now and then, other actions than the demonstrated one were tried before, and left everything as it was.

        Demonstrations hardly ever return to a situation: without this, nothing would be known of what to do next there.
        """
        past = batch.past
        if past.tried is None or not self.config.vain_share:
            return past
        number = past.tried.shape[1]
        share = rows.fold("vain", "share").uniform()[:, None]  # few or many
        told = rows.fold("vain").uniform()[:, None] < self.config.vain_share
        vain = told & (rows.fold("vain", "actions").uniform((number,)) < share)
        vain &= torch.arange(number, device=vain.device) != batch.x_1["actions"][:, :1]
        often = torch.exp2(3 * rows.fold("vain", "often").uniform((number,))).round().long()  # 1 to 8 times
        return past._replace(tried=past.tried + vain * often)

    # --- planning ----------------------------------------------------------------------------------------------------

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        size, context = len(observations), self.config.context
        blank = torch.zeros(size, context, dtype=torch.int64)
        memory = Memory(blank, blank.clone(), blank.bool(), observations.state.clone())
        if self.config.trail:
            memory.visited = torch.zeros(size, self.spec.num_states, dtype=torch.bool)
            memory.tried = torch.zeros(size, self.spec.num_states, self.spec.num_actions, dtype=torch.int16)
            memory.last = observations[torch.arange(size)]  # a copy
        return memory

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, Memory]:  # fmt: skip
        config = self.config
        self._encode(observations, memory, rows)
        assert memory.words is not None
        cells = None if memory.cells is None else memory.cells[rows]
        context = Context(cells, memory.words[rows])
        number, wanted = len(rows), config.candidates
        each = torch.arange(number).repeat_interleave(wanted)  # candidates of a row stand together
        past = Past(memory.states[rows][each], memory.actions[rows][each], memory.valid[rows][each])
        if memory.visited is not None and memory.tried is not None:
            past = past._replace(**self._trail(memory.visited[rows], observations.state, each))
            past = past._replace(tried=memory.tried[rows, observations.state][each])
        features = None if observations.features is None else observations.features[each]
        logits = self.network(context, features, past, wanted)
        if wanted > 1:
            rng = rng[each].fold(torch.arange(wanted).repeat(number))
        x_0 = self.path.noise(self.spec.shapes(config.horizon), rng)
        x_0["states"][:, 0] = observations.state[each]
        given = torch.zeros_like(x_0["states"], dtype=torch.bool)
        given[:, 0] = True
        ordered = config.order != "random"
        result = sample(
            self.path,
            logits,
            x_0,
            rng,
            steps=config.iterations,
            order=config.order,
            first=["goals"] if ordered and config.goals_first and self.spec.num_goals else [],
            temperature=config.temperature,
            top_p=config.top_p,
            eta=config.eta,
            given={"states": given},
            energy_of=["actions"],
            keep_trace=keep_trace,
        )
        best = torch.arange(number)
        if wanted > 1:
            best = best * wanted + result.energy.reshape(number, wanted).argmin(-1)
        goals = result.tokens.get("goals")
        return Plan(
            actions=result.tokens["actions"][best],
            states=result.tokens["states"][best],
            goals=None if goals is None else goals[best],
            energy=result.energy[best],
            confidence=result.log_probs["actions"][best].exp(),
            trace=result.trace,
        ), memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        if self.config.context:
            for past, new in ((memory.states, memory.state[rows]), (memory.actions, actions)):
                past[rows] = torch.cat([past[rows, 1:], new[:, None]], 1)
            memory.valid[rows] = torch.cat([memory.valid[rows, 1:], memory.valid.new_ones(len(rows), 1)], 1)
        if memory.visited is not None and memory.tried is not None and memory.last is not None:
            memory.visited[rows, memory.state[rows]] = True
            memory.tried[rows, memory.state[rows], actions] += 1
            for seen, last in ((observations.map, memory.last.map), (observations.features, memory.last.features)):
                if seen is not None and last is not None:
                    changed = (seen != last[rows]).flatten(1).any(1)
                    memory.tried[rows[changed]] = 0  # what was in vain may not be so now
                    last[rows] = seen
        memory.state[rows] = observations.state
        return memory

    @staticmethod
    def _trail(visited: Tensor, state: Tensor, each: Tensor) -> dict[str, Tensor]:
        """Sets of states as lists of equal length."""
        visited[torch.arange(len(state)), state] = False
        row, states = visited.nonzero(as_tuple=True)
        counts = visited.sum(-1)
        if not len(row):
            return {}
        place = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
        trail = torch.zeros(len(state), int(counts.max()), dtype=torch.int64)
        trail[row, place] = states
        return {"trail": trail, "visited": torch.arange(trail.shape[1]) < counts[each, None]}

    def _encode(self, observations: Observations, memory: Memory, rows: Tensor) -> None:
        """Encode the maps and missions of `rows`, unless they are what was encoded before."""
        size = len(memory.state)
        if memory.encoded is None:
            memory.encoded = torch.zeros(size, dtype=torch.bool)
            for name in ("map", "mission"):
                seen = getattr(observations, name)
                if seen is not None:
                    setattr(memory, name, seen.new_zeros(size, *seen.shape[1:]))
        stale = ~memory.encoded[rows]
        for seen, kept in ((observations.map, memory.map), (observations.mission, memory.mission)):
            if seen is not None and kept is not None:
                stale = stale | (seen != kept[rows]).flatten(1).any(1)
        if not bool(stale.any()):
            return
        # In pieces that stay in a processor's cache from one pass of the convolution to the next.
        for piece in torch.split(stale.nonzero().squeeze(-1), ENCODED_TOGETHER):
            new, where = observations[piece], rows[piece]
            context = self.encoder(new.map, new.mission, len(where))
            if memory.words is None:
                memory.words = context.mission.new_zeros(size, context.mission.shape[1])
                if context.cells is not None:
                    memory.cells = context.cells.new_zeros(size, *context.cells.shape[1:])
            memory.words[where] = context.mission
            if context.cells is not None and memory.cells is not None:
                memory.cells[where] = context.cells
            for seen, kept in ((new.map, memory.map), (new.mission, memory.mission)):
                if seen is not None and kept is not None:
                    kept[where] = seen
            memory.encoded[where] = True

    def with_options(self, **options: Any) -> GenPlan:
        """The same weights, used in another way (iterations, temperature, order, …)."""
        return self._like(config=dataclasses.replace(self.config, **options))

    def on(self, spec: PlanSpec) -> GenPlan:
        """The same weights, in a world that may be of another size (the `paper` preset knows one size only)."""
        own = self.spec
        if spec.map_shape is not None and own.map_shape is not None and self.config.preset == "default":
            cells = spec.num_cells if own.num_goals else 0
            own = dataclasses.replace(own, map_shape=spec.map_shape, num_states=spec.num_states, goal_size=cells)
        wanted = dataclasses.replace(spec, num_goals=own.num_goals, goal_size=own.goal_size)
        for name in ("map_shape", *(field.name for field in dataclasses.fields(PlanSpec))):
            found, expected = getattr(wanted, name), getattr(own, name)
            if found != expected:
                raise UserError(f"the task has {name} {found}, expected {expected}, with which the planner learnt")
        return self if own == self.spec else self._like(spec=own, path=Path(own.sizes, self.path.source))

    def _like(self, **changed: Any) -> GenPlan:
        other = GenPlan.__new__(GenPlan)
        nn.Module.__init__(other)
        other.__dict__.update({**self.__dict__, **changed})
        return other
