"""MapRandomization: objects of other training grids, and walls, are placed off the demonstrated path.

With a single object in an empty room, neither reading the mission nor walking around obstacles is learnt. A
demonstration stays correct if objects are placed on cells that it never enters, as long as none of them matches its
mission: missions must tell objects apart by what can be observed of them.

With a small probability, also on the path, a cell gets a type that occurs in no training grid, so that the network
learns neither to avoid nor to approach unseen types.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from genplan.data.transforms.grids import flatten_grid, require_grid, unflatten_grid
from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.types import Batch, Observations

SCATTERED_WALLS_PROB = 0.2  # of scenes: walls here and there, on none to all of the free cells
LINE_WALLS_PROB = 0.7  # of scenes: walls from end to end, with gaps
MAX_LINES = 0.6  # of the rows and columns of such a grid
WALL_GAP_PROB = 0.1  # of the cells of such a wall, beside those where it is crossed
UNSEEN_PROB = 0.5  # of scenes
MAX_UNSEEN = 6  # cells of such a grid, beside those that are passages through walls


@dataclass(frozen=True)
class MapRandomization:
    """Puts objects of other grids, walls, and cells of unseen types into the grid of every scene."""

    name: ClassVar[str] = "map_randomization"
    on_recorded_scenes: ClassVar[bool] = True  # what is free, and what was walked, is known of recorded cells
    max_objects: int

    def __post_init__(self) -> None:
        if not isinstance(self.max_objects, int) or not 1 <= self.max_objects <= 10**5:
            raise UserError(f"max_objects is {self.max_objects}, expected a whole number from 1 to {10**5}")

    def bind(self, windows: Windows) -> BoundMapRandomization:
        return BoundMapRandomization(windows, self.max_objects)


class BoundMapRandomization:
    """What stands where in the K recorded scenes. Labels of random draws are part of results: never change them."""

    def __init__(self, windows: Windows, max_objects: int) -> None:
        state, grid, geometry = require_grid(windows.spec, MapRandomization.name)
        self.grid, self.max_objects = grid, max_objects
        grids, goals = flatten_grid(windows.scenes[grid]), windows.spec.goals  # uint8 [K, cells, C]
        _, episode = torch.unique(windows.first, return_inverse=True)  # [N]
        visited_cells = torch.zeros(int(episode[-1]) + 1, geometry.num_cells, dtype=torch.bool)  # [E, cells]
        goal_cells = torch.zeros_like(visited_cells)
        visited_cells[episode, windows.steps[state] // geometry.directions] = True
        if goals is not None and goals.points_at == grid and windows.goals is not None:
            known = windows.goals_known
            step = known.nonzero(as_tuple=True)[0]
            goal_cells[episode[step], windows.goals[known] // goals.directions] = True
        episode = torch.zeros(len(grids), dtype=torch.int64).scatter(0, windows.scene_of_step, episode)  # [K]
        number, num_cells, channels = grids.shape
        self.cell_types, cell_type = torch.unique(grids.reshape(-1, channels), dim=0, return_inverse=True)
        cell_type = cell_type.reshape(number, num_cells)
        visited, is_goal = visited_cells[episode], goal_cells[episode]
        self.floor = cell_type[visited].mode().values
        self.walked = (cell_type == self.floor) & visited & ~is_goal
        self.free = (cell_type == self.floor) & ~visited & ~is_goal
        scene, cell = is_goal.nonzero(as_tuple=True)
        goal_types = torch.zeros(len(visited_cells), len(self.cell_types), dtype=torch.bool)
        goal_types[episode[scene], cell_type[scene, cell]] = True
        goal_types[:, self.floor] = False
        self.objects = goal_types.any(0).nonzero().squeeze(-1)  # what anybody was ever sent to
        self.goal_objects = goal_types[episode][:, self.objects]  # [K, objects]: in this scene's own episode
        solid = cell_type[(cell_type != self.floor) & ~goal_types.any(0)[cell_type] & ~visited]
        self.wall = solid.mode().values if len(solid) else self.floor
        # The first channel tells what an object is.
        self.sizes = windows.spec.fields[grid].sizes
        seen = torch.unique(self.cell_types[:, 0]).tolist()
        self.unseen = torch.tensor([kind for kind in range(self.sizes[0]) if kind not in seen], dtype=torch.int64)
        self.width, self.height, _ = geometry
        self.cells = torch.arange(num_cells)

    def __call__(self, batch: Batch, drawn: Drawn, rng: Rng) -> Batch:
        grids = batch.scene[self.grid]
        cells = self._randomize(flatten_grid(grids), drawn.scenes, rng.fold("clutter"))
        scene = {**batch.scene.fields, self.grid: unflatten_grid(cells, grids.shape)}
        return replace(batch, scene=Observations(scene))

    def _randomize(self, grids: Tensor, scenes: Tensor, rng: Rng) -> Tensor:
        """Into grids [M, cells, C], which are numbers `scenes` [M]: objects, walls, and cells of unseen types."""
        shape, each = grids.shape[:2], (len(grids), 1)
        free = self.free[scenes]
        walls, passages = self._walls(scenes, rng.fold("walls"))
        cell_type = torch.where(walls, self.wall, -1)
        if len(self.objects):
            chosen = rng.fold("things").integers(len(self.objects), shape)
            number = rng.fold("number").integers(self.max_objects + 1, each)
            here = self._sample_cells(free, number, rng.fold("places")) & ~self.goal_objects[scenes].gather(1, chosen)
            cell_type = torch.where(here, self.objects[chosen], cell_type)
        grids = torch.where((cell_type >= 0)[..., None], self.cell_types[cell_type.clamp(min=0)], grids)
        if not len(self.unseen):
            return grids
        unseen = torch.stack([rng.fold("strange", c).integers(size, shape) for c, size in enumerate(self.sizes)], -1)
        unseen[..., 0] = self.unseen[rng.fold("strange").integers(len(self.unseen), shape)]
        number = rng.fold("number of strange").integers(MAX_UNSEEN + 1, each)
        number = torch.where(rng.fold("is strange").uniform(each) < UNSEEN_PROB, number, 0)
        # Half of them on the way: elsewhere they would be few among many.
        here = self._sample_cells(self.walked[scenes], number // 2, rng.fold("strange way"))
        here |= self._sample_cells(free, number - number // 2, rng.fold("strange places"))
        return torch.where((here | passages)[..., None], unseen.to(grids.dtype), grids)

    def _walls(self, scenes: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Where walls stand, and where something unseen stands in a wall and is a passage: bool [M, cells]."""
        free, walked = self.free[scenes], self.walked[scenes]
        each = (len(scenes), 1)
        kind, density, u = rng.fold("kind").uniform(each), rng.fold("dense").uniform(each), rng.uniform(free.shape)
        in_row, in_column = (
            rng.fold(label).uniform((len(scenes), number))[:, lines] < MAX_LINES * density
            for label, number, lines in (
                ("rows", self.height, self.cells // self.width),
                ("columns", self.width, self.cells % self.width),
            )
        )
        lines = (in_row | in_column) & (kind < LINE_WALLS_PROB)
        scattered = (u < density) & (kind >= LINE_WALLS_PROB) & (kind < LINE_WALLS_PROB + SCATTERED_WALLS_PROB)
        passable = rng.fold("gates").uniform(free.shape) < rng.fold("gated").uniform(each)
        walls = free & (lines & (u > WALL_GAP_PROB) | scattered)
        return walls, lines & passable & (walked | free & (u <= WALL_GAP_PROB))

    @staticmethod
    def _sample_cells(candidates: Tensor, number: Tensor, rng: Rng) -> Tensor:
        """So many [M, 1] of the cells [M, cells] that are True."""
        order = torch.where(candidates, rng.uniform(candidates.shape), 2.0)
        return (order.argsort(-1).argsort(-1) < number) & candidates
