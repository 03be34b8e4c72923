"""A run from its name to its trainer: which task, which demonstrations, which method; created or resumed.

The stages of a run are the fit of its action codec, whose result is kept in the folder, and the training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from genplan import checkpoint, presets, tasks
from genplan import config as settings
from genplan.collect import CollectConfig, collect
from genplan.data import store
from genplan.data.transforms import Transform, extend_episodes, transform_from_json, transform_to_json
from genplan.data.windows import TaskMixture, Windows, split_episodes
from genplan.errors import CheckpointError, DataError, UserError
from genplan.evaluate import evaluate
from genplan.files import write_atomically, write_json
from genplan.planners.base import LearnedPlanner
from genplan.presets import TrainConfig
from genplan.spec import PlanSpec, Stream
from genplan.training import EvaluateFn, Trainer
from genplan.types import VALIDATION_SEEDS, Episode, Task

OnProgress = Callable[[int], None]
"""Gets the number of demonstrations that were just collected."""


class TaskData(NamedTuple):
    """A task, and demonstrations of it."""

    task: Task
    dataset: store.Dataset


def create_run(
    folder: Path,
    task_name: str,
    method: str,
    planner: Any,
    training: TrainConfig,
    dataset: str | None = None,
    transforms: Sequence[Transform | Mapping[str, Any]] | None = None,
    on_progress: OnProgress | None = None,
) -> Trainer:
    """A new run in an empty folder; demonstrations are collected if they are not there.

    planner     settings of the method: its `Config`
    transforms  of the data, as objects or JSON; None: those of the task
    """
    if (folder / "config.json").exists():
        raise UserError(f"there is a run in {folder} already; go on with --resume {folder}, or name another --out")
    if transforms is None:
        recipe = presets.default_transforms(task_name, settings.get(planner, "preset", "default"))
    else:
        recipe = [dict(one) if isinstance(one, Mapping) else transform_to_json(one) for one in transforms]
    task_data = _load_data(task_name, dataset, on_progress)
    config = {
        "format": checkpoint.FORMAT,
        "method": method,
        "task": task_name,
        "spec": _spec([task.spec for task, _ in task_data]).to_json(),
        "planner": settings.to_dict(planner),
        "training": settings.to_dict(training),
        "transforms": recipe,
        "dataset": _describe(task_data),
        "versions": {**store.versions(), "torch": torch.__version__},
        "commit": commit(),
    }
    planner_, parts = _prepare(config, task_data)  # what cannot be trained leaves no folder behind
    write_json(folder / "config.json", config)
    return _trainer(folder, config, planner_, parts, task_data)


def resume_run(folder: Path, on_progress: OnProgress | None = None) -> Trainer:
    """The run in a folder, from its last checkpoint on (from the start, if it was stopped before the first)."""
    config = checkpoint.read_config(folder)
    task_data = _load_data(config["task"], config["dataset"].get("name"), on_progress)
    if not _matches(task_data, expected := str(config["dataset"].get("digest"))):
        found = _describe(task_data)
        raise DataError(
            f"dataset {found['name']} has the content {found['digest']}, expected {expected} as when {folder} began"
        )
    return _trainer(folder, config, *_prepare(config, task_data), task_data)


def dataset_matches(config: Mapping[str, Any]) -> bool:
    """Whether the datasets that a run's config names still are what it was trained on."""
    task_data = _load_data(config["task"], config["dataset"].get("name"), None)
    return _matches(task_data, str(config["dataset"].get("digest")))


