"""Run cells: train, evaluate on the test seeds, and store one result each; several at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genplan import checkpoint, metrics, names, planners, runs
from genplan.bench.cell import Cell
from genplan.bench.store import CellResult, ResultStore
from genplan.bench.table import PATH_METRICS
from genplan.collect import CollectConfig, collect
from genplan.data.store import Dataset, read
from genplan.errors import UserError
from genplan.evaluate import play_timed
from genplan.jobs import Executor, Job, LocalExecutor, Report, file_lock
from genplan.planners.base import LearnedPlanner
from genplan.tasks.files import short_name, user_code_errors
from genplan.tasks.paper import ROWS
from genplan.types import TEST_SEEDS, Planner, Rollout, Task

TRAINING_FRACTION = 0.9  # of the progress of a cell that is trained; the rest is evaluation
SHOWN = ("label", "format", "interval", "higher_is_better")  # of a metric, in the result
EVALUATION_MINUTES = {"AP": 2.0}  # rough, for estimates; half a minute in other splits


@dataclass(frozen=True)
class BenchEvent:
    """A cell progressed, was done, or failed."""

    cell: Cell
    type: Literal["progress", "done", "failed"]
    fraction: float = 0.0
    detail: str = ""  # its headline metric, or why it failed


def run_cells(
    cells: Sequence[Cell], store: ResultStore, folder: Path, workers: int = 2, max_minutes: float | None = None,
    executor: Executor | None = None,
) -> Iterator[BenchEvent]:  # fmt: skip
    """Run the cells that are missing, `workers` at a time; each result is stored as soon as it is there.

    After `max_minutes` no cell begins, and trainings are stopped, to continue next time; evaluations are finished.
    Trainings are kept in `folder`.
    """
    if max_minutes is not None and not max_minutes > 0:
        raise UserError(f"max_minutes is {max_minutes}, expected more than 0; leave it out to run to the end")
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    executor = executor or LocalExecutor(workers, interruptible=_is_training)
    with file_lock(store.path.with_name(f".{store.path.name}.lock"), f"{store.path} is being filled"):
        folder.mkdir(parents=True, exist_ok=True)
        store.repair()
        missing = dict.fromkeys(cell for cell in cells if store.find(cell) is None)
        jobs = [Job(repr(cell), run_cell, (cell, folder), _training_hash(cell)) for cell in missing]
        for event in executor.run(jobs, deadline):
            type_, detail = event.type, event.reason
            if event.type == "done":
                try:
                    store.add(event.result)
                    detail = _headline(event.result)
                except ValueError as error:  # such as a metric that is not finite
                    type_, detail = "failed", f"its result cannot be stored: {error}"
            yield BenchEvent(event.job.arguments[0], type_, event.fraction, detail)


def _headline(result: CellResult) -> str:
    known = (metric for metric in result.metrics if metric.name in result.episodes)  # SPL needs the expert's result
    metric = next(known, metrics.METRICS["success"])
    found = metrics.summarize_values(metric, result.episodes[metric.name], result.weights.get(metric.name))
    return f"{metric.label or metric.name} {found.value:{metric.format}}"


def _is_training(job: Job, fraction: float) -> bool:
    return job.group is not None and fraction < TRAINING_FRACTION


def _training_hash(cell: Cell) -> str | None:
    return cell.training_hash if cell.is_trained else None


def run_cell(cell: Cell, folder: Path, report: Report) -> CellResult:
    """The job of one cell."""
    task, seeds = cell.task, TEST_SEEDS[: cell.episodes]
    start_time, start_cpu, commit = time.time(), time.process_time(), runs.commit()
    training: dict[str, Any] = {}
    if cell.is_trained or cell.is_untrained:
        if cell.is_trained:
            learned, training = _train(cell, folder, report)
            report(TRAINING_FRACTION)  # also if it was trained before
        else:
            learned = planners.build(cell.base_method, cell.train_task.spec, cell.training().planner, cell.seed).eval()
            if cell.table_row.split == "own":  # statistics of the data are not learnt: it has those of the others
                learned.fit_codec(_demonstrations(cell, folder).episodes)
        planner: Planner = learned.with_options(**{**cell.planning(), **cell.options()}).for_spec(task.spec)
    else:
        planner = names.load_planner(cell.method, task, cell.table_row.train_task)
    finished, before = 0, TRAINING_FRACTION if cell.is_trained else 0.0

    def on_progress(number: int) -> None:
        nonlocal finished
        finished += number
        report(before + (1 - before) * finished / len(seeds))

    with user_code_errors(cell.method):
        played = play_timed(planner, task, seeds, on_progress=on_progress)
    values, weights = _measure(task, played.rollouts)
    columns = {one.name: {name: getattr(one, name) for name in SHOWN} for one in metrics.resolve(task)}
    # Those of the paper's rows follow from the task whenever they are needed; others cannot be asked later.
    references = {} if cell.row in ROWS else {name: list(map(of, seeds)) for name, of in task.references.items()}
    return CellResult(
        cell=cell, settings=cell.settings(), first_seed=seeds[0], episodes=values, weights=weights, training=training,
        columns=columns, references=references,
        privileged=bool(planner.privileged), seconds=round(played.seconds, 2),
        planner_seconds=round(played.planner_seconds, 2), cpu_seconds=round(time.process_time() - start_cpu, 2),
        num_plans=sum(rollout.num_plans for rollout in played.rollouts), commit=commit,
        when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_time)),
    )  # fmt: skip


def _measure(task: Task, rollouts: Sequence[Rollout]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Values and weights of the task's metrics per episode; SPL follows from success, steps and references."""
    measured = {name: metrics.METRICS[name] for name in ("success", "steps")}
    measured |= {metric.name: metric for metric in metrics.resolve(task) if metric.name not in PATH_METRICS}
    values, weights = {}, {}
    for name, metric in measured.items():
        if (numbers := metrics.episode_values(metric, rollouts)) is not None:
            values[name] = _plain(numbers)
            if (divisors := metrics.episode_weights(metric, rollouts)) is not None:
                weights[name] = _plain(divisors)
    return values, weights


