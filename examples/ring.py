"""A problem small enough to know the answer: does the flow sample what it was trained on?

    python examples/ring.py

An agent on a ring of five cells moves three times: left, not at all, or right. It has momentum: it repeats its last
move with probability 0.7. A plan is three actions and the three cells where they are taken; the first cell is given.
Since states follow from actions, only 27 plans exist per start, and the probability of each is known. A network that
never sees those probabilities, only samples, is trained with the real loss and sampled with the real sampler.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genplan.flow import ProbPath, Rng, Source, Tokens, denoising_loss, sample

RING, HORIZON, MOVES = 5, 3, (-1, 0, 1)
SIZES = {"states": RING, "actions": len(MOVES)}
SHAPES = {"states": (HORIZON,), "actions": (HORIZON,)}
BATCH_SIZE, NUM_STEPS, LEARNING_RATE = 512, 1000, 6e-3
MOMENTUM = 0.7


def all_plans() -> tuple[Tensor, Tensor]:
    """Every action sequence [27, 3], and its probability [27]."""
    actions = torch.tensor(list(itertools.product(range(len(MOVES)), repeat=HORIZON)))
    repeats = (actions[:, 1:] == actions[:, :-1]).sum(-1)
    change = (1 - MOMENTUM) / (len(MOVES) - 1)
    probs = MOMENTUM**repeats * change ** (HORIZON - 1 - repeats) / len(MOVES)
    return actions, probs


def follow(start: Tensor, actions: Tensor) -> Tensor:
    """The cells [..., 3] in which the actions [..., 3] are taken."""
    moves = torch.tensor(MOVES)[actions]
    return (start[..., None] + moves.cumsum(-1) - moves) % RING


def demonstrations(num: int, rng: Rng) -> dict[str, Tensor]:
    all_actions, probs = all_plans()
    actions = all_actions[rng.fold("plan").categorical(probs.expand(num, -1))]
    start = rng.fold("start").integers(RING)
    return {"states": follow(start, actions), "actions": actions}


class Network(nn.Module):
    """Embeddings of six tokens and the time, two hidden layers, logits for each token."""

    def __init__(self, hidden_size: int = 256) -> None:
        super().__init__()
        num_tokens = HORIZON * len(SIZES)
        self.embed = nn.ModuleDict({name: nn.Embedding(size + 1, 16) for name, size in SIZES.items()})
        self.body = nn.Sequential(
            nn.Linear(num_tokens * 16 + 1, hidden_size),
            nn.GELU(),
            nn.Linear(hidden_size, hidden_size),
            nn.GELU(),
            nn.LayerNorm(hidden_size),
        )
        self.heads = nn.ModuleDict({name: nn.Linear(hidden_size, HORIZON * size) for name, size in SIZES.items()})

    def forward(self, x_t: Tokens, t: Tensor) -> dict[str, Tensor]:
        parts = [self.embed[name](x_t[name]).flatten(-2) for name in SIZES]
        hidden = self.body(torch.cat([*parts, t[..., None]], -1))
        return {name: head(hidden).unflatten(-1, (HORIZON, -1)) for name, head in self.heads.items()}


@dataclass(frozen=True)
class ToyResult:
    """How well samples match the known distribution."""

    source: Source
    valid_share: float  # fraction of sampled plans whose states follow from their actions
    distance: float  # total variation between sampled and true plan frequencies
    true_distance: float  # what as many draws from the true distribution would show on average
    seconds: float  # of training

    @property
    def passed(self) -> bool:
        return self.valid_share >= 0.95 and self.distance <= self.true_distance + 0.07


def train(source: Source, seed: int = 0, num_steps: int = NUM_STEPS) -> Network:
    """Train on fresh demonstrations, the first state given as it is when planning."""
    path = ProbPath(SIZES, source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    given = {"states": (torch.arange(HORIZON) == 0).expand(BATCH_SIZE, -1)}
    for step in range(num_steps):
        rng = Rng.of(seed, step, batch=(BATCH_SIZE,))
        x_1 = demonstrations(BATCH_SIZE, rng)
        t = rng.fold("t").uniform()
        x_t = path.corrupt(x_1, t, rng, given)
        loss = denoising_loss(path, network(x_t, t), x_1, x_t, given=given).total
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    return network


@torch.no_grad()
def evaluate(source: Source, network: Network, seconds: float, num: int = 4000, seed: int = 1) -> ToyResult:
    """Sample `num` plans from given starts and compare their frequencies with the truth."""
    rng = Rng.of(seed, batch=(num,))
    path = ProbPath(SIZES, source)
    x_0 = path.noise(SHAPES, rng)
    x_0["states"][:, 0] = rng.fold("start").integers(RING)
    given = {"states": (torch.arange(HORIZON) == 0).expand(num, -1)}
    tokens = sample(path, network, x_0, rng, steps=64, given=given).tokens
    is_valid = (follow(x_0["states"][:, 0], tokens["actions"]) == tokens["states"]).all(-1)
    _, probs = all_plans()
    code = (tokens["actions"] * len(MOVES) ** torch.arange(HORIZON - 1, -1, -1)).sum(-1)
    frequencies = torch.bincount(code[is_valid], minlength=len(probs)) / num  # invalid plans count as misses
    distance = ((frequencies - probs).abs().sum() + (~is_valid).float().mean()) / 2
    # A frequency of n draws misses its probability p by about sqrt(2 p (1 − p) / (pi n)).
    true_distance = (probs * (1 - probs) * 2 / (math.pi * num)).sqrt().sum() / 2
    return ToyResult(source, is_valid.float().mean().item(), distance.item(), true_distance.item(), seconds)


def run(source: Source) -> ToyResult:
    start_time = time.perf_counter()
    network = train(source)
    return evaluate(source, network, time.perf_counter() - start_time)


def main() -> int:
    """Train with both noise sources and print the results; 0 if both learned the distribution."""
    torch.set_num_threads(1)  # on operations this small, a second thread costs more than it gives
    print("Three moves on a ring: 27 plans, each with a known probability. Training on samples alone.")
    line = "{:8}  {:>11}  {:>17}  {:>21}  {:>10}  {}"
    print(line.format("source", "valid plans", "distance to truth", "of as many true draws", "trained in", "result"))
    passed = True
    for source in Source:
        result = run(source)
        passed &= result.passed
        print(
            line.format(
                result.source,
                f"{result.valid_share:.1%}",
                f"{result.distance:.3f}",
                f"{result.true_distance:.3f}",
                f"{result.seconds:.1f} s",
                "learned" if result.passed else "not learned",
            ),
            flush=True,
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
