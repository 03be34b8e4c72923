"""Clutter: in a training map stand things of other maps, and walls, off the demonstrated way.

Where a demonstrator was sent to the only thing there is, nobody needs to read its name; where rooms are empty, nobody
learns to walk round anything. A demonstration stays right if things are put where it never went, as long as none of
them looks like what it was sent to: missions must tell things apart by what can be seen of them.

Nor does a mission to one thing teach what a mission to two means. If what another demonstrator was sent to stands there
too, both missions may be joined: whoever goes to one of the two begins to do what both say.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genplan.flow import Rng

WALLED = 0.5  # of maps
DENSEST = 0.5  # of the free cells of such a map, at most, become walls


class Clutter:
    def __init__(self, maps: Tensor, episode: Tensor, ways: Tensor, aims: Tensor) -> None:
        """maps uint8 [K, cells, C], each of an `episode` [K]; bool [E, cells], where it went and what it aimed at."""
        number, cells, channels = maps.shape
        self.looks, look = torch.unique(maps.reshape(-1, channels), dim=0, return_inverse=True)
        look = look.reshape(number, cells)  # what each cell looks like, by number
        walked = ways[episode]
        self.floor = look[walked].mode().values
        self.free = (look == self.floor) & ~walked & ~aims[episode]
        row, cell = aims[episode].nonzero(as_tuple=True)
        wanted = torch.zeros(len(ways), len(self.looks), dtype=torch.bool)
        wanted[episode[row], look[row, cell]] = True
        wanted[:, self.floor] = False
        self.things = wanted.any(0).nonzero().squeeze(-1)  # what anybody was ever sent to
        self.wanted = wanted[episode][:, self.things]  # [K, things]: in this map's own episode
        self.errand = torch.where(self.wanted.any(1), self.wanted.int().argmax(1), -1)  # [K]: the first of them
        solid = look[(look != self.floor) & ~wanted.any(0)[look] & ~walked]
        self.wall = solid.mode().values if len(solid) else self.floor

    def beside(self, kinds: Tensor, others: Tensor) -> Tensor:
        """Whether what others were sent to, in maps of these numbers [M], can stand in maps `kinds` [M] too; bool."""
        errand = self.errand[others]
        alike = self.wanted[kinds].gather(1, errand.clamp(min=0)[:, None]).squeeze(1)
        possible: Tensor = (errand >= 0) & ~alike & self.free[kinds].any(1)
        return possible

    def put(self, maps: Tensor, kinds: Tensor, most: int, rng: Rng, others: Tensor | None = None) -> Tensor:
        """Into maps [M, cells, C], which are numbers `kinds` [M], up to `most` things each.

        others  [M] one thing more: what was wanted in the map of this number (−1: none)
        """
        shape = maps.shape[:2]
        free = self.free[kinds]
        place = torch.where(free, rng.fold("places").uniform(shape), 2.0)
        walled = rng.fold("walled").uniform((len(maps), 1)) < WALLED
        dense = walled * DENSEST * rng.fold("dense").uniform((len(maps), 1))
        look = torch.where((rng.fold("walls").uniform(shape) < dense) & free, self.wall, -1)
        if len(self.things):
            thing = rng.fold("things").integers(len(self.things), shape)
            number = rng.fold("number").integers(most + 1, (len(maps), 1))
            here = (place.argsort(-1).argsort(-1) < number) & free & ~self.wanted[kinds].gather(1, thing)
            look = torch.where(here, self.things[thing], look)
        if others is not None:
            errand = self.things[self.errand[others.clamp(min=0)]]
            first = torch.arange(shape[1]) == place.argmin(-1, keepdim=True)
            look = torch.where(first & (others >= 0)[:, None], errand[:, None], look)
        return torch.where((look >= 0)[..., None], self.looks[look.clamp(min=0)], maps)
