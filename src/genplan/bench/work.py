"""The work on one cell: train, judge, and make a line of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from genplan import runs, tasks
from genplan.bench.cell import Cell
from genplan.data.demos import Recipe, collect
from genplan.errors import UserError
from genplan.evaluate import rollout_timed
from genplan.planners.learned import Learned
from genplan.planners.names import mistakes_told, resolve
from genplan.tasks.table import ROWS, TEST_SEEDS, Row
from genplan.types import Planner
from genplan.workers import only_one, serve

TRAINING = 0.9  # of the progress of a cell; the rest is being judged


def work(cell: Cell, folder: Path, told: Connection, parent: int) -> None:
    """In a process of its own: train and judge a cell, tell how far it is, and hand over its line."""
    serve(parent)
    try:
        told.send(("done", run_cell(cell, folder, lambda share: told.send(("share", share)))))
    except BrokenPipeError:  # who would be told was killed
        return
    except (UserError, OSError) as error:
        told.send(("failed", str(error)))


def run_cell(cell: Cell, folder: Path, tell: Callable[[float], None] = lambda share: None) -> dict[str, Any]:
    row = ROWS[cell.row]
    task = tasks.get(row.world)
    began, cpu, commit = time.time(), time.process_time(), runs.commit()
    trained: dict[str, Any] = {}
    player: Planner
    if cell.is_trained:
        planner, trained = _trained(cell, row, folder, tell)
        tell(TRAINING)  # also where it was trained before
        player = planner.with_options(**cell.options()).on(task.spec)
    elif cell.is_untrained:
        fresh = runs.fresh(tasks.get(row.trained_on).spec, cell.learnt.training()[0], cell.seed).eval()
        player = fresh.with_options(**cell.learnt.options()).on(task.spec)
    else:
        player = resolve(cell.method, task, row.trained_on)
    execute = player.config.execute if isinstance(player, Learned) else None
    seeds = TEST_SEEDS[: cell.episodes]
    ended = 0

    def tick(number: int) -> None:
        nonlocal ended
        ended += number
        begun = TRAINING if cell.is_trained else 0.0
        tell(begun + (1 - begun) * ended / len(seeds))

    with mistakes_told(cell.method):
        played = rollout_timed(player, task, seeds, execute=execute, tick=tick)
    results = played.results
    return {
        "method": cell.method,
        "row": cell.row,
        "seed": cell.seed,
        "demonstrations": cell.demonstrations if cell.is_trained else None,
        "preset": cell.preset if cell.is_trained else None,
        "config_hash": cell.config_hash,
        "config": cell.config(),
        "commit": commit,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "training": trained,
        "told": player.needs_oracle,
        "seconds": round(played.seconds, 2),
        "planner_seconds": round(played.planner_seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "plans": sum(result.plans for result in results),
        "first_seed": seeds[0],
        "success": [int(result.success) for result in results],
        "steps": [result.steps for result in results],
        "stalled": [result.stalled for result in results],
    }


def place_of(cell: Cell, folder: Path) -> Path:
    """Where its training is kept."""
    return folder / f"{ROWS[cell.row].trained_on}-{cell.method}-{cell.training_hash}"


def _trained(cell: Cell, row: Row, folder: Path, tell: Callable[[float], None]) -> tuple[Learned, dict[str, Any]]:
    """The planner of a cell: trained, resumed, or found trained already."""
    planner, training = cell.training()
    place = place_of(cell, folder)
    with only_one(folder / f"{place.name}.lock", f"{cell.name} is being trained", wait=True):
        if (place / "config.json").exists():
            run = runs.resume(place)
        else:
            recipe = Recipe(row.trained_on, cell.demonstrations)
            with only_one(folder / f"{recipe.name.replace('/', '-')}.lock", recipe.name, wait=True):
                collect(recipe, workers=1)  # cells of one world may begin together
            run = runs.begin(place, row.trained_on, planner, training, recipe.name)
        run.fit(lambda now: tell(TRAINING * now.step / now.steps))
        minutes = run.seconds / 60
    loaded, config = runs.load(place)
    return loaded, {
        "hash": cell.training_hash,
        "cpu_minutes": round(minutes, 2),
        "steps": training.steps,
        "dataset": config["dataset"],
        "commit": config["commit"],
    }
