"""genplan eval: a planner by name, judged, shown and written down."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from genplan import runs, tasks
from genplan.checkpoint import write_json
from genplan.errors import UserError
from genplan.evaluate import Evaluation, evaluate
from genplan.planners.names import mistakes_told, resolve
from genplan.show import progress
from genplan.tasks.noise import SlipperyActions
from genplan.tasks.task import Task
from genplan.types import Planner


def judge(
    console: Console,
    name: str,
    task_name: str | None,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    slip: float,
    walk_name: str,
    path: Path | None,
    untrained: bool = False,
) -> Evaluation:
    planner, config, task = find(name, task_name, options)
    if untrained:
        if not config:
            raise UserError(f"'{name}' has no network that could be left untrained; expected a trained planner")
        name, planner = f"{name}, untrained", runs.untrained(config).eval().on(task.spec)
    worlds = tasks.worlds_of(config.get("task", task.name))
    trained_on = task.name if task.name in worlds else worlds[0]
    if walk_name == "walk:demos" and task.name not in tasks.WORLDS:
        walk_name = "walk:uniform"  # whose demonstrations are counted, is known for the table's worlds only
    walk = resolve(walk_name, task, trained_on)
    execute = config.get("planner", options).get("execute")
    wrap = partial(SlipperyActions, probability=slip) if slip else None
    total = len(seeds) * (3 if task.expert else 2)
    with mistakes_told(name), progress(console, f"{name} on {task.name}", total, "episodes") as tick:
        found = evaluate(planner, task, seeds, walk=walk, execute=execute, wrap=wrap, tick=tick)
    console.print(table(name, task, seeds, found))
    if path is not None:
        write_json(path, record(name, task, seeds, execute, config, found))
        console.print(f"written to {path}")
    return found


def find(name: str, task_name: str | None, options: Mapping[str, Any]) -> tuple[Planner, dict[str, Any], Task]:
    """A planner by name, its config (empty if it was not trained), and its task."""
    if name.startswith("pretrained:") or (Path(name) / "config.json").exists():
        trained, config = runs.load(runs.locate(name))
        config["planner"] = {**config["planner"], **options}
        if task_name is None and len(worlds := tasks.worlds_of(config["task"])) > 1:
            raise UserError(f"'{name}' learnt in several worlds; choose one with --task: {', '.join(worlds)}")
        task = tasks.get(task_name or config["task"])
        return trained.with_options(**options).on(task.spec), config, task
    if task_name is None:
        raise UserError(
            f"'{name}' is not a run folder; name a task with --task, or a run folder made by 'genplan train'"
        )
    if of_network := [option for option in options if option != "execute"]:
        raise UserError(f"{', '.join(of_network)} can be set for trained planners, found '{name}'")
    task = tasks.get(task_name)
    return resolve(name, task), {}, task


def table(name: str, task: Task, seeds: Sequence[int], found: Evaluation) -> Table:
    title = f"{name} on {task.name}, seeds {seeds[0]}–{seeds[-1]}"
    shown = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True)  # fits in 80 columns
    for column in ("", "success (95 %)", "SPL", "steps", "cells", "stall", "planner", "worlds"):
        shown.add_column(column, justify="left" if not column else "right", no_wrap=True)
    rows = {"this planner": found.planner, "blind walk": found.walk, "bot": found.bot}
    for who, score in rows.items():
        if score is not None:
            low, high = score.success_interval
            shown.add_row(
                who,
                f"{score.success:.1%} ({100 * low:.0f}–{100 * high:.0f})",
                "" if score.spl is None else f"{score.spl:.3f}",
                f"{score.mean_steps:.1f}",
                f"{score.cells:.1f}",
                f"{score.stall:.0%}",
                f"{score.planner_seconds:.1f} s",
                f"{score.seconds - score.planner_seconds:.1f} s",
            )
    return shown


def record(
    name: str, task: Task, seeds: Sequence[int], execute: int | None, config: Mapping[str, Any], found: Evaluation
) -> dict[str, Any]:
    """What was measured, as JSON; rates are shares from 0 to 1."""
    score = found.planner
    text = json.dumps({key: config.get(key) for key in ("method", "planner", "training", "dataset")}, sort_keys=True)
    return {
        "task": task.name,
        "planner": name,
        "method": config.get("method"),
        "preset": config.get("planner", {}).get("preset"),
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "commit": runs.commit(),
        "seed": seeds[0],
        "execute": execute,
        **dataclasses.asdict(score),
        "plans_per_second": score.plans / score.seconds,
        "walk": None if found.walk is None else dataclasses.asdict(found.walk),
        "bot": None if found.bot is None else dataclasses.asdict(found.bot),
        "rows": [dataclasses.asdict(result) for result in found.results],
    }