def _plain(numbers: Sequence[float]) -> list[float]:
    """Whole numbers as int, which JSON writes more briefly."""
    return [int(number) if float(number).is_integer() else float(number) for number in numbers]


def run_dir(cell: Cell, folder: Path) -> Path:
    """Where its training is kept."""
    method = re.sub(r"[^\w.-]+", "-", cell.trained.method).strip("-")
    return folder / f"{short_name(cell.table_row.train_task)}-{method}-{cell.training_hash}"


def _demonstrations(cell: Cell, folder: Path) -> Dataset:
    """The dataset of a cell, collected if it is not there."""
    if cell.data is not None or cell.train_task.dataset is not None:
        return read(cell.dataset, cell.train_task)
    data = CollectConfig(cell.table_row.train_task, cell.demonstrations)
    with file_lock(folder / f"{data.name.replace('/', '-')}.lock", data.name, wait=True):
        return collect(data, workers=1)  # cells of one task may begin together


def _train(cell: Cell, folder: Path, report: Report) -> tuple[LearnedPlanner, dict[str, Any]]:
    """The planner of a cell: trained now, continued, or loaded where it is trained already."""
    cell = cell.trained
    planner, training, transforms = cell.training()
    place, task_name = run_dir(cell, folder), cell.table_row.train_task
    with file_lock(folder / f"{place.name}.lock", f"{cell.name} is being trained", wait=True):
        if (place / "config.json").exists():
            trainer = runs.resume_run(place, task_name, cell.method)
        else:
            _demonstrations(cell, folder)
            trainer = runs.create_run(place, task_name, cell.method, planner, training, cell.dataset, transforms)
        trainer.fit(lambda now: report(TRAINING_FRACTION * now.step / now.steps))
    learned, run = checkpoint.load_planner(place, cell.method)
    minutes = round(trainer.cpu_seconds / 60, 2)
    return learned, {"hash": cell.training_hash, "cpu_minutes": minutes, "steps": training.steps,
                     "dataset": run["dataset"], "commit": run["commit"]}  # fmt: skip


def estimated_minutes(cells: Sequence[Cell], folder: Path) -> dict[Cell, float]:
    """Rough estimates, for the remaining time that is shown. Of cells that share a training, the first has its cost."""
    estimates, counted = {}, set()
    for cell in cells:
        short = cell.steps is not None
        estimates[cell] = 0.1 if short else EVALUATION_MINUTES.get(cell.table_row.split, 0.5)
        if (training := _training_hash(cell)) is not None and training not in counted:
            counted.add(training)
            minutes = 0.1 if short else cell.train_task.budget_minutes
            weights = run_dir(cell, folder) / "model.safetensors"
            step = checkpoint.load_tensors(weights)[1]["step"] if weights.exists() else 0
            estimates[cell] += minutes * (1 - step / cell.training().training.steps)
    return estimates
