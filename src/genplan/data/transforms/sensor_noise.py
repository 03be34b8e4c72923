"""SensorNoise: numbers are observed a little off, while actions stay what they were."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.types import Batch, Observations


@dataclass(frozen=True)
class SensorNoise:
    """Adds normal noise to entries of a vector field, the same now and in the past of a window.

    Where actions are targets, those that are relative to what is observed then lead back to the demonstrated way: it is
    learnt how to correct an error, which demonstrations show too rarely.
    """

    name: ClassVar[str] = "sensor_noise"
    field: str
    std: float
    first: int = 0  # of the entries
    number: int | None = None  # of them; None: all

    def __post_init__(self) -> None:
        if not isinstance(self.std, int | float) or not 0 < self.std < math.inf:
            raise UserError(f"the transform '{self.name}' has std {self.std!r}, expected more than 0")

    def bind(self, windows: Windows) -> BoundSensorNoise:
        return BoundSensorNoise(windows, self)


class BoundSensorNoise:
    def __init__(self, windows: Windows, transform: SensorNoise) -> None:
        field = windows.spec.fields.get(transform.field)
        if field is None or field.kind != "vector":
            found = ", ".join(f"{name} ({one.kind})" for name, one in windows.spec.fields.items())
            raise UserError(f"the transform '{transform.name}' names the field '{transform.field}', expected a vector "
                            f"field among {found}")  # fmt: skip
        size = field.shape[0]
        number = size - transform.first if transform.number is None else transform.number
        if not 0 <= transform.first < transform.first + number <= size:
            raise UserError(f"the transform '{transform.name}' names entries {transform.first} to "
                            f"{transform.first + number - 1} of '{transform.field}', which has {size}")  # fmt: skip
        self.field, self.std = transform.field, transform.std
        self.entries = slice(transform.first, transform.first + number)

    def __call__(self, batch: Batch, drawn: Drawn, rng: Rng) -> Batch:
        rng = rng.fold("sensor noise")  # results depend on this label: never change it
        part = batch.current[self.field][:, self.entries]
        noise = self.std * rng.normal(part.shape)
        current, past = self._shifted(batch.current, noise), self._shifted(batch.history.steps, noise[:, None])
        return replace(batch, current=current, history=batch.history._replace(steps=past))

    def _shifted(self, steps: Observations, noise: Tensor) -> Observations:
        values = steps[self.field].clone()
        values[..., self.entries] += noise.to(values.dtype)
        return Observations({**steps.fields, self.field: values})
