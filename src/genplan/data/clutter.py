"""Clutter: in a training map stand things of other maps, and walls, off the demonstrated way.

Where a demonstrator was sent to the only thing there is, nobody needs to read its name; where rooms are empty, nobody
learns to walk round anything. A demonstration stays right if things are put where it never went, as long as none of
them looks like what it was sent to: missions must tell things apart by what can be seen of them.

Here and there, on the way as well, something stands that looks like nothing in any training map. So what is strange is
neither shunned nor sought, until it is known what comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from genplan.flow import Rng

SCATTERED = 0.2  # of maps have walls here and there, from none to all of the free cells
LINED = 0.7  # of maps have walls from end to end, with gaps
LINES = 0.6  # of the rows and columns of such a map, at most
GAPS = 0.1  # of the cells of such a wall, beside those where it is crossed
STRANGE = 0.5  # of maps
MOST_STRANGE = 6  # cells of such a map, beside those that are ways through walls


class Clutter:
    def __init__(
        self, maps: Tensor, episode: Tensor, ways: Tensor, aims: Tensor, sizes: Sequence[int], width: int
    ) -> None:
        """maps uint8 [K, cells, C], each of an `episode` [K]; bool [E, cells], where it went and what it aimed at.

        sizes  [C] the vocabulary of each channel
        width  of a map: cells in a row
        """
        number, cells, channels = maps.shape
        self.looks, look = torch.unique(maps.reshape(-1, channels), dim=0, return_inverse=True)
        look = look.reshape(number, cells)  # what each cell looks like, by number
        walked, aimed = ways[episode], aims[episode]
        self.floor = look[walked].mode().values
        self.walked = (look == self.floor) & walked & ~aimed
        self.free = (look == self.floor) & ~walked & ~aimed
        row, cell = aimed.nonzero(as_tuple=True)
        wanted = torch.zeros(len(ways), len(self.looks), dtype=torch.bool)
        wanted[episode[row], look[row, cell]] = True
        wanted[:, self.floor] = False
        self.things = wanted.any(0).nonzero().squeeze(-1)  # what anybody was ever sent to
        self.wanted = wanted[episode][:, self.things]  # [K, things]: in this map's own episode
        solid = look[(look != self.floor) & ~wanted.any(0)[look] & ~walked]
        self.wall = solid.mode().values if len(solid) else self.floor
        # The first channel tells what a thing is.
        known = torch.unique(self.looks[:, 0]).tolist()
        self.strange = torch.tensor([kind for kind in range(sizes[0]) if kind not in known], dtype=torch.int64)
        self.sizes = sizes
        place = torch.arange(cells)
        self.rows, self.columns = place // width, place % width

    def put(self, maps: Tensor, kinds: Tensor, most: int, rng: Rng) -> Tensor:
        """Into maps [M, cells, C], which are numbers `kinds` [M], up to `most` things each, and all the rest."""
        shape, each = maps.shape[:2], (len(maps), 1)
        free = self.free[kinds]
        walls, gates = self._walls(kinds, rng.fold("walls"))
        look = torch.where(walls, self.wall, -1)
        if len(self.things):
            thing = rng.fold("things").integers(len(self.things), shape)
            number = rng.fold("number").integers(most + 1, each)
            here = self._some(free, number, rng.fold("places")) & ~self.wanted[kinds].gather(1, thing)
            look = torch.where(here, self.things[thing], look)
        maps = torch.where((look >= 0)[..., None], self.looks[look.clamp(min=0)], maps)
        if not len(self.strange):
            return maps
        strange = torch.stack([rng.fold("strange", c).integers(size, shape) for c, size in enumerate(self.sizes)], -1)
        strange[..., 0] = self.strange[rng.fold("strange").integers(len(self.strange), shape)]
        number = rng.fold("number of strange").integers(MOST_STRANGE + 1, each)
        number = torch.where(rng.fold("is strange").uniform(each) < STRANGE, number, 0)
        # Half of them on the way: elsewhere they would be few among many.
        here = self._some(self.walked[kinds], number // 2, rng.fold("strange way"))
        here |= self._some(free, number - number // 2, rng.fold("strange places"))
        return torch.where((here | gates)[..., None], strange.to(maps.dtype), maps)

    def _walls(self, kinds: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Where walls stand, and where something strange stands in a wall and is a way through it: bool [M, cells]."""
        free, walked = self.free[kinds], self.walked[kinds]
        each = (len(kinds), 1)
        kind, dense, here = rng.fold("kind").uniform(each), rng.fold("dense").uniform(each), rng.uniform(free.shape)
        rows, columns = (
            rng.fold(name).uniform((len(kinds), int(lines.max()) + 1))[:, lines] < LINES * dense
            for name, lines in (("rows", self.rows), ("columns", self.columns))
        )
        lined = (rows | columns) & (kind < LINED)
        scattered = (here < dense) & (kind >= LINED) & (kind < LINED + SCATTERED)
        gated = rng.fold("gates").uniform(free.shape) < rng.fold("gated").uniform(each)
        return free & (lined & (here > GAPS) | scattered), lined & gated & (walked | free & (here <= GAPS))

    @staticmethod
    def _some(among: Tensor, number: Tensor, rng: Rng) -> Tensor:
        """So many [M, 1] of the cells [M, cells] that are True."""
        place = torch.where(among, rng.uniform(among.shape), 2.0)
        return (place.argsort(-1).argsort(-1) < number) & among
