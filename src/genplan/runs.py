"""A run from its name to its trainer: which task, which demonstrations, which method; created, resumed or extended.

The stages of a run are the fit of its action codec, whose result is kept in the folder, and the training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import stat
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genplan import checkpoint, planners, presets, tasks
from genplan import config as settings
from genplan.collect import CollectConfig, collect
from genplan.data import store
from genplan.data.transforms import Transform, extend_episodes, transform_from_json
from genplan.data.windows import TaskMixture, Windows, split_episodes
from genplan.errors import CheckpointError, DataError, UserError
from genplan.evaluate import evaluate
from genplan.files import short, write_atomically
from genplan.planners.base import LearnedPlanner
from genplan.presets import TrainConfig
from genplan.spec import PlanSpec, Stream
from genplan.training import Trainer, run_lock
from genplan.types import VALIDATION_SEEDS, Episode, Task

TaskData = list[tuple[Task, store.Dataset]]  # tasks, and demonstrations of each
# Settings of a training that may change while it goes on: for how long, and what is written and when.
CHANGEABLE = ("steps", "log_every", "validate_every", "save_every", "keep_checkpoints", "evaluate_every",
              "evaluate_episodes")  # fmt: skip


def create_run(
    folder: Path, task_name: str, method: str, planner: Any, training: TrainConfig, dataset: str | None = None,
    transforms: Sequence[Transform | Mapping[str, Any]] | None = None,
) -> Trainer:  # fmt: skip
    """A new run in an empty folder; demonstrations are collected if they are not there.

    planner     settings of the method: its `Config`
    transforms  of the data, as objects or JSON; None: those of the task
    """
    if (folder / "config.json").exists():
        raise UserError(f"there is a run in {folder} already; go on with it, or name another folder")
    if transforms is None:
        transforms = presets.default_transforms(task_name, settings.get(planner, "preset", "default"))
    recipe, task_data = presets.recipe_to_json(transforms), _load_data(task_name, dataset)
    spec = _common_spec([task.spec for task, _ in task_data])
    plain = settings.to_dict(planners.planner_class(method).resolved(planner, spec))
    named = {"task": task_name, "method": method, "codec": checkpoint.own_codec(plain) or ""}
    config = {
        "format": checkpoint.FORMAT, "method": method, "task": task_name,
        "files": {key: checkpoint.file_identity(name) for key, name in named.items() if ".py:" in name},
        "spec": spec.to_json(),
        "planner": plain, "training": settings.to_dict(training), "transforms": recipe,
        "dataset": {
            "name": "+".join(data.name for _, data in task_data),
            "digest": _digest(task_data),
            "episodes": sum(len(data.episodes) for _, data in task_data),
        },
        "versions": {**store.versions(), "torch": torch.__version__}, "commit": commit(),
    }  # fmt: skip
    return _trainer(folder, config, task_data, config)


def resume_run(folder: Path, task: str | None = None, method: str | None = None, **changed: Any) -> Trainer:
    """The run in a folder, from its last checkpoint on (from the start, if it was stopped before the first).

    task, method  needed if they are files (`file.py:Name`): the same, unchanged, as when the run began
    changed       settings of the training among CHANGEABLE; with more steps, the learning rate goes on as in a training
                  of that many, so that it rises again
    """
    stored = checkpoint.read_config(folder)
    for path in folder.iterdir():  # before anything is written through a link or into a pipe
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and (path.name == "tensorboard" or not stat.S_ISREG(mode)):
            raise CheckpointError(f"{path} is {stat.filemode(mode)}, expected only files and folders; go on in a copy")
    with run_lock(folder):  # refuse before data is loaded
        pass
    named = {"task": task, "method": method}
    names = {key: checkpoint.allowed(stored, key, given, folder, exact=True) for key, given in named.items()}
    checkpoint.check_codec(stored, folder, exact=True)
    before = settings.from_dict(TrainConfig, stored["training"])
    if fixed := [name for name in changed if name not in CHANGEABLE]:
        raise UserError(f"{fixed[0]} cannot change while {folder} is trained, expected only {', '.join(CHANGEABLE)}")
    if (steps := changed.get("steps", before.steps)) < before.steps:
        raise UserError(f"{folder} is a run of {before.steps} steps, found {steps}; a run is not made shorter: name as "
                        "many or more, or another --out")  # fmt: skip
    training = settings.override(before, **changed)
    data, expected = stored["dataset"]["name"], stored["dataset"]["digest"]
    task_data = _load_data(names["task"], data)
    if (found := _digest(task_data, expected)) != expected:
        raise DataError(f"dataset {data} has the content {found}, expected {expected} as when {folder} began")
    config = {**stored, "training": settings.to_dict(training)}
    return _trainer(folder, {**config, **names}, task_data, None if training == before else config)


def check_same(
    folder: Path, task_name: str, method: str, planner: Any, training: TrainConfig, dataset: str | None,
    transforms: Sequence[Transform | Mapping[str, Any]],
) -> None:  # fmt: skip
    """Refuse, with the differences, what would train something else than the run in a folder does."""
    config = checkpoint.read_config(folder)
    found = {**config, "data": config["dataset"]["name"]}
    given: dict[str, Any] = {"task": task_name, "method": method}
    for key, name in given.items():
        if identity := config["files"].get(key):  # of files the content counts, not where they are
            is_same = checkpoint.file_identity(name) == identity
            given[key] = found[key] if is_same else f"{name}, changed since," if name == found[key] else name
    given["data"] = dataset or "+".join(map(default_dataset, tasks.task_names(task_name)))
    given["transforms"] = presets.recipe_to_json(transforms)
    if found["method"] == given["method"]:
        found |= settings.leaves(settings.from_dict(type(planner), config["planner"]))
        spec = PlanSpec.from_json(config["spec"])
        given |= settings.leaves(planners.planner_class(method).resolved(planner, spec))
    found |= settings.leaves(settings.from_dict(TrainConfig, config["training"]))
    given |= settings.leaves(training)
    differences = [f"{name} is {short(found[name], 80)} there, {short(value, 80)} given"
                   for name, value in given.items() if name not in CHANGEABLE and found[name] != value]  # fmt: skip
    if differences:
        raise UserError(f"{folder} holds another run: {'; '.join(differences)}; name another --out, or go on with its "
                        f"own settings: genplan train --resume {folder}")  # fmt: skip


def dataset_matches(config: Mapping[str, Any], task: str) -> bool:
    """Whether the datasets that a run's config names still are what it was trained on."""
    expected = str(config["dataset"]["digest"])
    return _digest(_load_data(task, config["dataset"]["name"]), expected) == expected


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


