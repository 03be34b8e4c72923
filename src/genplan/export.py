"""A planner to give away: half-precision weights, its config, and a card that tells its origin and what it scores."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from genplan import checkpoint, runs, tasks
from genplan.config import TrainConfig, from_data
from genplan.errors import UserError
from genplan.evaluate import evaluate, wilson
from genplan.judge import record
from genplan.planners.learned import Learned
from genplan.planners.names import resolve
from genplan.show import progress, training_progress
from genplan.tasks.table import TEST_SEEDS


def shipped() -> dict[str, Path]:
    """The planners that come with genplan, by name."""
    folder = Path(str(resources.files("genplan"))) / "pretrained"
    return {path.parent.relative_to(folder).as_posix(): path.parent for path in sorted(folder.glob("**/card.json"))}


def export(console: Console, folder: Path, out: Path, options: Mapping[str, Any]) -> None:
    """Half-precision weights of a finished run, judged on the test seeds as they are exported.

    `options` change how the planner is used from now on; what was learnt stays.
    """
    config = checkpoint.read_config(folder)
    config["planner"] = dataclasses.asdict(runs.load(folder)[0].with_options(**options).config)
    tensors, about = checkpoint.load_tensors(folder / "model.safetensors")
    _, progress_made = checkpoint.load_tensors(folder / "last.safetensors")
    steps = config["training"]["steps"]
    if about["step"] < steps:
        raise UserError(f"the run in {folder} is at step {about['step']} of {steps}; finish it with --resume {folder}")
    if (out / "config.json").exists():
        raise UserError(f"there is a planner in {out} already; remove it or name another --out")
    out.mkdir(parents=True, exist_ok=True)
    checkpoint.write_json(out / "config.json", config)
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    checkpoint.save_tensors(out / "model.safetensors", half, about)
    results = _judge(console, out)
    card = {
        "method": config["method"],
        "task": config["task"],
        "dataset": config["dataset"],
        "steps": steps,
        "cpu_seconds": round(progress_made["seconds"]),
        "commit": config["commit"],
        "weights": checkpoint.digest(half)[:16],
        "parameters": sum(tensor.numel() for tensor in half.values()),
        "results": results,
    }
    checkpoint.write_json(out / "card.json", card)
    console.print(f"{out}: {(out / 'model.safetensors').stat().st_size / 1e6:.1f} MB")


def reproduce(console: Console, name: str, out: Path) -> bool:
    """Train a planner again from nothing, by its card, and compare. True if the new one is as good, within chance."""
    source = runs.locate(name)
    if not (source / "card.json").is_file():
        raise UserError(f"'{name}' has no card.json; expected an exported planner, such as pretrained:MazeS4G1")
    card = json.loads((source / "card.json").read_text())
    config = checkpoint.read_config(source)
    if (out / "config.json").exists():
        run = runs.resume(out)
    else:
        training = from_data(TrainConfig, config["training"])
        run = runs.begin(out, config["task"], runs.settings_of(config), training, config["dataset"]["name"])
    found = checkpoint.read_config(out)["dataset"]["digest"]
    if found != config["dataset"]["digest"]:
        console.print(f"[yellow]the demonstrations differ: {found}, expected {config['dataset']['digest']}[/]")
    minutes = card["cpu_seconds"] / 60
    console.print(f"training {name} again in {out}: {run.config.steps} steps, about {minutes:.0f} CPU-minutes")
    with training_progress(console, run.step, run.config.steps) as tell:
        run.fit(tell)
    results = _judge(console, out)
    checkpoint.write_json(out / "results.json", results)
    return _compare(console, name, card["results"], results)


def _judge(console: Console, folder: Path) -> dict[str, Any]:
    """What a planner scores on the test seeds; of one that learnt in several worlds, means and each of them."""
    planner, config = runs.load(folder)
    names = tasks.worlds_of(config["task"])
    found = {name: _judge_in(console, planner, config, name, folder.name) for name in names}
    if len(found) == 1:
        return found[names[0]]
    means = {
        key: sum(result[key] for result in found.values()) / len(found)
        for key in ("success", "spl", "mean_steps", "stall")
    }
    return {**means, "episodes": sum(result["episodes"] for result in found.values()), "worlds": found}


def _judge_in(console: Console, planner: Learned, config: Mapping[str, Any], world: str, name: str) -> dict[str, Any]:
    task = tasks.get(world)
    execute = planner.config.execute
    walk = resolve("walk:demos" if task.name in tasks.WORLDS else "walk:uniform", task)
    with progress(console, f"{config['method']} on {task.name}", 3 * len(TEST_SEEDS), "episodes") as tick:
        found = evaluate(planner.on(task.spec), task, TEST_SEEDS, walk=walk, execute=execute, tick=tick)
    result = record(name, task, TEST_SEEDS, execute, config, found)
    return {key: value for key, value in result.items() if key != "rows"}


def _compare(console: Console, name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    table = Table(title=f"{name}, seeds {TEST_SEEDS[0]}–{TEST_SEEDS[-1]}")
    for column in ("", "card", "now"):
        table.add_column(column, justify="right" if column else "left")
    for key in ("success", "spl", "mean_steps", "stall"):
        table.add_row(key, f"{then[key]:.3f}", f"{now[key]:.3f}")
    console.print(table)
    low, _ = wilson(round(then["success"] * then["episodes"]), then["episodes"])
    as_good = now["success"] >= low
    verdict = "[green]as good as its card, within chance[/]" if as_good else "[red]below its card's interval[/]"
    console.print(verdict)
    return bool(as_good)
