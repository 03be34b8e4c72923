"""Methods × rows × training seeds, cell by cell: train, judge on the test seeds, write one line of JSON.

A cell is known by what it is (method, row, seed, demonstrations, preset) and by a hash of all its settings: if those
change, the cell is run again and the old line stays beside it, unused. Cells are stored in one file; suites are views
of it. Trainings go on where they were stopped; one training serves all rows that it is judged on. A kill loses the
steps since the last save (a minute at most), or the episodes of the cells that are being judged: the file grows by
whole lines, and a broken last one is dropped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from genplan import checkpoint, runs, tasks
from genplan.config import (
    METHODS,
    LEAPConfig,
    MethodName,
    PlannerConfig,
    PresetName,
    TrainConfig,
    as_data,
    settings,
)
from genplan.data.demos import Recipe, collect
from genplan.errors import UserError
from genplan.evaluate import rollout_timed
from genplan.planners.learned import Learned
from genplan.planners.names import described, resolve
from genplan.tasks.table import ROWS, TEST_SEEDS, Row
from genplan.types import Planner
from genplan.workers import only_one, serve

LARGE = ("MazeS7G1", "MazeS7G2", "BlockUnlock", "KeyCorridorS3R3")  # rows with the larger budget
TRAINING = 0.9  # of the progress of a cell; the rest is being judged
UNTRAINED = "untrained:"  # before a method: its planner with a network that has learnt nothing
CONTROLS = ("bot", "walk:uniform", "walk:demos", "walk:lively", f"{UNTRAINED}GenPlan-M")

# CPU-seconds of a training step, measured on one core (`benchmarks/steps.py`, and a twelfth more for the job on the
# other core): they turn the budget, in minutes, into a number of steps, so that a cell can be trained again exactly.
# Worlds of one shape cost the same.
_SHAPES = ("MazeS4G1", "MazeS7G2", "DoorsOrder", "BlockUnlock", "KeyCorridorS3R3")
STEP_SECONDS: Mapping[str, Mapping[str, float]] = {
    kind: dict(zip(_SHAPES, seconds, strict=True))
    for kind, seconds in {
        "GenPlan": (0.134, 0.257, 0.168, 0.113, 0.105),
        "BC": (0.075, 0.167, 0.095, 0.060, 0.055),
        "DT": (0.090, 0.185, 0.113, 0.075, 0.072),
        "LEAP": (0.121, 0.222, 0.152, 0.103, 0.095),
    }.items()
}
LIKE = {"MazeS4G2": "MazeS4G1", "MazeClose": "MazeS4G1", "LocS10N1": "MazeS4G1", "MazeS7G1": "MazeS7G2"}


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    method: (
        str  # of METHODS, or untrained:METHOD; or a planner by name, judged as it is (bot, pretrained:…, own.py:Class)
    )
    row: str
    seed: int = 0  # of the training
    demonstrations: int = 1000
    preset: PresetName = "default"
    steps: int | None = None  # of training; by default what the budget allows
    episodes: int = len(TEST_SEEDS)

    def __post_init__(self) -> None:
        if self.row not in ROWS:
            raise UserError(f"there is no row '{self.row}'; known are {', '.join(ROWS)}")
        if self.is_untrained and not self.learnt.is_trained:
            raise UserError(f"there is no method '{self.learnt.method}'; known are {', '.join(METHODS)}")

    @property
    def is_trained(self) -> bool:
        return self.method in METHODS

    @property
    def is_untrained(self) -> bool:
        return self.method.startswith(UNTRAINED)

    @property
    def learnt(self) -> Cell:
        """The cell that an untrained one is the control of; any other, itself."""
        return dataclasses.replace(self, method=self.method.removeprefix(UNTRAINED)) if self.is_untrained else self

    @property
    def name(self) -> str:
        extra = [f"seed {self.seed}"] if self.seed else []
        extra += [self.preset] if self.preset != "default" else []
        extra += [f"{self.demonstrations} demonstrations"] if self.demonstrations != 1000 else []
        return " · ".join([self.method, self.row, *extra])

    def training(self) -> tuple[PlannerConfig, TrainConfig]:
        """The settings of its training."""
        row = ROWS[self.row]
        method = cast("MethodName", self.method)
        planner, training = settings(row.trained_on, self.preset, method)
        if isinstance(planner, LEAPConfig) and planner.entropy_bound:
            planner = dataclasses.replace(planner, entropy_bound=row.entropy)
        steps = self.steps or training.steps if self.preset == "paper" else self.steps or budget(self.method, row)
        return planner, dataclasses.replace(training, steps=steps, seed=self.seed)

    def options(self) -> dict[str, Any]:
        """What differs between the rows that one training is judged on; and how to plan in worlds never seen.

        There, what was learnt turns to and fro for ever, or pushes against a door: so everyone is curious. How much was
        chosen on validation seeds (docs/log.md).
        """
        if not self.is_trained or self.preset == "paper":
            return {}
        row, known = ROWS[self.row], METHODS[cast("MethodName", self.method)]
        unseen: dict[str, Any] = {"curiosity": 0.5} if row.family == "AP" else {}
        if isinstance(known, LEAPConfig):
            return {"iterations": row.leap_iterations, **unseen}
        return unseen

    def config(self) -> dict[str, Any]:
        """All that decides what comes out."""
        about: dict[str, Any] = {"cell": dataclasses.asdict(self)}
        if self.is_trained:
            planner, training = self.training()
            about |= {
                "planner": as_data(planner),
                "training": as_data(training),
                "options": self.options(),
            }
        elif self.is_untrained:
            about |= {"planner": as_data(self.learnt.training()[0]), "options": self.learnt.options()}
        elif content := self.content():
            about["content"] = content
        return about

    def content(self) -> str | None:
        """A digest of the code, or of weights and settings, of a planner judged as it is; None where there is none."""
        if self.method.startswith("pretrained:") or Path(self.method).is_dir():
            folder = runs.locate(self.method)
            used = as_data(runs.settings_of(checkpoint.read_config(folder)))
            found = (folder / "model.safetensors").read_bytes() + json.dumps(used, sort_keys=True).encode()
        elif (path := Path(self.method.rpartition(":")[0])).is_file():
            found = path.read_bytes()
        else:
            return None
        return hashlib.sha256(found).hexdigest()[:16]

    @property
    def config_hash(self) -> str:
        return _hash(self.config())

    @property
    def training_hash(self) -> str:
        """The same for all rows that share a training."""
        planner, training = self.training()
        recipe = Recipe(ROWS[self.row].trained_on, self.demonstrations)
        return _hash([self.method, as_data(planner), as_data(training), recipe.name])


def budget(method: str, row: Row) -> int:
    """Training steps that fit in the budget: 15 CPU-minutes on small rows, 40 on large ones."""
    minutes = 40 if row.trained_on in LARGE else 15
    seconds = STEP_SECONDS[method.split("-")[0]][LIKE.get(row.trained_on, row.trained_on)]
    return max(round(minutes * 60 / seconds / 250) * 250, 250)


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


# --- suites ----------------------------------------------------------------------------------------------------------


def _cells(methods: Iterable[str], rows: Iterable[str], **options: Any) -> list[Cell]:
    return [Cell(method, row, **options) for row in rows for method in methods]


def _controls(rows: Sequence[str]) -> list[Cell]:
    return _cells(CONTROLS, rows)


def suites() -> dict[str, list[Cell]]:
    """Each in the order in which it is filled."""
    adaptive = [row.name for row in ROWS.values() if row.family == "AP"]
    main = ["MazeS4G1", "DoorsOrder", "KeyCorridorS3R3", "MazeClose", "BlockUnlock", "MazeS4G2", "MazeS7G1", "MazeS7G2"]
    first = ("GenPlan-M", "BC", "DT", "LEAP")
    others = ("GenPlan-U", "LEAP-noGC", "DT-noGC")
    shipped = [Cell(f"pretrained:{row}", row) for row in main]
    seeds = [Cell("GenPlan-M", "MazeS4G1", seed=seed) for seed in (1, 2)]
    paper = [Cell(method, "MazeS4G1", preset="paper") for method in ("GenPlan-M", "GenPlan-U")]
    fewer = [
        Cell(method, row, demonstrations=number)
        for row in ("MazeS4G1", "KeyCorridorS3R3")
        for number in (1000, 30, 100, 300)
        for method in ("GenPlan-M", "BC")
    ]
    return {
        "adaptive": [
            *_controls(adaptive),
            *_cells(["pretrained:LocS10N1"], adaptive),
            *(
                Cell(method, row)
                for method in (*first, "GenPlan-U", "LEAP-noGC", "LEAP-H", "DT-noGC")
                for row in adaptive
            ),
        ],
        "main": [*_controls(main), *shipped, *_cells(first, main), *_cells(others, main), *seeds, *paper],
        "times": _cells((*first, *others), ["MazeS4G1", "KeyCorridorS3R3"]),
        "demonstrations": fewer,
        "tiny": [
            *_cells(("bot", "walk:lively"), ["MazeS4N3G1"], episodes=4),
            *_cells(("GenPlan-M", "BC"), ["MazeS4N3G1"], demonstrations=10, steps=6, episodes=4),
        ],
    }


def chosen(suite: str, rows: Sequence[str] = (), methods: Sequence[str] = (), planner: str | None = None) -> list[Cell]:
    """The cells of a suite, or some of them; with a planner by name on the same rows, if one is given."""
    known = suites()
    if suite not in known:
        raise UserError(f"there is no suite '{suite}'; known are {', '.join(known)}")
    cells = known[suite]
    for what, wanted, has in (("row", rows, {c.row for c in cells}), ("method", methods, {c.method for c in cells})):
        if missing := sorted(set(wanted) - has):
            raise UserError(f"suite {suite} has no {what} '{missing[0]}'; it has {', '.join(sorted(has))}")
    cells = [c for c in cells if (not rows or c.row in rows) and (not methods or c.method in methods)]
    if planner is not None:
        there = {cell.row: cell.episodes for cell in cells}
        cells += [Cell(planner, row, episodes=episodes) for row, episodes in there.items()]
    return cells


# --- results ---------------------------------------------------------------------------------------------------------

KEYS = {  # of a line
    "method", "row", "seed", "demonstrations", "preset", "config_hash", "config", "commit", "when", "training",
    "seconds", "planner_seconds", "plans", "first_seed", "success", "steps", "stalled",
}  # fmt: skip


class Results:
    """The file of cells: one line of JSON each, never changed, only added to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read()

    def read(self) -> None:
        """What is there now; a last line that was broken off by a kill does not count."""
        self.lines: list[dict[str, Any]] = []
        try:
            text = self.path.read_text() if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.path} cannot be read ({error}); expected a file of benchmark cells") from error
        whole, _, self._broken = text.rpartition("\n")
        for number, line in enumerate(whole.splitlines(), 1):
            self.lines.append(self._checked(number, line))
        self._known = {line["config_hash"]: line for line in self.lines}

    def _checked(self, number: int, line: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UserError(f"{self.path}, line {number} is not JSON ({error}); mend or remove it") from error
        if not isinstance(found, dict) or (missing := sorted(KEYS - set(found))):
            what = "it is no object" if not isinstance(found, dict) else f"it has no '{missing[0]}'"
            raise UserError(f"{self.path}, line {number} is no benchmark cell ({what}); mend or remove it")
        return found

    def mend(self) -> None:
        """Read again, and drop a broken end. Only for who holds the lock: nobody else may be writing."""
        self.read()
        if self._broken:
            checkpoint.write_atomically(self.path, "".join(f"{json.dumps(line)}\n" for line in self.lines).encode())

    def find(self, cell: Cell) -> dict[str, Any] | None:
        """What was measured for a cell with the very same settings."""
        return self._known.get(cell.config_hash)

    def add(self, line: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)
        self._known[line["config_hash"]] = line


# --- one cell --------------------------------------------------------------------------------------------------------


def work(cell: Cell, folder: Path, told: Connection, parent: int) -> None:
    """In a process of its own: train and judge a cell, tell how far it is, and hand over its line."""
    serve(parent)
    try:
        told.send(("done", run_cell(cell, folder, lambda share: told.send(("share", share)))))
    except UserError as error:
        told.send(("failed", str(error)))
    except Exception as error:
        if ".py:" not in cell.method:
            raise
        told.send(("failed", described(error)))  # somebody's own planner


def run_cell(cell: Cell, folder: Path, tell: Callable[[float], None] = lambda share: None) -> dict[str, Any]:
    row = ROWS[cell.row]
    task = tasks.get(row.world)
    began, cpu, commit = time.time(), time.process_time(), runs.commit()
    trained: dict[str, Any] = {}
    player: Planner
    if cell.is_trained:
        planner, trained = _trained(cell, row, folder, tell)
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
        "seconds": round(played.seconds, 2),
        "planner_seconds": round(played.planner_seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "plans": sum(result.plans for result in results),
        "first_seed": seeds[0],
        "success": [int(result.success) for result in results],
        "steps": [result.steps for result in results],
        "stalled": [result.stalled for result in results],
    }


def _place(cell: Cell, folder: Path) -> Path:
    """Where its training is kept."""
    return folder / f"{ROWS[cell.row].trained_on}-{cell.method}-{cell.training_hash}"


def _trained(cell: Cell, row: Row, folder: Path, tell: Callable[[float], None]) -> tuple[Learned, dict[str, Any]]:
    """The planner of a cell: trained, resumed, or found trained already."""
    planner, training = cell.training()
    place = _place(cell, folder)
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


# --- many cells ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """What happened: a cell got further, was done, or failed."""

    cell: Cell
    kind: str  # share, done, failed
    share: float = 0.0
    reason: str = ""


def run(
    cells: Sequence[Cell], results: Results, folder: Path, workers: int = 2, minutes: float | None = None
) -> Iterator[Event]:
    """Run what is missing, `workers` cells at a time; one line is added as soon as a cell is done.

    After `minutes` no new ones begin, and trainings are stopped, to go on next time; what is being judged is finished.
    """
    if workers < 1:
        raise UserError(f"workers is {workers}, expected at least 1")
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    busy: dict[Connection, tuple[Cell, Any]] = {}
    shares: dict[Cell, float] = {}
    with only_one(results.path.with_name(f".{results.path.name}.lock"), f"{results.path} is being filled"):
        results.mend()
        todo = [cell for cell in dict.fromkeys(cells) if results.find(cell) is None]
        try:
            while todo or busy:
                if minutes is not None and time.monotonic() - began > 60 * minutes:
                    todo = []
                    for stopped in [here for here, (cell, _) in busy.items() if _is_training(cell, shares)]:
                        busy.pop(stopped)[1].kill()
                while todo and len(busy) < workers:
                    # Cells that share a training wait for the one that trains it.
                    training = {_training_of(cell) for cell, _ in busy.values()} - {None}
                    free = next((cell for cell in todo if _training_of(cell) not in training), None)
                    if free is None:
                        break
                    todo.remove(free)
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
                    process.join()
                    yield Event(cell, kind, 1.0, "" if kind == "done" else content)
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
            weights = _place(cell, folder) / "model.safetensors"
            done = checkpoint.load_tensors(weights)[1]["step"] if weights.exists() else 0
            guesses[cell] += whole * (1 - done / cell.training()[1].steps)
    return guesses
