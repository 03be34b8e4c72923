"""A run from its name to its planner: which task, which demonstrations, which method; made, resumed or loaded."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from genplan import checkpoint, tasks
from genplan.config import GenPlanConfig, TrainConfig
from genplan.data import episodes
from genplan.data.demos import Recipe, collect
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Windows, held_out
from genplan.errors import DataError, UserError
from genplan.evaluate import evaluate
from genplan.planners.genplan import GenPlan
from genplan.tasks.table import VALIDATION_SEEDS
from genplan.train import Run


def begin(
    folder: Path,
    task_name: str,
    planner: GenPlanConfig,
    training: TrainConfig,
    dataset: str | None = None,
    tick: Callable[[int], None] | None = None,
) -> Run:
    """A new run in an empty folder; demonstrations are collected if they are not there."""
    if (folder / "config.json").exists():
        raise UserError(f"there is a run in {folder} already; go on with --resume {folder}, or name another --out")
    task = tasks.get(task_name)
    data = _data(task_name, dataset, tick)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": checkpoint.FORMAT,
        "method": "GenPlan-M" if planner.source == "mask" else "GenPlan-U",
        "task": task_name,
        "spec": task.spec.to_json(),
        "planner": dataclasses.asdict(planner),
        "training": dataclasses.asdict(training),
        "dataset": {"name": data.name, "digest": data.digest, "episodes": len(data.episodes)},
        "versions": {**episodes.versions(), "torch": torch.__version__},
        "commit": commit(),
    }
    checkpoint.write_json(folder / "config.json", config)
    return _run(folder, config, data)


def resume(folder: Path, tick: Callable[[int], None] | None = None) -> Run:
    """The run in a folder, from its last checkpoint on (from the start, if it was stopped before the first)."""
    config = checkpoint.read_config(folder)
    data = _data(config["task"], config["dataset"]["name"], tick)
    if data.digest != config["dataset"]["digest"]:
        expected = config["dataset"]["digest"]
        raise DataError(
            f"dataset {data.name} has the content {data.digest}, expected {expected} as when {folder} began"
        )
    return _run(folder, config, data)


def locate(name: str | Path) -> Path:
    """The folder of a trained planner: `pretrained:TASK`, or a run folder itself."""
    text = str(name)
    if not text.startswith("pretrained:"):
        return Path(name)
    from genplan.export import shipped

    known = shipped()
    if (wanted := text.removeprefix("pretrained:")) not in known:
        has = f"known are {', '.join(f'pretrained:{one}' for one in known)}" if known else "this genplan ships none"
        raise UserError(f"there is no planner '{text}'; {has}")
    return known[wanted]


def load(folder: Path) -> tuple[GenPlan, dict[str, Any]]:
    """The planner of a run, and its config."""
    config = checkpoint.read_config(folder)
    planner = untrained(config)
    path = folder / "model.safetensors"
    tensors, _ = checkpoint.load_tensors(path)
    with torch.no_grad():
        checkpoint.fill(planner, tensors, path)
    return planner.eval(), config


def _data(task_name: str, dataset: str | None, tick: Callable[[int], None] | None) -> episodes.Dataset:
    task = tasks.get(task_name)
    if dataset in (None, Recipe(task_name).name):
        data = collect(Recipe(task_name), tick=tick)
    else:
        data = episodes.read(str(dataset), task)
    if reason := episodes.fits(data, task):
        raise DataError(f"dataset {data.name} does not fit task {task_name}: {reason}")
    return data


def untrained(config: Mapping[str, Any], seed: int = 0) -> GenPlan:
    """The planner of a run before it learnt anything: the control of every result."""
    known = {field.name for field in dataclasses.fields(GenPlanConfig)}
    if unknown := sorted(set(config["planner"]) - known):
        raise UserError(
            f"config.json has the unknown key '{unknown[0]}' for the planner; expected: {', '.join(sorted(known))}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GenPlan(PlanSpec.from_json(config["spec"]), GenPlanConfig(**config["planner"]))


def _run(folder: Path, config: Mapping[str, Any], data: episodes.Dataset) -> Run:
    training = TrainConfig(**config["training"])
    planner = untrained(config, training.seed)
    train, validation = held_out(data.episodes)
    settings = planner.config
    windows = [
        Windows(planner.spec, part, settings.horizon, settings.context, settings.goal_kinds, settings.trail)
        for part in (train, validation)
    ]

    def play(trained: torch.nn.Module, number: int) -> dict[str, float]:
        assert isinstance(trained, GenPlan)
        task, seeds = tasks.get(config["task"]), VALIDATION_SEEDS[:number]
        found = evaluate(trained, task, seeds, walk=None, execute=trained.config.execute).planner
        return {"success": found.success, **({} if found.spl is None else {"spl": found.spl}), "stall": found.stall}

    return Run(folder, planner, windows[0], windows[1], training, play)


def commit() -> str:
    """The commit of the checkout that runs, with a plus if it was changed; empty outside one."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if head and git("status", "--porcelain", "--untracked-files=no") else "")
    except OSError:  # no git
        return ""
