"""Action codecs: actions of the environment <-> tokens of a plan.

A codec is fitted on demonstrations once, as a stage of a run, and is part of the planner: its tensors are saved with
the weights and inside their digest. It is undone in exactly one place, before a `Plan` leaves the planner.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from genplan.errors import UserError
from genplan.models.action_codec import ActionCodec
from genplan.models.chunk_codes import ChunkCodes
from genplan.models.learned_codes import LearnedCodes, ScalarCodes
from genplan.models.residual_codes import ResidualCodes
from genplan.models.settings import CodecConfig
from genplan.spec import Actions, PlanSpec, Stream
from genplan.types import Episode

__all__ = ["CODECS", "ActionCodec", "ChunkCodes", "ResidualCodes", "UniformBins", "demonstrated_actions", "make_codec"]


class UniformBins(ActionCodec):
    """Every dimension of a continuous action in equal bins between the least and the largest demonstrated value.

    Error of a value within that range: at most half a bin, (high − low) / (2 · bins), per dimension. Values outside are
    clipped, and `is_clipped` says which. A dimension that never changes has one value.
    """

    low: Tensor
    high: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, actions: Actions, config: CodecConfig) -> None:
        nn.Module.__init__(self)
        if actions.n is not None:
            raise UserError("the codec 'bins' is for continuous actions, found discrete ones; use 'identity'")
        self.stream = Stream(config.bins, actions.shape)
        for name in ("low", "high"):  # not fitted: NaN, so that nothing can be decoded by chance
            self.register_buffer(name, torch.full((len(actions.low),), torch.nan))
        self.register_buffer("least", torch.tensor(actions.low), persistent=False)
        self.register_buffer("most", torch.tensor(actions.high), persistent=False)

    @torch.no_grad()
    def fit(self, actions: Tensor) -> dict[str, float]:
        self.low.copy_(actions.amin(0))
        self.high.copy_(actions.amax(0))
        tokens = self._tokens(actions)
        error = (self._values(tokens) - actions).abs()
        used = [int((torch.bincount(column) > 0).sum()) / self.stream.size for column in tokens.T]
        return {"mean_error": float(error.mean()), "max_error": float(error.max()), "bins_used": sum(used) / len(used)}

    def _range(self) -> Tensor:
        if not bool(torch.isfinite(self.low).all() & torch.isfinite(self.high).all()):
            raise UserError("the action codec has no statistics; expected a planner that was trained, or loaded whole")
        return self.high - self.low

    def _tokens(self, values: Tensor) -> Tensor:
        share = (values - self.low) / self._range().clamp(min=1e-8)
        return (share * self.stream.size).floor().clamp(0, self.stream.size - 1).long()

    def _values(self, tokens: Tensor) -> Tensor:
        return self.low + (tokens + 0.5) / self.stream.size * self._range()

    def encode(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        return self._tokens(actions if origin is None else actions - origin[:, None])

    def is_clipped(self, actions: Tensor, origin: Tensor | None) -> Tensor:
        values = actions if origin is None else actions - origin[:, None]
        return ((values < self.low) | (values > self.high)).any(-1)

    def decode(self, tokens: Tensor, origin: Tensor | None) -> Tensor:
        values = self._values(tokens) if origin is None else self._values(tokens) + origin[:, None]
        return torch.maximum(torch.minimum(values, self.most), self.least)


CODECS: dict[str, type[ActionCodec]] = {
    "identity": ActionCodec,
    "bins": UniformBins,
    "residual": ResidualCodes,
    "learned": LearnedCodes,
    "fsq": ScalarCodes,
}


def make_codec(actions: Actions, config: CodecConfig) -> ActionCodec:
    """By its name in CODECS. Nothing is imported here: the name may come from a run folder."""
    name = config.codec if config.codec != "auto" else "bins" if actions.n is None else "identity"
    if name not in CODECS:
        raise UserError(f"codec is '{name}', expected one of auto, {', '.join(CODECS)}, or a file named by use_codec()")
    return CODECS[name](actions, config)


def demonstrated_actions(spec: PlanSpec, episodes: Sequence[Episode], horizon: int = 1, chunk: int = 1) -> Tensor:
    """All actions [N, *A], or all chunks of them [N, chunk, *A]; where the spec names an origin, relative to it at each
    step at which they are planned.

    A plan of `horizon` actions is relative to what is observed before its first: so an action counts once for each of
    the steps up to `horizon` − 1 before it.
    """
    parts = []
    for episode in episodes:
        actions = torch.from_numpy(episode.actions)
        if chunk > 1:  # those that begin at each step, [T + 1 − chunk, chunk, *A]
            actions = actions.unfold(0, chunk, 1).movedim(-1, 1) if len(actions) >= chunk else actions[:0, None]
        if spec.actions.origin is not None:
            name, first = spec.actions.origin
            origin = torch.from_numpy(episode.observations[name])[:, first : first + len(spec.actions.low)]
            origin = origin if chunk == 1 else origin[:, None]
            ahead = range(0, min(horizon, len(episode)), chunk)
            actions = torch.cat([actions[number:] - origin[: max(len(actions) - number, 0)] for number in ahead])
        parts.append(actions)
    return torch.cat(parts)
