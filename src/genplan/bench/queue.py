"""Many cells, some at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from genplan import checkpoint
from genplan.bench.cell import LARGE, Cell
from genplan.bench.results import Results
from genplan.bench.work import TRAINING, place_of, work
from genplan.errors import UserError
from genplan.tasks.table import ROWS
from genplan.workers import only_one


@dataclass(frozen=True)
class Event:
    """What happened: a cell got further, was done, or failed."""

    cell: Cell
    kind: str  # share, done, failed
    share: float = 0.0
    about: str = ""  # what came out, or why it failed


def run(
    cells: Sequence[Cell], results: Results, folder: Path, workers: int = 2, minutes: float | None = None
) -> Iterator[Event]:
    """Run what is missing, `workers` cells at a time; one line is added as soon as a cell is done.

    After `minutes` no new ones begin, and trainings are stopped, to go on next time; what is being judged is finished.
    """
    if workers < 1:
        raise UserError(f"workers is {workers}, expected at least 1")
    if minutes is not None and not minutes > 0:
        raise UserError(f"minutes is {minutes}, expected more than 0; leave it out to run to the end")
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    busy: dict[Connection, tuple[Cell, Any]] = {}
    shares: dict[Cell, float] = {}
    with only_one(results.path.with_name(f".{results.path.name}.lock"), f"{results.path} is being filled"):
        folder.mkdir(parents=True, exist_ok=True)
        results.mend()
        missing = [cell for cell in dict.fromkeys(cells) if results.find(cell) is None]
        try:
            while missing or busy:
                if minutes is not None and time.monotonic() - began > 60 * minutes:
                    missing = []
                    for stopped in [here for here, (cell, _) in busy.items() if _is_training(cell, shares)]:
                        busy.pop(stopped)[1].kill()
                while missing and len(busy) < workers:
                    # Cells that share a training wait for the one that trains it.
                    training = {_training_of(cell) for cell, _ in busy.values()} - {None}
                    free = next((cell for cell in missing if _training_of(cell) not in training), None)
                    if free is None:
                        break
                    missing.remove(free)
                    here, there = context.Pipe(duplex=False)
                    process = context.Process(target=work, args=(free, folder, there, os.getpid()), daemon=True)
                    process.start()
                    there.close()
                    busy[here] = (free, process)
                for ready in cast("list[Connection]", wait(list(busy), timeout=1.0)):
                    cell, process = busy[ready]
                    try:
                        kind, content = ready.recv()
                    except EOFError:
                        kind, content = "failed", f"its process ended with code {_code(process)}"
                    if kind == "share":
                        shares[cell] = content
                        yield Event(cell, "share", content)
                        continue
                    del busy[ready]
                    if kind == "done":
                        results.add(content)
                        content = f"{fmean(content['success']):.1%} solved"
                    process.join()
                    yield Event(cell, kind, 1.0, content)
        finally:
            for _, process in busy.values():
                process.kill()


def _is_training(cell: Cell, shares: Mapping[Cell, float]) -> bool:
    return cell.is_trained and shares.get(cell, 0.0) < TRAINING


def _training_of(cell: Cell) -> str | None:
    return cell.training_hash if cell.is_trained else None


def _code(process: Any) -> Any:
    process.join()
    return process.exitcode


def expected_minutes(cells: Sequence[Cell], folder: Path) -> dict[Cell, float]:
    """Rough guesses, for the remaining time that is shown. Of cells that share a training, the first pays for it."""
    guesses, paid = {}, set()
    for cell in cells:
        guesses[cell] = 0.1 if cell.steps is not None else 2.0 if ROWS[cell.row].family == "AP" else 0.5
        if (training := _training_of(cell)) not in paid and training is not None:
            paid.add(training)
            whole = 0.1 if cell.steps is not None else 40.0 if ROWS[cell.row].trained_on in LARGE else 15.0
            weights = place_of(cell, folder) / "model.safetensors"
            done = checkpoint.load_tensors(weights)[1]["step"] if weights.exists() else 0
            guesses[cell] += whole * (1 - done / cell.training()[1].steps)
    return guesses
