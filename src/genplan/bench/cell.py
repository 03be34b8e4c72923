"""A cell: one method in one row of the tables, and all the settings that decide its result."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from genplan import checkpoint, config, migrations, planners, presets, tasks
from genplan.collect import CollectConfig
from genplan.errors import UserError
from genplan.presets import TrainConfig
from genplan.tasks.files import import_object
from genplan.tasks.paper import ROWS, Row
from genplan.types import TEST_SEEDS, Method, Task

UNTRAINED = "untrained:"  # before a method: its planner with randomly initialized weights
DEMONSTRATIONS = 1000
EXPLORATION = 0.5  # of every learned method in tasks that were not demonstrated; chosen on validation seeds
SAVE_STEPS = 250  # budgets are rounded to so many training steps


class TrainingSettings(NamedTuple):
    planner: Any  # the method's Config
    training: TrainConfig
    transforms: list[dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One entry of a table. Plain data: row and method are checked when its settings are asked for."""

    # A method that is trained (of METHODS, or file.py:Name), untrained:METHOD, or a planner by name that is evaluated
    # as it is (expert, random:…, pretrained:…, a run folder, file.py:Name).
    method: str
    row: str  # of the paper, or a task by itself: its name, or file.py:task
    seed: int = 0  # of the training
    demonstrations: int = DEMONSTRATIONS
    preset: str = "default"
    steps: int | None = None  # of training; by default what the budget allows
    episodes: int = len(TEST_SEEDS)
    data: str | None = None  # the dataset to learn from; by default demonstrations of the task's expert

    @property
    def table_row(self) -> Row:
        if self.row in ROWS:
            return ROWS[self.row]
        if self.row not in tasks.TASKS and ".py:" not in self.row:
            raise UserError(f"there is no row '{self.row}'; known are {', '.join(ROWS)}, tasks, and file.py:task")
        return Row("own", self.row, self.row)

    @property
    def task(self) -> Task:
        return tasks.get(self.table_row.task)

    @property
    def train_task(self) -> Task:
        return tasks.get(self.table_row.train_task)

    @property
    def dataset(self) -> str:
        task = self.table_row.train_task
        return self.data or tasks.get(task).dataset or CollectConfig(task, self.demonstrations).name

    @property
    def is_trained(self) -> bool:
        return _learned_method(self.method) is not None

    @property
    def is_untrained(self) -> bool:
        return self.method.startswith(UNTRAINED)

    @property
    def base_method(self) -> str:
        """The method that an untrained cell is the control of; of any other, its own."""
        return self.method.removeprefix(UNTRAINED)

    @property
    def trained(self) -> Cell:
        """The cell whose training it uses: its own, unless its method uses the planner of another."""
        method = _learned_method(self.method)
        return dataclasses.replace(self, method=method.trained_as) if method and method.trained_as else self

    @property
    def is_from_file(self) -> bool:
        """Whether its method or task is code of the user's: file.py:Name."""
        return ".py:" in self.method or ".py:" in self.row

    @property
    def name(self) -> str:
        return " · ".join([self.method, self.row, *self.extra])

    @property
    def extra(self) -> list[str]:
        """What tells it from the usual cell of its method and row."""
        extra = [f"seed {self.seed}"] if self.seed else []
        extra += [self.preset] if self.preset != "default" else []
        extra += [f"{self.demonstrations} demonstrations"] if self.demonstrations != DEMONSTRATIONS else []
        return extra + ([self.data] if self.data else [])

    def training(self) -> TrainingSettings:
        """The settings of its training; `untrained:` cells have those of their trained counterpart."""
        name, row = self.base_method, self.table_row
        if (method := _learned_method(name)) is None:
            known = ", ".join(planners.METHODS)
            raise UserError(f"there is no method '{name}'; known are {known}, and file.py:Name for your own")
        planner, training = presets.default_config(row.train_task, name, self.preset)
        steps = self.steps
        if self.preset != "paper":  # which has its own number of steps
            planner = config.override(planner, **_of_row(method.trained_by_row, row))
            steps = steps or _budget_steps(method, self.train_task)
        training = dataclasses.replace(training, steps=steps or training.steps, seed=self.seed)
        return TrainingSettings(planner, training, presets.default_transforms(row.train_task, self.preset))

    def options(self) -> dict[str, Any]:
        """Settings of the planner at test time: those that follow the row, and exploration in tasks never seen.

        There, learned planners that do not adapt turn in place without end, or push against a door, if they do not
        explore.
        """
        method = _learned_method(self.base_method)
        if method is None or self.preset == "paper":
            return {}
        options = _of_row(method.played_by_row, self.table_row)
        explores = self.table_row.split == "AP" and not method.adapts
        if explores and "exploration" in config.leaves(self.training().planner):
            options["exploration"] = EXPLORATION
        return options

    def planning(self) -> dict[str, Any]:
        """Settings of its planner that nothing is trained with: they may change without another training."""
        planner = self.training().planner
        options = planners.planner_class(self.base_method).options
        return {name: one for name, one in config.leaves(planner).items() if name in options and name != "order"}

    def settings(self) -> dict[str, Any]:
        """All that decides the result beside the cell itself, as plain data."""
        task, settings, planner = self.task, dict[str, Any](), dict[str, Any]()
        if self.is_trained or self.is_untrained:
            chosen, training, transforms = self.training()
            settings = {"planner": config.to_dict(chosen), "options": self.options()}
            planner = config.leaves(chosen)
            if self.is_trained:
                settings |= {"training": config.to_dict(training), "transforms": transforms}
        elif checkpoint.is_run(self.method):
            planner = checkpoint.read_config(checkpoint.run_dir(self.method))["planner"]
        if (digest := self.digest()) is not None:
            settings["digest"] = digest
        if (planner.get("privileged_goals") or self.is_from_file) and task.oracle_version > 1:
            settings["oracle_version"] = task.oracle_version
        return dict(json.loads(json.dumps(settings)))

    def digest(self) -> str | None:
        """Of files of task and method, or of weights and settings of a run; None where none is, or one is gone."""
        files = [_source_file(name) for name in (self.row, self.base_method) if ".py:" in name]
        digests = [_hash(path.read_bytes()) for path in files if path is not None]
        if checkpoint.is_run(self.base_method):
            folder = checkpoint.run_dir(self.base_method)
            planner = json.dumps(checkpoint.read_config(folder)["planner"], sort_keys=True)
            digests.append("2-" + _hash((folder / "model.safetensors").read_bytes() + planner.encode()))
        return None if None in files else "+".join(digests) or None

    def digest_v1(self) -> str | None:
        """`digest` as results of version 1 recorded it."""
        is_run = checkpoint.is_run(self.method)
        return migrations.run_digest_v1(checkpoint.run_dir(self.method)) if is_run else self.digest()

    @property
    def training_hash(self) -> str:
        """The same for all rows that share a training."""
        trained = self.trained
        planner, training, transforms = trained.training()
        defaults = config.leaves(planners.default_settings(trained.method))
        planner = config.override(planner, **{name: defaults[name] for name in trained.planning()})
        settings = [config.to_dict(planner), config.to_dict(training), transforms]
        parts = [trained.method, self.digest(), *settings, self.dataset]
        return _hash(json.dumps(parts, sort_keys=True).encode())