def commit() -> str:
    """The commit of the checkout that runs, with a plus if its code was changed; empty outside one."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if head and git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except OSError:  # no git
        return ""


# --- data ------------------------------------------------------------------------------------------------------------


def _load_data(task_name: str, dataset: str | None, on_progress: OnProgress | None) -> list[TaskData]:
    """One dataset per task; several of either are joined by +."""
    names = tasks.task_names(task_name)
    datasets: Sequence[str | None] = [None] * len(names) if dataset is None else dataset.split("+")
    if len(datasets) != len(names):
        raise UserError(f"there are {len(datasets)} datasets for {len(names)} tasks, expected one for each")
    task_data = []
    for name, wanted in zip(names, datasets, strict=True):
        task, default = tasks.get(name), CollectConfig(name)
        if wanted is None or wanted == default.name:
            data = collect(default, on_progress=on_progress)
        else:
            data = store.read(wanted, task)
        if reason := store.incompatibility(data, task):
            raise DataError(f"dataset {data.name} does not fit task {name}: {reason}")
        task_data.append(TaskData(task, data))
    return task_data


def _describe(task_data: Sequence[TaskData]) -> dict[str, Any]:
    return {
        "name": "+".join(data.name for _, data in task_data),
        "digest": _joined([data.digest for _, data in task_data], "2-"),
        "episodes": sum(len(data.episodes) for _, data in task_data),
    }


def _matches(task_data: Sequence[TaskData], digest: str) -> bool:
    """Whether a run of that digest, of either format, was trained on these datasets."""
    if len(task_data) == 1:
        return task_data[0].dataset.matches(digest)
    if digest.startswith("2-"):
        return bool(digest == _describe(task_data)["digest"])
    return digest == _joined([str(data.digest_v1) for _, data in task_data], "")


def _joined(digests: Sequence[str], prefix: str) -> str:
    if len(digests) == 1:
        return digests[0]
    return prefix + hashlib.sha256("+".join(digests).encode()).hexdigest()[:16]


def _spec(specs: Sequence[PlanSpec]) -> PlanSpec:
    """The spec with the most states, with as many goals as any of them has."""
    largest = max(specs, key=lambda spec: 0 if spec.states is None else spec.states.size)
    num_goals = max(spec.num_goals for spec in specs)
    if num_goals == largest.num_goals:
        return largest
    goals = largest.goals
    if goals is None and largest.geometry is not None:
        goals = Stream(largest.geometry.num_cells, points_at=largest.grid_field)
    if goals is None:
        goals = next(spec.goals for spec in specs if spec.goals is not None)
    streams = {**largest.streams, "goals": dataclasses.replace(goals, shape=(num_goals,))}
    return dataclasses.replace(largest, streams=streams)


# --- stages ----------------------------------------------------------------------------------------------------------


class _Parts(NamedTuple):
    """The windows of all tasks, and the demonstrations that the codec is fitted on."""

    windows: Windows | TaskMixture
    held_out: Windows | TaskMixture
    episodes: list[Episode]


def _prepare(config: Mapping[str, Any], task_data: Sequence[TaskData]) -> tuple[LearnedPlanner, _Parts]:
    """An untrained planner, and the windows that it is to be trained on."""
    training = settings.from_dict(TrainConfig, config["training"])
    planner = checkpoint.untrained(config, training.seed)
    transforms = [transform_from_json(one) for one in config["transforms"]]
    parts: tuple[list[Windows], list[Windows]] = ([], [])
    demonstrations: list[Episode] = []
    for task, dataset in task_data:
        spec, needs = planner.for_spec(task.spec).spec, planner.needs
        episodes, held_out = split_episodes(dataset.episodes)
        demonstrations += episodes
        # Results depend on the numbers drawn: every task has a generator of its own.
        episodes = extend_episodes(transforms, spec, episodes, np.random.default_rng(training.seed))
        # Where nothing is to be reached, the end of an episode is no better to learn from than its start.
        exponent = 0.0 if task.success is None else training.goal_proximity_exponent
        parts[0].append(Windows(spec, episodes, needs, exponent, transforms))
        parts[1].append(Windows(spec, held_out, needs))
    windows, held = (part[0] if len(part) == 1 else TaskMixture(part) for part in parts)
    return planner, _Parts(windows, held, demonstrations)


def _trainer(
    folder: Path, config: Mapping[str, Any], planner: LearnedPlanner, parts: _Parts, task_data: Sequence[TaskData]
) -> Trainer:
    training = settings.from_dict(TrainConfig, config["training"])
    _fit_codec(folder, planner, parts.episodes)
    evaluate_fn = _evaluate_fn([task for task, _ in task_data])
    return Trainer(folder, planner, parts.windows, parts.held_out, training, evaluate_fn)


def _fit_codec(folder: Path, planner: LearnedPlanner, episodes: Sequence[Episode]) -> None:
    """The stage before training: statistics of the data become tensors of the planner, once in the life of a run."""
    path, log = folder / "codec.safetensors", folder / "log.jsonl"
    if path.exists():
        tensors, metadata = checkpoint.load_tensors(path)
        own, errors = planner.state_dict(), metadata.get("errors", {})
        if unknown := sorted(set(tensors) - set(own)):
            raise CheckpointError(f"{path} has the unknown tensor {unknown[0]}; config.json belongs to another model")
        checkpoint.load_into(planner, {**own, **tensors}, path)
    else:
        before = {name: tensor.clone() for name, tensor in planner.state_dict().items()}
        errors = planner.fit_codec(episodes)
        fitted = {name: one for name, one in planner.state_dict().items() if not _equal(one, before[name])}
        if fitted:
            checkpoint.save_tensors(path, fitted, {"errors": errors})
    if errors and not log.exists():
        line = {"step": 0, **{f"codec/{name}": value for name, value in errors.items()}}
        write_atomically(log, (json.dumps(line) + "\n").encode())


def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _evaluate_fn(evaluated: Sequence[Task]) -> EvaluateFn:
    def run(planner: LearnedPlanner, num_episodes: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for task in evaluated:
            seeds = VALIDATION_SEEDS[:num_episodes]
            score = evaluate(planner.for_spec(task.spec), task, seeds, baseline=None).planner
            prefix = f"{task.name}/" if len(evaluated) > 1 else ""
            metrics |= {f"{prefix}{name}": one.value for name, one in score.metrics.items() if one is not None}
        return metrics

    return run