def default_dataset(task_name: str) -> str:
    """What is learnt from, if nothing else is named."""
    return tasks.get(task_name).dataset or CollectConfig(task_name).name


def _load_data(task_name: str, dataset: str | None) -> TaskData:
    """One dataset per task; several of either are joined by +."""
    names = tasks.task_names(task_name)
    datasets: Sequence[str | None] = [None] * len(names) if dataset is None else dataset.split("+")
    if len(datasets) != len(names):
        raise UserError(f"there are {len(datasets)} datasets for {len(names)} tasks, expected one for each")
    task_data = []
    for name, wanted in zip(names, datasets, strict=True):
        task, default = tasks.get(name), default_dataset(name)
        is_collected = task.dataset is None and wanted in (None, default)
        data = collect(CollectConfig(name)) if is_collected else store.read(wanted or default, task)
        if reason := store.incompatibility(data, task):
            raise DataError(f"dataset {data.name} does not fit task {name}: {reason}; name a dataset of this task")
        task_data.append((task, data))
    return task_data


def _digest(task_data: TaskData, like: str = "2-") -> str:
    """Of the content of all datasets, in the format that `like` has."""
    prefix = "2-" if like.startswith("2-") else ""
    digests = [data.digest if prefix else str(data.digest_v1) for _, data in task_data]
    return digests[0] if len(digests) == 1 else prefix + hashlib.sha256("+".join(digests).encode()).hexdigest()[:16]


