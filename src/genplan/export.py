"""A planner to give away: half-precision weights, its config, and a card with its origin and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genplan import checkpoint, names, runs, tasks
from genplan import config as settings
from genplan.errors import UserError
from genplan.evaluate import evaluate, to_record
from genplan.files import content_digest, plain, write_json, write_sealed
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
    as_good: bool  # its headline metric is not below the 95 % interval of the card's


def export(
    folder: Path, out: Path, options: Mapping[str, Any] | None = None, on_episodes: OnEpisodes | None = None,
    task: str | None = None, method: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write a finished run in half precision, evaluate what was written on the test seeds, and return its card.

    `options`, by the names of settings, change how the planner is used from now on; its weights stay. `task` and
    `method` are needed if they are files.
    """
    learned, _ = checkpoint.load_planner(folder, method)
    config = checkpoint.read_config(folder)
    checkpoint.allowed(config, "task", task, folder)
    tensors, metadata = checkpoint.load_tensors(folder / "model.safetensors", config.pop("run"))
    _, last = checkpoint.load_tensors(folder / "last.safetensors")
    step, steps = metadata["step"], settings.from_dict(TrainConfig, config["training"]).steps
    if step < steps:
        raise UserError(f"the run in {folder} is at step {step} of {steps}; finish it: genplan train --resume {folder}")
    if (out / "config.json").exists():
        raise UserError(f"there is a planner in {out} already; remove it or name another --out")
    config["planner"] = settings.to_dict(learned.with_options(**(options or {})).config)
    weights = dict(learned.named_parameters())  # statistics of the data stay as they are
    half = {name: tensor.half() if name in weights else tensor for name, tensor in tensors.items()}
    digest = checkpoint.digest(half)
    config["run"] = content_digest({**config, "weights": digest})  # other weights than those of the run
    checkpoint.write_config(out, config)
    checkpoint.save_tensors(out / "model.safetensors", half, {"step": step}, config["run"])
    card = {
        "format": checkpoint.FORMAT, "method": config["method"], "task": config["task"], "dataset": config["dataset"],
        "steps": steps, "cpu_seconds": round(last["cpu_seconds"]), "commit": config["commit"],
        "weights": digest[:16], "parameters": sum(tensor.numel() for tensor in half.values()),
        "results": plain(_evaluate(out, on_episodes, task, method)),
    }  # fmt: skip
    write_sealed(out / "card.json", card)
    return card


def reproduce(
    name: str, out: Path, on_progress: Callable[[Progress], None] | None = None, task: str | None = None,
    method: str | None = None,
) -> Reproduction:  # fmt: skip
    """Train an exported planner again from its config, in the folder `out` (continuing there), and compare.

    `task` and `method` are needed if they are files.
    """
    source = checkpoint.run_dir(name)
    card, config = checkpoint.read_card(source), checkpoint.read_config(source)
    config |= {"task": checkpoint.allowed(config, "task", task, source),
               "method": checkpoint.allowed(config, "method", method, source)}  # fmt: skip
    if (out / "config.json").exists():
        trainer = runs.resume_run(out, task, method)
    else:
        planner = checkpoint.read_planner_config(config)
        training = settings.from_dict(TrainConfig, config["training"])
        dataset, recipe = config["dataset"]["name"], config["transforms"]
        trainer = runs.create_run(out, config["task"], config["method"], planner, training, dataset, recipe)
    trainer.fit(on_progress)
    results = _evaluate(out, None, task, method)
    write_json(out / "results.json", results)
    return Reproduction(
        card, results, runs.dataset_matches(config, config["task"]), _is_as_good(card["results"], results)
    )


def _is_as_good(expected: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether the headline metric is not below the 95 % interval of the card's."""
    headline = next((name for name, one in expected["metrics"].items() if isinstance(one, Mapping)), None)
    headline = "success" if isinstance(expected["metrics"].get("success"), Mapping) else headline
    try:
        summary, now = expected["metrics"][headline], found["metrics"][headline]["value"]
        number, value = expected["num_episodes"], float(summary["value"])
        if headline == "success":
            return bool(now >= wilson(round(value * number), number)[0])
        return bool(now >= float(summary["low"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the card's results of {headline} cannot be compared ({type(error).__name__}: {error}); "
                        "expected a value with its interval") from error  # fmt: skip


def _evaluate(
    folder: Path, on_episodes: OnEpisodes | None = None, task: str | None = None, method: str | None = None
) -> dict[str, Any]:
    """Results on the test seeds; of a planner that was trained on several tasks, means and those of each task."""
    planner, config = checkpoint.load_planner(folder, method)
    train_task = checkpoint.allowed(config, "task", task, folder)
    records: dict[str, dict[str, Any]] = {}
    for name in tasks.task_names(train_task):
        played = tasks.get(name)
        own, baseline = planner.for_spec(played.spec), names.load_planner(names.default_baseline(played), played)
        evaluation = evaluate(own, played, TEST_SEEDS, baseline=baseline, on_progress=on_episodes)
        records[name] = to_record(folder.name, played, TEST_SEEDS, config, evaluation, commit=runs.commit())
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
