"""A planner to give away: half-precision weights, its config, and a card with its origin and its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genplan import checkpoint, migrations, names, runs, tasks
from genplan import config as settings
from genplan.errors import CheckpointError, UserError
from genplan.evaluate import evaluate, to_record
from genplan.files import write_json
from genplan.metrics import wilson
from genplan.presets import TrainConfig
from genplan.training import Progress
from genplan.types import TEST_SEEDS

OnEpisodes = Callable[[int], None]
"""Gets the number of episodes that were just played."""


@dataclass(frozen=True)
class Reproduction:
    """A planner that was trained again, beside its card."""

    card: Mapping[str, Any]
    results: Mapping[str, Any]  # as in a card
    same_dataset: bool
    as_good: bool  # its success is not below the 95 % interval of the card's


def read_card(folder: Path) -> dict[str, Any]:
    """The card of an exported planner, in format 2."""
    path = folder / "card.json"
    if not path.is_file():
        raise UserError(f"'{folder}' has no card.json; expected an exported planner, such as pretrained:MazeS4G1")
    try:
        return migrations.migrate_card(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error}); use another copy") from error


def export(
    folder: Path, out: Path, options: Mapping[str, Any] | None = None, on_episodes: OnEpisodes | None = None
) -> dict[str, Any]:
    """Write a finished run in half precision, evaluate what was written on the test seeds, and return its card.

    `options`, by the names of settings, change how the planner is used from now on; its weights stay.
    """
    learned, config = checkpoint.load_planner(folder)
    config["planner"] = settings.to_dict(learned.with_options(**(options or {})).config)
    tensors, metadata = checkpoint.load_tensors(folder / "model.safetensors")
    _, last = checkpoint.load_tensors(folder / "last.safetensors")
    step, steps = metadata["step"], config["training"]["steps"]
    if step < steps:
        raise UserError(f"the run in {folder} is at step {step} of {steps}; finish it with --resume {folder}")
    if (out / "config.json").exists():
        raise UserError(f"there is a planner in {out} already; remove it or name another --out")
    weights = dict(learned.named_parameters())  # statistics of the data stay as they are
    half = {name: tensor.half() if name in weights else tensor for name, tensor in tensors.items()}
    checkpoint.save_tensors(out / "model.safetensors", half, metadata)
    write_json(out / "config.json", config)
    card = {
        "format": checkpoint.FORMAT, "method": config["method"], "task": config["task"], "dataset": config["dataset"],
        "steps": steps, "cpu_seconds": round(last["cpu_seconds"]), "commit": config["commit"],
        "weights": checkpoint.digest(half)[:16], "parameters": sum(tensor.numel() for tensor in half.values()),
        "results": _evaluate(out, on_episodes),
    }  # fmt: skip
    write_json(out / "card.json", card)
    return card


def reproduce(name: str, out: Path, on_progress: Callable[[Progress], None] | None = None) -> Reproduction:
    """Train an exported planner again from its config, in the folder `out` (continuing there), and compare."""
    source = checkpoint.run_dir(name)
    card, config = read_card(source), checkpoint.read_config(source)
    if (out / "config.json").exists():
        trainer = runs.resume_run(out)
    else:
        planner = checkpoint.read_planner_config(config)
        training = settings.from_dict(TrainConfig, config["training"])
        dataset, recipe = config["dataset"]["name"], config["transforms"]
        trainer = runs.create_run(out, config["task"], config["method"], planner, training, dataset, recipe)
    trainer.fit(on_progress)
    results = _evaluate(out)
    write_json(out / "results.json", results)
    successes = [one["metrics"]["success"]["value"] for one in (card["results"], results)]
    number = card["results"]["num_episodes"]
    low, _ = wilson(round(successes[0] * number), number)
    return Reproduction(card, results, runs.dataset_matches(config), successes[1] >= low)


def _evaluate(folder: Path, on_episodes: OnEpisodes | None = None) -> dict[str, Any]:
    """Results on the test seeds; of a planner that was trained on several tasks, means and those of each task."""
    planner, config = checkpoint.load_planner(folder)
    records: dict[str, dict[str, Any]] = {}
    for name in tasks.task_names(config["task"]):
        task = tasks.get(name)
        own, baseline = planner.for_spec(task.spec), names.load_planner(names.default_baseline(task), task)
        evaluation = evaluate(own, task, TEST_SEEDS, baseline=baseline, on_progress=on_episodes)
        records[name] = to_record(folder.name, task, TEST_SEEDS, config, evaluation, commit=runs.commit())
        del records[name]["episodes"]  # a card is short
    first = next(iter(records.values()))
    if len(records) == 1:
        return first
    metrics: dict[str, Any] = {}
    for metric in first["metrics"]:
        found = [record["metrics"].get(metric) for record in records.values()]
        if all(one is not None for one in found):
            metrics[metric] = {"value": sum(one["value"] for one in found) / len(found), "low": None, "high": None}
    number = sum(record["num_episodes"] for record in records.values())
    return {"num_episodes": number, "metrics": metrics, "tasks": records}
