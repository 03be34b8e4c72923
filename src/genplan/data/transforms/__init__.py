"""Data transforms: more demonstrations of those that there are, and batches changed in ways that keep them right.

A recipe is a list of transforms. Each is a frozen dataclass of plain data, so that a run can store it. Transforms of
your own have `episodes(spec, episodes, rng)` or `bind(windows)` (protocols in `genplan.data.windows`), and are entered
into TRANSFORMS by the file of the task that uses them: docs/extending.md.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from genplan.data.transforms.colors import ColorPermutation
from genplan.data.transforms.either_order import EitherOrder
from genplan.data.transforms.hold import Finish, HoldLast
from genplan.data.transforms.loops import EraseLoops
from genplan.data.transforms.randomize import MapRandomization
from genplan.data.transforms.reflection import Reflection
from genplan.data.transforms.sensor_noise import SensorNoise
from genplan.data.transforms.stitch import Stitch
from genplan.data.transforms.symmetry import Symmetry
from genplan.data.windows import BatchTransform, EpisodeTransform
from genplan.errors import UserError
from genplan.spec import PlanSpec
from genplan.types import Episode

Transform = BatchTransform | EpisodeTransform
TRANSFORMS: dict[str, type[Any]] = {
    one.name: one
    for one in (
        EraseLoops,
        Stitch,
        MapRandomization,
        Symmetry,
        ColorPermutation,
        EitherOrder,
        Finish,
        HoldLast,
        SensorNoise,
        Reflection,
    )
}


def extend_episodes(
    transforms: Sequence[Transform], spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator
) -> list[Episode]:
    """The episodes, and what the transforms among these that make episodes make of them, one after the other."""
    made = list(episodes)
    for one in transforms:
        if isinstance(one, EpisodeTransform):
            more = one.episodes(spec, made, rng)
            made = more if getattr(one, "replaces", False) else [*made, *more]
    return made


def transform_to_json(transform: Any) -> dict[str, Any]:
    """As plain data, equal to what is read again: {"name": …, and its settings}."""
    if type(transform) not in TRANSFORMS.values():
        known = ", ".join(one.__name__ for one in TRANSFORMS.values())
        raise UserError(
            f"a {type(transform).__name__} cannot be stored with a run, expected one of {known}; "
            "enter your own into TRANSFORMS in the file of the task"
        )
    data: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(transform)))
    return {"name": transform.name, **data}


def transform_from_json(data: Mapping[str, Any]) -> Any:
    """The reverse of `transform_to_json`; anything unknown is refused."""
    settings = dict(data) if isinstance(data, Mapping) else {"name": data}
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in TRANSFORMS:
        raise UserError(f"there is no transform '{name}'; known are {', '.join(TRANSFORMS)}")
    known = [one.name for one in dataclasses.fields(TRANSFORMS[name])]
    if unknown := sorted(set(settings) - set(known)):
        raise UserError(f"the transform '{name}' has the unknown setting '{unknown[0]}'; known are {', '.join(known)}")
    try:
        return TRANSFORMS[name](**settings)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the transform '{name}' cannot be made of {settings}: {error}; its settings are {', '.join(known)}"
        ) from error
