"""Discrete flows on finite state spaces: pure torch, t = 0 is noise, t = 1 is data.

path = Path(sizes={"actions": 6, "states": 400}, source="mask")
x_t = path.corrupt(x_1, t, rng)                     # training: corrupt ...
loss = denoising_loss(path, network(x_t, t), x_1, x_t).total    # ... and learn to repair
plan = sample(path, network, path.noise(shapes, rng), rng)      # planning: run it backwards
"""

from genplan.flow.energy import Denoising, EntropyBound, Logits, denoising_loss, entropy, plan_energy, pseudo_energy
from genplan.flow.masks import Masks
from genplan.flow.path import Path, Schedule, Source, Tokens
from genplan.flow.rates import conditional_rates, expected_rates, step_probabilities, transition
from genplan.flow.rng import Rng
from genplan.flow.sampler import Order, Posterior, Sample, Trace, sample, sharpen

__all__ = [
    "Denoising",
    "EntropyBound",
    "Logits",
    "Masks",
    "Order",
    "Path",
    "Posterior",
    "Rng",
    "Sample",
    "Schedule",
    "Source",
    "Tokens",
    "Trace",
    "conditional_rates",
    "denoising_loss",
    "entropy",
    "expected_rates",
    "plan_energy",
    "pseudo_energy",
    "sample",
    "sharpen",
    "step_probabilities",
    "transition",
]
