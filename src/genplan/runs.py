"""A run from its name to its planner: which task, which demonstrations, which method; made, resumed or loaded."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from genplan import checkpoint, tasks
from genplan.config import (
    METHODS,
    BCConfig,
    DTConfig,
    GenPlanConfig,
    LEAPConfig,
    PlannerConfig,
    TrainConfig,
    from_data,
    method_of,
)
from genplan.data import episodes
from genplan.data.demos import Recipe, collect
from genplan.data.stitch import Stitcher
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Mixture, Windows, held_out
from genplan.errors import DataError, UserError
from genplan.evaluate import evaluate
from genplan.planners.behaviour_cloning import BehaviourCloning
from genplan.planners.decision_transformer import DecisionTransformer
from genplan.planners.genplan import GenPlan
from genplan.planners.leap import Leap
from genplan.planners.learned import Learned
from genplan.tasks.table import VALIDATION_SEEDS
from genplan.tasks.task import Task
from genplan.train import Run


def begin(
    folder: Path,
    task_name: str,
    planner: PlannerConfig,
    training: TrainConfig,
    dataset: str | None = None,
    tick: Callable[[int], None] | None = None,
) -> Run:
    """A new run in an empty folder; demonstrations are collected if they are not there."""
    if (folder / "config.json").exists():
        raise UserError(f"there is a run in {folder} already; go on with --resume {folder}, or name another --out")
    lessons = _lessons(task_name, dataset, tick)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": checkpoint.FORMAT,
        "method": method_of(planner),
        "task": task_name,
        "spec": _spec(lessons).to_json(),
        "planner": dataclasses.asdict(planner),
        "training": dataclasses.asdict(training),
        "dataset": _described(lessons),
        "versions": {**episodes.versions(), "torch": torch.__version__},
        "commit": commit(),
    }
    checkpoint.write_json(folder / "config.json", config)
    return _run(folder, config, lessons)


def resume(folder: Path, tick: Callable[[int], None] | None = None) -> Run:
    """The run in a folder, from its last checkpoint on (from the start, if it was stopped before the first)."""
    config = checkpoint.read_config(folder)
    lessons = _lessons(config["task"], config["dataset"]["name"], tick)
    found, expected = _described(lessons), config["dataset"]
    if found["digest"] != expected["digest"]:
        raise DataError(
            f"dataset {found['name']} has the content {found['digest']}, "
            f"expected {expected['digest']} as when {folder} began"
        )
    return _run(folder, config, lessons)


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


def load(folder: Path) -> tuple[Learned, dict[str, Any]]:
    """The planner of a run, and its config."""
    config = checkpoint.read_config(folder)
    planner = untrained(config)
    path = folder / "model.safetensors"
    tensors, _ = checkpoint.load_tensors(path)
    with torch.no_grad():
        checkpoint.fill(planner, tensors, path)
    return planner.eval(), config


class Lesson(NamedTuple):
    """A task, and demonstrations of it."""

    task: Task
    data: episodes.Dataset


def _lessons(task_name: str, dataset: str | None, tick: Callable[[int], None] | None) -> list[Lesson]:
    """What a run learns from: one dataset per task; several of either are joined by +."""
    names = tasks.worlds_of(task_name)
    datasets: Sequence[str | None] = [None] * len(names) if dataset is None else dataset.split("+")
    if len(datasets) != len(names):
        raise UserError(f"there are {len(datasets)} datasets for {len(names)} tasks, expected one for each")
    lessons = []
    for name, wanted in zip(names, datasets, strict=True):
        task = tasks.get(name)
        if wanted in (None, Recipe(name).name):
            data = collect(Recipe(name), tick=tick)
        else:
            data = episodes.read(str(wanted), task)
        if reason := episodes.fits(data, task):
            raise DataError(f"dataset {data.name} does not fit task {name}: {reason}")
        lessons.append(Lesson(task, data))
    return lessons


def _described(lessons: Sequence[Lesson]) -> dict[str, Any]:
    digests = [lesson.data.digest for lesson in lessons]
    return {
        "name": "+".join(lesson.data.name for lesson in lessons),
        "digest": digests[0] if len(digests) == 1 else hashlib.sha256("+".join(digests).encode()).hexdigest()[:16],
        "episodes": sum(len(lesson.data.episodes) for lesson in lessons),
    }


def _spec(lessons: Sequence[Lesson]) -> PlanSpec:
    """The largest of the tasks' specs, with as many goals as any of them has."""
    specs = [lesson.task.spec for lesson in lessons]
    largest = max(specs, key=lambda spec: spec.num_states)
    goals = max(spec.num_goals for spec in specs)
    size = max(largest.goal_size, largest.num_cells) if goals else 0
    return dataclasses.replace(largest, num_goals=goals, goal_size=size)


