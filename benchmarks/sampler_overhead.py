"""What one sampler step costs on top of its network call, as a ratio measured in one run.

    python benchmarks/sampler_overhead.py [--batch 256] [--threads 1]

The network is a plain 4-layer, 128-wide transformer over 3 × 10 tokens (actions, states, goals with 6, 400 and 100
tokens in their vocabularies). CPU time is compared, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from genplan.flow import ProbPath, Rng, Source, Tokens, sample

SIZES = {"actions": 6, "states": 400, "goals": 100}


class Denoiser(nn.Module):
    def __init__(self, hidden_size: int = 128, num_layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.ModuleDict({name: nn.Embedding(size + 1, hidden_size) for name, size in SIZES.items()})
        layer = nn.TransformerEncoderLayer(
            hidden_size, 4, 4 * hidden_size, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.heads = nn.ModuleDict({name: nn.Linear(hidden_size, size) for name, size in SIZES.items()})

    def forward(self, x_t: Tokens, t: Tensor) -> dict[str, Tensor]:
        tokens = torch.cat([self.embed[name](x_t[name]) for name in SIZES], 1) + t[:, None, None]
        parts = self.body(tokens).chunk(len(SIZES), 1)
        return {name: self.heads[name](part) for name, part in zip(SIZES, parts, strict=True)}


class Timed:
    """A network that adds up the CPU time spent in it."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.seconds = network, 0.0

    def __call__(self, x_t: Tokens, t: Tensor) -> dict[str, Tensor]:
        start_time = time.process_time()
        logits: dict[str, Tensor] = self.network(x_t, t)
        self.seconds += time.process_time() - start_time
        return logits


@torch.no_grad()
def measure(batch: int = 256, horizon: int = 10, steps: int = 10, repeats: int = 3) -> dict[str, float]:
    """Per source, the sampler's own time, as a fraction of the network's; the median of `repeats`."""
    rng = Rng.of(0, batch=(batch,))
    network = Denoiser().eval()
    ratios = {}
    for source in Source:
        path = ProbPath(SIZES, source)
        x_0 = path.noise(dict.fromkeys(SIZES, (horizon,)), rng)
        runs = []
        for _ in range(repeats + 1):
            timed = Timed(network)
            start_time = time.process_time()
            sample(path, timed, x_0, rng, steps=steps)
            total = time.process_time() - start_time
            runs.append((total / timed.seconds - 1, timed.seconds / steps, total / steps))
        ratio, call, step = sorted(runs[1:])[repeats // 2]  # the first run warms up
        print(f"{source:8} network call {call * 1e3:6.1f} ms   whole step {step * 1e3:6.1f} ms   overhead {ratio:6.1%}")
        ratios[str(source)] = ratio
    return ratios


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    measure(arguments.batch)
