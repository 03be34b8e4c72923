"""ColorPermutation: exchange colors everywhere at once, and nothing changes but names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from genplan.data.transforms.grids import require_grid
from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import PlanSpec
from genplan.types import Batch, Observations


@dataclass(frozen=True)
class ColorPermutation:
    """Gives every scene a new order of colors: in its grid, in what its words say, and in what is carried."""

    name: ClassVar[str] = "color_permutation"
    words: tuple[str, ...]  # words[i] names color i
    channel: int  # of the grid, where colors stand
    feature: tuple[str, int] | None = None  # (field, number): where the color of what is carried stands
    types: tuple[int, ...] = ()  # values of the first channel (and of the feature's number before) that have a color

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(map(str, self.words)))
        object.__setattr__(self, "types", tuple(map(int, self.types)))
        object.__setattr__(self, "channel", int(self.channel))
        if self.feature is not None:
            field, index = self.feature
            object.__setattr__(self, "feature", (str(field), int(index)))
        if len(self.words) < 2 or not self.types:
            raise UserError(
                f"the transform '{self.name}' has {len(self.words)} words and {len(self.types)} types, "
                "expected at least 2 colors to exchange, and 1 type that has one"
            )

    def bind(self, windows: Windows) -> BoundColorPermutation:
        return BoundColorPermutation(windows.spec, self)


class BoundColorPermutation:
    def __init__(self, spec: PlanSpec, transform: ColorPermutation) -> None:
        _, self.grid, _ = require_grid(spec, transform.name)
        self.feature, self.channel, self.num_colors = transform.feature, transform.channel, len(transform.words)
        # Channels in which one value is as good as another, as (field, number).
        self.exchangeable = [(self.grid, self.channel), *([] if self.feature is None else [self.feature])]
        sizes = spec.fields[self.grid].sizes
        self._check(f"channel {self.channel} of '{self.grid}'", sizes, self.channel)
        num_types = sizes[0]
        if not 0 <= min(transform.types) <= max(transform.types) < num_types:
            raise UserError(f"the types that have colors are {transform.types}, expected 0 to {num_types - 1}")
        if self.feature is not None:
            name, index = self.feature
            one = spec.fields.get(name)
            sizes = one.sizes if one is not None and one.kind == "category" and index > 0 else ()
            self._check(f"number {index} of '{name}'", sizes, index)
            num_types = max(num_types, sizes[index - 1])
        self.has_color = torch.isin(torch.arange(num_types), torch.tensor(transform.types))
        self.words: dict[str, tuple[Tensor, Tensor]] = {}  # per words field: tokens of the colors, and of all words
        for name, one in spec.fields.items():
            if one.kind != "words":
                continue
            if unknown := [word for word in transform.words if word not in one.vocabulary]:
                raise UserError(f"the color '{unknown[0]}' is not in the vocabulary of '{name}'; known are: "
                                f"{' '.join(one.vocabulary[1:])}")  # fmt: skip
            colors = torch.tensor([one.vocabulary.index(word) for word in transform.words])
            self.words[name] = colors, torch.arange(len(one.vocabulary))

    def _check(self, what: str, sizes: tuple[int, ...], index: int) -> None:
        found = sizes[index] if 0 <= index < len(sizes) else None
        if found != self.num_colors:
            raise UserError(
                f"the transform 'color_permutation' exchanges {self.num_colors} colors in {what}, which has "
                f"{'no such thing' if found is None else f'{found} values'}; expected as many colors"
            )

    def __call__(self, batch: Batch, drawn: Drawn, rng: Rng) -> Batch:
        rng = rng.fold("colours")  # results depend on this label: never change it
        return self.apply(batch, rng.uniform((batch.num_scenes, self.num_colors)).argsort(-1))

    def apply(self, batch: Batch, permutations: Tensor) -> Batch:
        """One permutation for each scene, [M, colors]: old color -> new color."""
        scene, current, history = dict(batch.scene.fields), batch.current, batch.history
        scene[self.grid] = self._exchange(scene[self.grid], permutations, self.channel, 0)
        for name, (colors, words) in self.words.items():
            table = words.repeat(len(permutations), 1)
            table[:, colors] = colors[permutations]
            scene[name] = table.gather(1, scene[name])
        if self.feature is not None:
            name, index = self.feature
            each = permutations.repeat_interleave(batch.windows_per_scene, 0)  # [B, colors]
            values = torch.cat([current[name][:, None], history.steps[name]], 1)  # [B, 1 + C, numbers]
            values = self._exchange(values, each, index, index - 1)
            current = Observations({**current.fields, name: values[:, 0]})
            history = history._replace(steps=Observations({**history.steps.fields, name: values[:, 1:]}))
        return replace(batch, scene=Observations(scene), current=current, history=history)

    def _exchange(self, values: Tensor, permutations: Tensor, color: int, type_: int) -> Tensor:
        """Values [n, …, channels], of which one is the color and another the type, with a permutation [n, colors]."""
        old = values[..., color].long()
        new = permutations.gather(1, old.reshape(len(old), -1)).reshape(old.shape)
        exchanged = values.clone()
        exchanged[..., color] = torch.where(self.has_color[values[..., type_].long()], new, old).to(values.dtype)
        return exchanged