PLANNERS: Mapping[type[PlannerConfig], type[Learned]] = {
    GenPlanConfig: GenPlan,
    BCConfig: BehaviourCloning,
    DTConfig: DecisionTransformer,
    LEAPConfig: Leap,
}


def settings_of(config: Mapping[str, Any]) -> PlannerConfig:
    """The planner's settings in a run's config."""
    if config["method"] not in METHODS:
        raise UserError(f"config.json has the method '{config['method']}'; expected one of {', '.join(METHODS)}")
    kind = type(METHODS[config["method"]])
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(set(config["planner"]) - known):
        raise UserError(
            f"config.json has the unknown key '{unknown[0]}' for the planner; expected: {', '.join(sorted(known))}"
        )
    return from_data(kind, config["planner"])


def untrained(config: Mapping[str, Any], seed: int = 0) -> Learned:
    """The planner of a run before it learnt anything: the control of every result."""
    return fresh(PlanSpec.from_json(config["spec"]), settings_of(config), seed)


def fresh(spec: PlanSpec, settings: PlannerConfig, seed: int = 0) -> Learned:
    """A planner that has learnt nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PLANNERS[type(settings)](spec, settings)


def _run(folder: Path, config: Mapping[str, Any], lessons: Sequence[Lesson]) -> Run:
    training = from_data(TrainConfig, config["training"])
    planner = untrained(config, training.seed)
    settings = planner.config
    parts: list[list[Windows]] = [[], []]
    for task, data in lessons:
        spec = planner.on(task.spec).spec
        learnt, unseen = held_out(data.episodes)
        if training.clutter and spec.map_shape is None:
            raise UserError(f"clutter is {training.clutter}, and {task.name} has no map to put it in; expected 0")
        if training.stitch:
            more = Stitcher(spec, learnt, training.join).make(training.stitch, np.random.default_rng(training.seed))
            if not more:
                raise UserError(
                    f"stitch is {training.stitch}, and of the {len(learnt)} demonstrations of {task.name} no two pass "
                    "through one state in rooms that look alike; train with --training.stitch 0"
                )
            learnt = [*learnt, *more]
        for part, chosen, haste in zip(parts, (learnt, unseen), (training.haste, 0.0), strict=True):
            memory = (settings.horizon, settings.context, settings.goal_kinds, settings.trail)
            part.append(Windows(spec, chosen, *memory, haste))

    def play(trained: torch.nn.Module, number: int) -> dict[str, float]:
        assert isinstance(trained, Learned)
        scores: dict[str, float] = {}
        for task, _ in lessons:
            player = trained.on(task.spec)
            found = evaluate(player, task, VALIDATION_SEEDS[:number], walk=None, execute=settings.execute).planner
            which = f"{task.name}/" if len(lessons) > 1 else ""
            known = {"success": found.success, "spl": found.spl, "stall": found.stall}
            scores |= {f"{which}{name}": value for name, value in known.items() if value is not None}
        return scores

    windows, held = (part[0] if len(part) == 1 else Mixture(part) for part in parts)
    return Run(folder, planner, windows, held, training, play)


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
