"""GenPlan: plan by denoising states, goals and actions together (Algorithms 1 and 2 on our flow core).

GenPlan-M corrupts with masks, GenPlan-U with uniform noise. Training and planning reach the network through the same
`network` callable. Nothing here knows paths, doors or words: what it knows, it learnt.

Details, and where the `default` preset differs from the paper (the preset `paper` follows its tables to the letter)
- The network: an encoder that passes messages between the cells of the map, modulated by the mission, and a small
  transformer over the plan that looks things up there; 64 wide, three layers. The paper's is 128 wide, with four.
- Memory: the last step, and a trail, the set of states visited and what was tried there; the paper's is a window of
  past steps.
- Training: half of the windows are shown as pure noise, where every plan starts; now and then the goals or the states
  are shown as given. The nearer a step of the plan, the more it counts (`nearness`; in the paper all count alike). Maps
  are turned, reflected and painted. The entropy bound is off (`entropy_bound`); the paper holds it at 0.3, in adaptive
  rows at 0.7.
- Planning: ten iterations in all rows (the paper: 5 to 15), goals before the rest, and what the network is surest of
  first (the paper: in random order), at temperature 0.5 (the paper: 1). One action is executed per plan; the paper
  executes whole plans. Of several `candidates`, the plan of least energy is taken; there is one by default.
- In worlds never seen: curiosity, as all planners here have, and surprise, which needs predicted states and which
  GenPlan alone has (`surprise.py`; `surprise` False leaves it out).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from genplan.config import GenPlanConfig
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, PlanBatch
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
from genplan.planners.learned import Learned, Losses, Memory, near
from genplan.planners.surprise import Surprise
from genplan.types import Observations, Oracle, Plan


class GenPlan(Learned):
    config: GenPlanConfig

    def __init__(self, spec: PlanSpec, config: GenPlanConfig) -> None:
        super().__init__(spec, config)
        self.any_size = config.preset == "default"
        sizes = (config.width, config.heads, config.layers, config.horizon, config.context, config.dropout)
        self.encoder: nn.Module
        self.denoiser: nn.Module
        if config.preset == "paper":
            self.encoder, self.denoiser = PaperEncoder(spec, config.width), PaperDenoiser(spec, *sizes)
        else:
            self.encoder = Encoder(spec, config)
            self.denoiser = Denoiser(spec, *sizes, config.trail)
        self.bound = EntropyBound(config.entropy_bound)

    @property
    def path(self) -> Path:
        return Path(self.spec.sizes, Source(self.config.source))

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
        path = Path(batch.sizes, Source(self.config.source))
        x_t = path.corrupt(batch.x_1, t, rows, given)
        # Behind the end of an episode stands noise, as it does there when a plan is begun.
        for name, x in x_t.items():
            blank = path.stream_noise(name, x.shape[1:], rows.fold("blank"))
            x_t[name] = torch.where(batch.valid[name], x, blank)
        context = self.encoder(batch.map, batch.mission, number)
        network = self.network(context, batch.features, self.tried_in_vain(batch, rows), size // number)
        logits = network(x_t, t)
        learnt = denoising_loss(path, logits, batch.x_1, x_t, batch.valid, given, self._weights(t.device))
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

    def _weights(self, device: torch.device) -> dict[str, Tensor]:
        ahead = torch.arange(self.config.horizon, device=device)  # of states, of which the first is given
        states, others = near(self.config.nearness, ahead), near(self.config.nearness, ahead + 1)
        return {"states": states, "actions": others, "goals": others[:, None]}

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

    # --- planning ----------------------------------------------------------------------------------------------------

    def start(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        memory = super().start(observations, oracle)
        wanted = self.config.surprise and self.config.curiosity > 0
        if wanted and self.config.horizon > 1 and observations.map is not None:
            memory.surprise = Surprise(self.spec, len(observations))
        return memory

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, rows: Tensor) -> Memory:
        if memory.surprise is not None and memory.last is not None:
            last = replace(memory.last[rows], state=memory.state[rows])
            memory.surprise.learn(rows, actions, last, observations)
        return super().observe(memory, actions, observations, rows)

    @torch.inference_mode()
    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, rows: Tensor, oracle: Oracle | None = None,
        keep_trace: bool = False,
    ) -> tuple[Plan, Memory]:  # fmt: skip
        config = self.config
        number, wanted = len(rows), config.candidates
        each = torch.arange(number).repeat_interleave(wanted)  # candidates of a row stand together
        context, past = self.recall(observations, memory, rows, wanted)
        features = None if observations.features is None else observations.features[each]
        logits = self.network(context, features, past, wanted)
        urge = self.urge(observations, memory, rng, rows)
        if wanted > 1:
            rng = rng[each].fold(torch.arange(wanted).repeat(number))
        x_0 = self.path.noise(self.spec.shapes(config.horizon), rng)
        x_0["states"][:, 0] = observations.state[each]
        now = torch.arange(config.horizon) == 0
        given = {"states": now.expand_as(x_0["states"])}
        if urge is not None:  # the rest is planned around it
            urged = urge[each, None]
            given["actions"] = now & (urged >= 0)
            x_0["actions"] = torch.where(given["actions"], urged, x_0["actions"])
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
            given=given,
            energy_of=["actions"],
            keep_trace=keep_trace,
        )
        energies = result.energy.reshape(number, wanted)
        best = torch.arange(number) * wanted + energies.argmin(-1)
        goals = result.tokens.get("goals")
        actions, states = result.tokens["actions"][best], result.tokens["states"][best]
        confidence = result.log_probs["actions"][best].exp()
        if memory.surprise is not None:  # it has the last word, over curiosity too
            where, other, hope = memory.surprise.better(rows, observations, actions, states)
            actions, states = _later(where, other, actions), _later(where, states[:, 0], states)
            confidence = _later(where, hope, confidence)
        return Plan(
            actions=actions,
            states=states,
            goals=None if goals is None else goals[best],
            energy=result.energy[best],
            energies=energies,
            confidence=confidence,
            trace=result.trace,
        ), memory


def _later(where: Tensor, first: Tensor, plan: Tensor) -> Tensor:
    """Plans [n, H], those of `where` [n] with something else first [n] and all the rest a step later."""
    return torch.where(where[:, None], torch.cat([first[:, None], plan[:, :-1]], 1), plan)