def _budget_steps(method: Method, task: Task) -> int | None:
    """Training steps that fit into the task's budget of CPU-minutes; None if the cost of a step is not known."""
    seconds = method.step_seconds.get(task.cost_class or task.name)
    if seconds is None:
        return None
    return max(round(task.budget_minutes * 60 / seconds / SAVE_STEPS) * SAVE_STEPS, SAVE_STEPS)


def _of_row(settings: Mapping[str, str], row: Row) -> dict[str, Any]:
    return {setting: getattr(row, attribute) for setting, attribute in settings.items()}


def _source_file(name: str) -> Path | None:
    """The file of `file.py:Name`, if it is there."""
    file = name.rpartition(":")[0]
    return Path(file) if file.endswith(".py") and Path(file).is_file() else None


def _learned_method(name: str) -> Method | None:
    """The entry of a method that is trained: of METHODS, or a class with a `Config` in a file of the user's."""
    if name in planners.METHODS:
        return planners.METHODS[name]
    path = _source_file(name)
    return None if path is None else _method_from_file(name, _hash(path.read_bytes()))


@functools.cache
def _method_from_file(name: str, digest: str) -> Method | None:
    """Run the file once for as long as it stays the same."""
    return planners.find_method(name) if hasattr(import_object(name), "Config") else None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
