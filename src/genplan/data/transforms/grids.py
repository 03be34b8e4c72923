"""What transforms of grids share."""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.errors import UserError
from genplan.spec import Geometry, PlanSpec


def require_grid(spec: PlanSpec, transform: str) -> tuple[str, str, Geometry]:
    """The observed state, the grid that states point at, and its geometry; refused if there are none."""
    if spec.state_field is None or spec.grid_field is None or spec.geometry is None:
        raise UserError(
            f"the transform '{transform}' needs observed states that point at a grid, found the fields "
            f"{', '.join(spec.fields)}; train without it"
        )
    return spec.state_field, spec.grid_field, spec.geometry


def flatten_grid(grids: Tensor) -> Tensor:
    """Grids [M, W, H, C] as lists in the order of cells, [M, W · H, C]."""
    return grids.transpose(1, 2).flatten(1, 2)


def unflatten_grid(cells: Tensor, shape: torch.Size) -> Tensor:
    """The reverse of `flatten_grid`."""
    number, width, height, channels = shape
    return cells.reshape(number, height, width, channels).transpose(1, 2)


def permute_cells(grids: Tensor, inverse_cells: Tensor) -> Tensor:
    """Move the cells of grids [M, W, H, C]; `inverse_cells` [M, cells] tells which old cell each new one shows."""
    moved = flatten_grid(grids).gather(1, inverse_cells[..., None].expand(-1, -1, grids.shape[-1]))
    return unflatten_grid(moved, grids.shape)