def _common_spec(specs: Sequence[PlanSpec]) -> PlanSpec:
    """The spec with the most states, with as many goals as any of them has."""
    largest = max(specs, key=lambda spec: 0 if spec.states is None else spec.states.size)
    num_goals = max(spec.num_goals for spec in specs)
    if num_goals == largest.num_goals:
        return largest
    if (goals := largest.goals) is None and largest.geometry is not None:
        goals = Stream(largest.geometry.num_cells, points_at=largest.grid_field)
    goals = goals or next(spec.goals for spec in specs if spec.goals is not None)
    streams = {**largest.streams, "goals": dataclasses.replace(goals, shape=(num_goals,))}
    return dataclasses.replace(largest, streams=streams)


def _trainer(folder: Path, config: Mapping[str, Any], task_data: TaskData, stored: Mapping[str, Any] | None) -> Trainer:
    """`stored` is written as config.json, if it is not there or changed."""
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
        replacing = [one for one in transforms if getattr(one, "replaces", False)]  # what is learnt is what is held out
        held_out = extend_episodes(replacing, spec, held_out, np.random.default_rng(training.seed))
        parts[1].append(Windows(spec, held_out, needs))
    windows, validation = (part[0] if len(part) == 1 else TaskMixture(part) for part in parts)
    with run_lock(folder):  # not before: what cannot be trained leaves no folder behind
        if "run" not in config and (folder / "config.json").exists():
            raise UserError(f"another process began a run in {folder}; run the same command again")
        run = config.get("run", "") if stored is None else checkpoint.write_config(folder, stored)["run"]
        torch.set_num_threads(training.threads)
        _prepare(folder, planner, demonstrations, windows, validation, run, training.steps)
        evaluate_fn = partial(_evaluate, [task for task, _ in task_data])
        return Trainer(folder, planner, windows, validation, training, evaluate_fn, run)


def _prepare(
    folder: Path, planner: LearnedPlanner, episodes: Sequence[Episode], windows: Windows | TaskMixture,
    held_out: Windows | TaskMixture, run: str, most_steps: int,
) -> None:  # fmt: skip
    """The stage before training: statistics of the data, and what is learnt first, once in the life of a run."""
    path, log = folder / "codec.safetensors", folder / "log.jsonl"
    own = planner.state_dict()
    if path.exists():
        tensors, metadata = checkpoint.load_tensors(path, run)
        errors = metadata["errors"]
        if unknown := sorted(set(tensors) - set(own)):
            raise CheckpointError(f"{path} has the unknown tensor {unknown[0]}; config.json belongs to another model")
        checkpoint.copy_into({name: own[name] for name in tensors}, tensors, path)
    else:
        before = {name: tensor.clone() for name, tensor in own.items()}
        errors = {**planner.fit_codec(episodes), **planner.pretrain(windows, held_out, most_steps)}
        fitted = {name: one for name, one in planner.state_dict().items()
                  if not torch.allclose(one, before[name], rtol=0, atol=0, equal_nan=True)}  # fmt: skip
        if fitted:
            checkpoint.save_tensors(path, fitted, {"errors": errors}, run)
    if errors and not log.exists():
        line = {"step": 0, **{name if "/" in name else f"codec/{name}": value for name, value in errors.items()}}
        write_atomically(log, (json.dumps(line) + "\n").encode())


def _evaluate(evaluated: Sequence[Task], planner: LearnedPlanner, num_episodes: int) -> dict[str, float]:
    """Metrics on validation seeds, of each task."""
    metrics: dict[str, float] = {}
    for task in evaluated:
        score = evaluate(planner.for_spec(task.spec), task, VALIDATION_SEEDS[:num_episodes], baseline=None).planner
        prefix = f"{task.name}/" if len(evaluated) > 1 else ""
        metrics |= {f"{prefix}{name}": one.value for name, one in score.metrics.items() if one is not None}
    return metrics
