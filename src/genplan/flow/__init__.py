"""Discrete flows on finite state spaces: pure torch, t = 0 is noise, t = 1 is data.

path = ProbPath(sizes={"actions": 6, "states": 400}, source="mask")
x_t = path.corrupt(x_1, t, rng)                                     # training: corrupt ...
loss = denoising_loss(path, denoiser(x_t, t), x_1, x_t).total       # ... and learn to denoise
plan = sample(path, denoiser, path.noise(shapes, rng), rng)         # planning: denoise from pure noise
"""

from genplan.flow.energy import DenoisingLoss, EntropyBound, denoising_loss, entropy, plan_energy
from genplan.flow.orders import Order
from genplan.flow.path import ProbPath, Source
from genplan.flow.rates import expected_rates, step_probabilities, transition
from genplan.flow.rng import Rng
from genplan.flow.sampler import DenoiserFn, Sample, Trace, apply_temperature, sample
from genplan.flow.tokens import Masks, Tokens

__all__ = [
    "DenoiserFn", "DenoisingLoss", "EntropyBound", "Masks", "Order", "ProbPath", "Rng", "Sample", "Source", "Tokens",
    "Trace", "apply_temperature", "denoising_loss", "entropy", "expected_rates", "plan_energy", "sample",
    "step_probabilities", "transition",
]  # fmt: skip
