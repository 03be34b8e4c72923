"""A problem small enough to know the answer: does the flow sample what it was shown?

A walker on a ring of five cells moves three times: left, not at all, or right. It has momentum: it does what it did
before with probability 0.7. A plan is three actions and the three cells where they are taken; the first cell is given.
Since states follow from actions, only 27 plans exist per start, and the chance of each is known. A network that never
sees those chances, only samples, is trained with the real loss and sampled with the real sampler.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.flow import Path, Rng, Source, Tokens, denoising_loss, sample

RING, HORIZON, MOVES = 5, 3, (-1, 0, 1)
SIZES = {"states": RING, "actions": len(MOVES)}
SHAPES = {"states": (HORIZON,), "actions": (HORIZON,)}
BATCH, STEPS, LEARNING_RATE = 512, 1000, 6e-3
MOMENTUM = 0.7


def plans() -> tuple[Tensor, Tensor]:
    """Every action sequence [27, 3], and its probability [27]."""
    actions = torch.tensor(list(itertools.product(range(len(MOVES)), repeat=HORIZON)))
    repeats = (actions[:, 1:] == actions[:, :-1]).sum(-1)
    other = (1 - MOMENTUM) / (len(MOVES) - 1)
    chances = MOMENTUM**repeats * other ** (HORIZON - 1 - repeats) / len(MOVES)
    return actions, chances


def walk(start: Tensor, actions: Tensor) -> Tensor:
    """The cells [..., 3] in which the actions [..., 3] are taken."""
    moves = torch.tensor(MOVES)[actions]
    return (start[..., None] + moves.cumsum(-1) - moves) % RING


def demonstrations(number: int, rng: Rng) -> dict[str, Tensor]:
    actions, chances = plans()
    chosen = actions[rng.fold("plan").categorical(chances.expand(number, -1))]
    start = rng.fold("start").integers(RING)
    return {"states": walk(start, chosen), "actions": chosen}


class Network(nn.Module):
    """Embeddings of six tokens and the time, two hidden layers, logits for each token."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        tokens = HORIZON * len(SIZES)
        self.embed = nn.ModuleDict({name: nn.Embedding(size + 1, 16) for name, size in SIZES.items()})
        self.body = nn.Sequential(
            nn.Linear(tokens * 16 + 1, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)
        )
        self.heads = nn.ModuleDict({name: nn.Linear(width, HORIZON * size) for name, size in SIZES.items()})

    def forward(self, x_t: Tokens, t: Tensor) -> dict[str, Tensor]:
        parts = [self.embed[name](x_t[name]).flatten(-2) for name in SIZES]
        hidden = self.body(torch.cat([*parts, t[..., None]], -1))
        return {name: head(hidden).unflatten(-1, (HORIZON, -1)) for name, head in self.heads.items()}


@dataclass(frozen=True)
class Verdict:
    """How well samples match the known law."""

    source: Source
    possible: float  # share of sampled plans whose states follow from their actions
    distance: float  # total variation between sampled and true plan frequencies
    chance_distance: float  # what as many draws from the true law would show on average
    seconds: float

    @property
    def passed(self) -> bool:
        return self.possible >= 0.95 and self.distance <= self.chance_distance + 0.07


def learn(source: Source, seed: int = 0, steps: int = STEPS, tick: Callable[[], None] | None = None) -> Network:
    """Train on fresh demonstrations, the first state given as it is when planning."""
    path = Path(SIZES, source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network()
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    given = {"states": (torch.arange(HORIZON) == 0).expand(BATCH, -1)}
    for step in range(steps):
        rng = Rng.of(seed, step, batch=(BATCH,))
        x_1 = demonstrations(BATCH, rng)
        t = rng.fold("t").uniform()
        x_t = path.corrupt(x_1, t, rng, given)
        loss = denoising_loss(path, network(x_t, t), x_1, x_t, given=given).total
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
        if tick is not None:
            tick()
    return network


@torch.no_grad()
def judge(source: Source, network: Network, seconds: float, number: int = 4000, seed: int = 1) -> Verdict:
    """Sample `number` plans from given starts and compare their frequencies with the truth."""
    rng = Rng.of(seed, batch=(number,))
    path = Path(SIZES, source)
    x_0 = path.noise(SHAPES, rng)
    x_0["states"][:, 0] = rng.fold("start").integers(RING)
    given = {"states": (torch.arange(HORIZON) == 0).expand(number, -1)}
    result = sample(path, network, x_0, rng, steps=64, given=given).tokens
    possible = (walk(x_0["states"][:, 0], result["actions"]) == result["states"]).all(-1)
    _, chances = plans()
    code = (result["actions"] * len(MOVES) ** torch.arange(HORIZON - 1, -1, -1)).sum(-1)
    found = torch.bincount(code[possible], minlength=len(chances)) / number  # impossible plans count as misses
    distance = ((found - chances).abs().sum() + (~possible).float().mean()) / 2
    # A frequency of n draws misses its chance p by about sqrt(2 p (1 − p) / (pi n)).
    by_chance = (chances * (1 - chances) * 2 / (math.pi * number)).sqrt().sum() / 2
    return Verdict(source, possible.float().mean().item(), distance.item(), by_chance.item(), seconds)


def run(source: Source, tick: Callable[[], None] | None = None) -> Verdict:
    began = time.perf_counter()
    network = learn(source, tick=tick)
    return judge(source, network, time.perf_counter() - began)
