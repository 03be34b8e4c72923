"""A cell: one method in one row, and all the settings that decide what comes out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from genplan import checkpoint, runs
from genplan.config import (
    METHODS,
    LEAPConfig,
    MethodName,
    PlannerConfig,
    PresetName,
    TrainConfig,
    as_data,
    settings,
)
from genplan.data.demos import Recipe
from genplan.errors import UserError
from genplan.tasks.table import ROWS, TEST_SEEDS, Row

LARGE = ("MazeS7G1", "MazeS7G2", "BlockUnlock", "KeyCorridorS3R3")  # rows with the larger budget
UNTRAINED = "untrained:"  # before a method: its planner with a network that has learnt nothing

# CPU-seconds of a training step, measured on one core (`benchmarks/steps.py`, and a twelfth more for the job on the
# other core): they turn the budget, in minutes, into a number of steps, so that a cell can be trained again exactly.
# Worlds of one shape cost the same.
_SHAPES = ("MazeS4G1", "MazeS7G2", "DoorsOrder", "BlockUnlock", "KeyCorridorS3R3")
STEP_SECONDS: Mapping[str, Mapping[str, float]] = {
    kind: dict(zip(_SHAPES, seconds, strict=True))
    for kind, seconds in {
        "GenPlan": (0.134, 0.257, 0.168, 0.113, 0.105),
        "BC": (0.075, 0.167, 0.095, 0.060, 0.055),
        "DT": (0.090, 0.185, 0.113, 0.075, 0.072),
        "LEAP": (0.121, 0.222, 0.152, 0.103, 0.095),
    }.items()
}
# What the simulator tells is mended now and then (docs/log.md): rows in which it tells otherwise than at first.
TELLING = {"BlockUnlock": 2, "KeyCorridorS3R3": 2}
LIKE = {"MazeS4G2": "MazeS4G1", "MazeClose": "MazeS4G1", "LocS10N1": "MazeS4G1", "MazeS7G1": "MazeS7G2"}


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    method: (
        str  # of METHODS, or untrained:METHOD; or a planner by name, judged as it is (bot, pretrained:…, own.py:Class)
    )
    row: str
    seed: int = 0  # of the training
    demonstrations: int = 1000
    preset: PresetName = "default"
    steps: int | None = None  # of training; by default what the budget allows
    episodes: int = len(TEST_SEEDS)

    def __post_init__(self) -> None:
        if self.row not in ROWS:
            raise UserError(f"there is no row '{self.row}'; known are {', '.join(ROWS)}")
        if self.is_untrained and not self.learnt.is_trained:
            raise UserError(f"there is no method '{self.learnt.method}'; known are {', '.join(METHODS)}")

    @property
    def is_trained(self) -> bool:
        return self.method in METHODS

    @property
    def is_untrained(self) -> bool:
        return self.method.startswith(UNTRAINED)

    @property
    def learnt(self) -> Cell:
        """The cell that an untrained one is the control of; any other, itself."""
        return dataclasses.replace(self, method=self.method.removeprefix(UNTRAINED)) if self.is_untrained else self

    @property
    def name(self) -> str:
        extra = [f"seed {self.seed}"] if self.seed else []
        extra += [self.preset] if self.preset != "default" else []
        extra += [f"{self.demonstrations} demonstrations"] if self.demonstrations != 1000 else []
        return " · ".join([self.method, self.row, *extra])

    def training(self) -> tuple[PlannerConfig, TrainConfig]:
        """The settings of its training."""
        row = ROWS[self.row]
        method = cast("MethodName", self.method)
        planner, training = settings(row.trained_on, self.preset, method)
        if isinstance(planner, LEAPConfig) and planner.entropy_bound:
            planner = dataclasses.replace(planner, entropy_bound=row.entropy)
        steps = self.steps or training.steps if self.preset == "paper" else self.steps or budget(self.method, row)
        return planner, dataclasses.replace(training, steps=steps, seed=self.seed)

    def options(self) -> dict[str, Any]:
        """What differs between the rows that one training is judged on; and how to plan in worlds never seen.

        There, what was learnt turns to and fro for ever, or pushes against a door: so everyone is curious. How much was
        chosen on validation seeds (docs/log.md).
        """
        if not self.is_trained or self.preset == "paper":
            return {}
        row, known = ROWS[self.row], METHODS[cast("MethodName", self.method)]
        unseen: dict[str, Any] = {"curiosity": 0.5} if row.family == "AP" else {}
        if isinstance(known, LEAPConfig):
            return {"iterations": row.leap_iterations, **unseen}
        return unseen

    def config(self) -> dict[str, Any]:
        """All that decides what comes out."""
        about: dict[str, Any] = {"cell": dataclasses.asdict(self)}
        if self.is_trained or self.is_untrained:
            planner, training = self.learnt.training()
            about |= {"planner": as_data(planner), "options": self.learnt.options()}
            if self.is_trained:
                about["training"] = as_data(training)
            may_be_told = getattr(planner, "goals", False)
        else:
            if content := self.content():
                about["content"] = content
            may_be_told = ".py:" in self.method or getattr(self._found(), "goals", False)
        if may_be_told and self.row in TELLING:
            about["telling"] = TELLING[self.row]
        return about

    def _found(self) -> PlannerConfig | None:
        """The settings of a trained planner that is judged as it is."""
        if self.method.startswith("pretrained:") or (Path(self.method) / "config.json").is_file():
            return runs.settings_of(checkpoint.read_config(runs.locate(self.method)))
        return None

    def content(self) -> str | None:
        """A digest of the code, or of weights and settings, of a planner judged as it is; None where there is none."""
        if (planner := self._found()) is not None:
            used = json.dumps(as_data(planner), sort_keys=True)
            found = (runs.locate(self.method) / "model.safetensors").read_bytes() + used.encode()
        elif (path := Path(self.method.rpartition(":")[0])).is_file():
            found = path.read_bytes()
        else:
            return None
        return hashlib.sha256(found).hexdigest()[:16]

    @property
    def config_hash(self) -> str:
        return _hash(self.config())

    @property
    def training_hash(self) -> str:
        """The same for all rows that share a training."""
        planner, training = self.training()
        recipe = Recipe(ROWS[self.row].trained_on, self.demonstrations)
        return _hash([self.method, as_data(planner), as_data(training), recipe.name])


def budget(method: str, row: Row) -> int:
    """Training steps that fit in the budget: 15 CPU-minutes on small rows, 40 on large ones."""
    minutes = 40 if row.trained_on in LARGE else 15
    seconds = STEP_SECONDS[method.split("-")[0]][LIKE.get(row.trained_on, row.trained_on)]
    return max(round(minutes * 60 / seconds / 250) * 250, 250)


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
