"""Which denoiser serves which plans."""

from __future__ import annotations

from dataclasses import replace

from genplan.errors import UserError
from genplan.models.codecs import ActionCodec
from genplan.models.denoiser import Denoiser, NetworkSizes
from genplan.models.sequence import SequenceDenoiser
from genplan.spec import PlanSpec


def make_denoiser(
    spec: PlanSpec, sizes: NetworkSizes, codec: ActionCodec, num_extra: int = 0
) -> Denoiser | SequenceDenoiser:
    """Pointers into the grid where states point at one and an action is one token; else one token per position.

    `num_extra` action tokens are the method's own, such as the end of a plan.
    """
    if spec.grid_field is not None and not codec.stream.shape and codec.chunk == 1:
        return Denoiser(spec, sizes, codec.stream.size + num_extra)
    if sizes.horizon % codec.chunk:
        raise UserError(f"the horizon is {sizes.horizon}, expected a multiple of the codec's chunk, {codec.chunk}")
    return SequenceDenoiser(spec, sizes, replace(codec.stream, size=codec.stream.size + num_extra), codec.chunk)
