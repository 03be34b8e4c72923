"""Groups of settings that methods share, as parts of their `Config`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from genplan.errors import UserError


def at_least(config: Any, least: float, *names: str, most: float = 10**6) -> None:
    """Both ends: what a file says must not become a network, or a wait, of any size. None is left open."""
    for name in names:
        if getattr(config, name) is not None and not least <= (value := getattr(config, name)) <= most:
            expected = f"at most {most}" if value > most else f"at least {least}"
            raise UserError(f"{name} is {value}, expected {expected}")


def probability(config: Any, *names: str) -> None:
    """From 0 to below 1. None is left open."""
    for name in names:
        if getattr(config, name) is not None and not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}, expected 0 to below 1")


@dataclass(frozen=True)
class EncoderConfig:
    """The network that reads observations."""

    hidden_size: int = 64
    num_heads: int = 4
    encoder_iterations: int = 24  # of the grid encoder's convolution
    position_embedding: bool = False  # codes of a cell's position beside what the grid shows there
    word_attention: bool = False  # every cell of a grid attends to the words, not only to what they say all in all
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 1, "hidden_size", "num_heads", "encoder_iterations", most=8192)
        if self.hidden_size % self.num_heads:
            raise UserError(f"hidden_size is {self.hidden_size}, expected a multiple of the {self.num_heads} heads")
        probability(self, "dropout")


@dataclass(frozen=True)
class NetworkConfig(EncoderConfig):
    """The network that reads observations, and the transformer behind it."""

    num_layers: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "num_layers", most=128)


@dataclass(frozen=True)
class MemoryConfig:
    """What is remembered of an episode."""

    # With the last action in view, policies of continuous control learn to repeat it (docs/log.md).
    context_length: int = 1  # observations that are shown, the current one counted
    frame_stack: bool = False  # they are read together, as one, without what was done in between
    visit_memory: bool = False  # the set of all states visited before, and what was done there
    failed_action_prob: float = 0.25  # of training windows shown actions that failed before (with visit memory)
    exploration: float = 0.0  # at test time: how readily another action is tried where nothing new happens

    def __post_init__(self) -> None:
        at_least(self, 1, "context_length", most=4096)
        at_least(self, 0, "exploration")
        probability(self, "failed_action_prob")

    @property
    def num_past(self) -> int:
        return self.context_length - 1


@dataclass(frozen=True)
class SamplerConfig:
    """How a plan is denoised."""

    iterations: int | None = None  # calls of the network; None: 4 of a chain, else 10
    # `auto`: a chain where a step model can be learnt (a mask as the source, observed states), else by confidence.
    order: Literal["auto", "random", "confidence", "margin", "near-to-far", "chain"] = "auto"
    goals_first: bool | None = None  # None: not in a chain, which draws them near to far, as all else
    temperature: float | None = None  # None: 0 of a chain, else 0.5
    goal_temperature: float | None = None  # None: as of everything else
    top_p: float = 1.0
    eta: float = 0.0
    num_candidates: int = 1  # plans per decision, of which the one of least energy is taken

    def __post_init__(self) -> None:
        at_least(self, 1, "iterations", "num_candidates", most=4096)
        at_least(self, 0, "temperature", "goal_temperature", "eta")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}, expected more than 0 and at most 1")


@dataclass(frozen=True)
class CodecConfig:
    """How actions become tokens. `auto`: identity for discrete actions, bins for continuous ones."""

    codec: str = "auto"  # auto, identity, bins, residual, learned, fsq, or file.py:Class
    bins: int = 64  # per dimension of a continuous action
    chunk: int = 8  # actions that the codes of residual, learned and fsq stand for together
    levels: int = 3  # of such codes, each of which refines those before; fsq: its tokens
    codes: int = 32  # words of each level; fsq: at most so many points of the grid of a token
    used_levels: int | None = None  # levels that are decoded when planning; None: all; 0: by goals alone; fsq: all or 0

    def __post_init__(self) -> None:
        at_least(self, 2, "bins", most=2**16)
        at_least(self, 1, "chunk", "levels", most=256)
        at_least(self, 2, "codes", most=2**12)
        at_least(self, 0, "used_levels", most=self.levels)
