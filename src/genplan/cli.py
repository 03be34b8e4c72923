"""The command line: a dict of plain functions, whose arguments become flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes

from genplan.config import (
    METHODS,
    GenPlanConfig,
    MethodName,
    PlannerConfig,
    Planning,
    Sampling,
    TrainConfig,
    settings,
)
from genplan.errors import UserError

RESULTS = Path("results/cells.jsonl")


def toy() -> int:
    """Learn a problem with a known answer in seconds, with both noise sources, and judge the samples."""
    import torch
    from rich.console import Console
    from rich.table import Table

    from genplan import toy as problem
    from genplan.flow import Source
    from genplan.show import progress

    torch.set_num_threads(1)  # on operations this small, a second thread costs more than it gives
    console = Console()
    console.print("Three moves of a walker on a ring: 27 plans, each with a known chance. Training on samples alone.")
    table = Table("source", "possible plans", "distance to the law", "as many true draws", "trained in", "verdict")
    passed = True
    for source in Source:
        with progress(console, f"training, {source} source", problem.STEPS, "steps") as tick:
            verdict = problem.run(source, tick=partial(tick, 1))
        passed &= verdict.passed
        table.add_row(
            str(verdict.source),
            f"{verdict.possible:.1%}",
            f"{verdict.distance:.3f}",
            f"{verdict.chance_distance:.3f}",
            f"{verdict.seconds:.1f} s",
            "[green]learnt[/]" if verdict.passed else "[red]not learnt[/]",
        )
    console.print(table)
    return 0 if passed else 1


def tasks(gallery: Path | None = None) -> int:
    """List the paper's tasks and settings.

    Args:
        gallery: Write a picture of all worlds to this file (png, pdf or svg) as well.
    """
    from rich.console import Console

    from genplan import show

    console = Console()
    console.print(show.worlds_table(), show.rows_table())
    if gallery is not None:
        show.gallery(gallery)
        console.print(f"gallery written to {gallery}")
    return 0


def demos(
    task: Annotated[str, tyro.conf.Positional],
    episodes: int = 1000,
    expert: str = "bot",
    seed: int = 10_000,
    workers: int = 2,
) -> int:
    """Collect demonstrations of a task as a Minari dataset; stop at any time and run the same command to go on.

    Args:
        task: A task of `genplan tasks`, or file.py:task for your own.
        episodes: How many successful episodes to keep.
        expert: bot, shortest (open-door worlds), clumsy (25 % random actions), or any other planner's name.
        seed: The first seed; training seeds are 10000 to 99999.
        workers: Processes that collect; the content does not depend on it.
    """
    from rich.console import Console

    from genplan.data.demos import Recipe, collect
    from genplan.data.episodes import datasets_root, exists
    from genplan.planners.names import resolve
    from genplan.show import progress
    from genplan.tasks import get

    console = Console()
    recipe = Recipe(task, episodes, expert, seed)
    resolve(expert, get(task))  # a wrong name is told before anything starts
    if exists(recipe.name):
        console.print(f"{recipe.name} is there already; see: genplan data show {recipe.name}")
        return 0
    with progress(console, f"demonstrations of {task}", episodes, "episodes") as tick:
        dataset = collect(recipe, workers, tick)
    console.print(
        f"{recipe.name} written to {datasets_root()}: {len(dataset.episodes)} episodes, content {dataset.digest}"
    )
    return 0


def data_show(dataset: Annotated[str, tyro.conf.Positional], task: str | None = None) -> int:
    """Describe a Minari dataset: episodes, lengths, actions, missions, goals, and whether it fits a task.

    Args:
        dataset: Its name in Minari, or its folder.
        task: Tell whether it fits this task (by default: all of the table with maps of its size).
    """
    from rich.console import Console

    from genplan import tasks as table
    from genplan.data.episodes import fits, read
    from genplan.show import dataset_table

    wanted = None if task is None else table.get(task)
    found = read(dataset, wanted)
    fit: dict[str, str | None] = {}
    if wanted is not None:
        fit[wanted.name] = fits(found, wanted)
    elif found.spec.map_shape is not None:
        known = [table.get(name) for name in table.WORLDS]
        same_size = [candidate for candidate in known if candidate.spec.map_shape == found.spec.map_shape]
        fit = {candidate.name: fits(found, candidate) for candidate in same_size}
        if not fit:
            width, height = found.spec.map_shape
            fit["a task"] = f"none of the table has maps of {width}×{height}"
    Console().print(dataset_table(found, fit))
    return 0


def train(
    task: Annotated[str, tyro.conf.Positional] = "",
    out: Path | None = None,
    resume: Path | None = None,
    data: str | None = None,
    method: MethodName = "GenPlan-M",
    planner: PlannerConfig = GenPlanConfig(),
    training: TrainConfig = TrainConfig(),
) -> int:
    """Train a planner; stop with Ctrl-C and go on with --resume.

    What is not said is taken from the table of settings: a world has its own, and --planner.preset paper takes over the
    paper's architecture with all its settings, for planner and training.

    Args:
        task: A task of `genplan tasks`, or file.py:task for your own.
        out: The run folder (by default runs/TASK-METHOD).
        resume: Go on with the run in this folder, exactly as if it had not been stopped.
        data: The Minari dataset to learn from (by default 1,000 demonstrations of the bot, collected if absent).
        method: What to train; its settings are the planner's.
        planner: The planner's settings.
        training: The training's settings.
    """
    from rich.console import Console

    from genplan import runs
    from genplan.config import method_of
    from genplan.show import training_progress

    console = Console()
    if (resume is None) == (not task):
        raise UserError("name a task to train, or a run to go on with (--resume RUN); expected one of the two")
    if resume is not None:
        folder, run = resume, runs.resume(resume)
    else:
        folder = out or Path("runs") / f"{task.rpartition(':')[2] if '.py:' in task else task}-{method_of(planner)}"
        run = runs.begin(folder, task, planner, training, data)
    console.print(f"training in {folder}, from step {run.step} to {run.config.steps}")
    with training_progress(console, run.step, run.config.steps) as tell:
        run.fit(tell)
    console.print(f"trained in {run.seconds / 60:.1f} CPU-minutes; evaluate: genplan eval {folder}")
    return 0


def evaluate(
    planner: Annotated[str, tyro.conf.Positional],
    task: str | None = None,
    episodes: int = 250,
    seed: int = 1234,
    planning: OmitArgPrefixes[Planning] = Planning(),
    slip: float = 0.0,
    untrained: bool = False,
    walk: str = "walk:demos",
    threads: int | None = None,
    json: Path | None = None,
) -> int:
    """Evaluate a planner beside the blind walk and the bot, on the same seeds.

    Args:
        planner: A run folder, pretrained:TASK, bot, walk:lively, file.py:Class, …
        task: The task (by default the one the planner was trained on).
        episodes: How many episodes.
        seed: The first seed; seeds are seed to seed + episodes − 1. Test seeds are 1234 to 1483.
        slip: Chance that another action happens than the one chosen.
        untrained: Judge the same planner with an untrained network, as a control.
        walk: The blind walk to show beside.
        threads: Of the network (by default one per core).
        json: Write everything measured to this file.
    """
    from rich.console import Console

    from genplan.judge import judge

    if threads is not None:
        import torch

        torch.set_num_threads(max(threads, 1))
    if episodes < 1:
        raise UserError(f"episodes is {episodes}, expected at least 1")
    judge(Console(), planner, task, range(seed, seed + episodes), planning.named, slip, walk, json, untrained)
    return 0


def export(
    run: Annotated[Path, tyro.conf.Positional],
    out: Path,
    planning: OmitArgPrefixes[Planning] = Planning(),
) -> int:
    """Make a finished run small enough to give away: half precision, with a card of its origin and results.

    Args:
        run: The run folder.
        out: Where to put the planner; load it by this path.
        planning: How it plans from now on; what is not named stays as it was trained.
    """
    from rich.console import Console

    from genplan.export import export as give_away

    give_away(Console(), run, out, planning.named)
    return 0


def reproduce(planner: Annotated[str, tyro.conf.Positional], out: Path | None = None) -> int:
    """Train an exported planner again from nothing, by its card, and compare what it scores.

    Args:
        planner: pretrained:TASK, or the folder of an exported planner.
        out: The run folder (by default runs/reproduce-NAME). Stop at any time; the same command goes on.
    """
    from rich.console import Console

    from genplan.export import reproduce as again

    name = planner.removeprefix("pretrained:").replace("/", "-")
    return 0 if again(Console(), planner, out or Path("runs") / f"reproduce-{name}") else 1


def quickstart(out: Path = Path("runs/quickstart"), steps: int = 1200, episodes: int = 100) -> int:
    """The main job: demonstrations, a small planner trained before your eyes, 100 mazes it has never seen, a report.

    Args:
        out: The run folder. Stop at any time; the same command goes on.
        steps: Training steps.
        episodes: Unseen mazes to be solved (validation seeds, from 2000 on).
    """
    from rich.console import Console

    from genplan.quickstart import main_job

    return main_job(Console(), out, steps, episodes)


def plan(
    planner: Annotated[str, tyro.conf.Positional],
    task: str | None = None,
    seed: int = 1234,
    planning: OmitArgPrefixes[Sampling] = Sampling(),
    film: Path | None = None,
) -> int:
    """Draw a maze with a plan over it, and print how the plan took shape.

    Args:
        planner: A run folder.
        task: The task (by default the one the planner was trained on).
        seed: Which maze.
        film: Write animations here: FILM-plan.gif of the denoising, if there is one, FILM-episode.gif of the episode.
    """
    from rich.console import Console

    import genplan
    from genplan import draw

    console = Console()
    pilot = genplan.load(planner, task)
    chosen = pilot.task
    env = chosen.new_env()
    seen = chosen.observe(env, env.reset(seed=seed)[0])
    made = pilot.plan(seen, **planning.named)
    if "mission" in seen:
        console.print(f"[bold]{chosen.spec.decode_mission(seen['mission'])}[/]")
    if chosen.spec.map_shape is not None:
        console.print(
            draw.maze(
                chosen.spec,
                seen["map"],
                int(seen["state"]),
                () if made.states is None else made.states.tolist(),
                made.goals,
            )
        )
    if made.trace is not None:
        mask = chosen.spec.num_actions if pilot.planner.config.source == "mask" else None
        console.print(draw.denoising(made.trace, mask=mask))
    sure = " ".join(f"{number:.2f}" for number in made.confidence)
    console.print(f"energy {made.energy:.2f} nats; confidence of each action: {sure}")
    if film is not None:
        from genplan import film as camera

        shape, whole = (film.with_name(f"{film.stem}-{part}.gif") for part in ("plan", "episode"))
        if made.trace is not None:
            camera.write_gif(shape, camera.denoising(chosen.spec, seen["map"], int(seen["state"]), made.trace))
            console.print(f"{shape} written")
        frames, outcome = camera.episode(pilot, seed)
        camera.write_gif(whole, frames)
        console.print(f"{whole} written: {outcome}")
    return 0


def bench_run(
    suite: Annotated[str, tyro.conf.Positional],
    minutes: float | None = None,
    workers: int = 2,
    rows: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    planner: str | None = None,
    results: Path = RESULTS,
    runs: Path = Path("runs/bench"),
) -> int:
    """Fill the cells of a benchmark that are missing; stop at any time, the same command goes on.

    Args:
        suite: adaptive, main, times, demonstrations, or tiny (a minute, to see that all works).
        minutes: After that long begin nothing new, stop trainings (they go on next time), finish what is being judged.
        workers: Cells at a time, one thread each.
        rows: Only these rows (by default all of the suite).
        methods: Only these methods.
        planner: Judge this planner as well, on the rows of the suite: file.py:Class for your own, or a run folder.
        results: The file of cells, one line of JSON each.
        runs: Where trainings are kept.
    """
    from rich.console import Console
    from rich.markup import escape

    from genplan import bench
    from genplan import tasks as worlds
    from genplan.bench.board import Board
    from genplan.planners import names
    from genplan.show import bench_progress, bench_tables
    from genplan.tasks.table import ROWS

    console = Console()
    cells = bench.chosen(suite, rows, methods, planner)
    table = bench.Results(results)
    if planner is not None and cells:  # what is wrong with it is told before hours of other cells
        names.resolve(planner, worlds.get(ROWS[cells[0].row].world))
    missing = [cell for cell in cells if table.find(cell) is None]
    console.print(f"{suite}: {len(cells)} cells, {len(cells) - len(missing)} of them in {results}")
    failed = []
    with bench_progress(console, bench.expected_minutes(missing, runs)) as tell:
        for event in bench.run(cells, table, runs, workers, minutes):
            tell(event)
            if event.kind == "failed":
                failed.append(f"{event.cell.name}: {event.about}")
    for shown in bench_tables(Board(table), list(dict.fromkeys(cell.row for cell in cells))):
        console.print(shown)
    left = sum(table.find(cell) is None for cell in cells)
    place = "" if results == RESULTS else f" --results {results}"
    console.print(f"{len(cells) - left} of {len(cells)} cells are in {results}; for a page: genplan report{place}")
    for reason in failed:
        console.print(f"[red]failed[/] {escape(reason)}")
    return 1 if failed else 0


def report(results: Path = RESULTS, out: Path = Path("results/report.html")) -> int:
    """One page of all benchmark results that there are, beside the paper's numbers.

    Args:
        results: The file of cells, as `genplan bench run` fills it.
        out: The page; it needs no other file.
    """
    from rich.console import Console

    from genplan.report import benchmark_page

    path = benchmark_page(results, out)
    Console().print(f"{path} written")
    return 0


def serve(folder: Path = Path("runs"), host: str = "127.0.0.1", port: int = 8000, open_browser: bool = True) -> int:
    """Start the page on which one edits a maze and watches a plan take shape; stop with Ctrl-C.

    Args:
        folder: Runs in it can be chosen and watched, beside the planners that come with genplan.
        host: Where to listen; by default only this machine can connect.
        port: The port.
        open_browser: Open the page.
    """
    from rich.console import Console

    try:
        from genplan.serve.app import serve as start
    except ModuleNotFoundError as error:
        raise UserError(f"the page needs {error.name}; install it with: pip install 'genplan[serve]'") from error
    Console().print(f"the page is at http://{host}:{port}/ (stop with Ctrl-C)")
    start(folder, host, port, open_browser)
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "quickstart": quickstart,
    "tasks": tasks,
    "demos": demos,
    "data show": data_show,
    "train": train,
    "eval": evaluate,
    "plan": plan,
    "export": export,
    "reproduce": reproduce,
    "bench run": bench_run,
    "report": report,
    "serve": serve,
    "toy": toy,
}


def _train(arguments: list[str]) -> Callable[..., int]:
    """`train` with the flags of the method that is named, and the settings of the world and the preset."""
    from genplan.tasks.table import WORLDS

    world = next((argument for argument in arguments[1:] if argument in (*WORLDS, "all")), None)
    words = list(pairwise(" ".join(arguments).replace("=", " ").split()))
    method: MethodName = next((name for name in METHODS if ("--method", name) in words), "GenPlan-M")
    is_paper = ("--planner.preset", "paper") in words
    planner, training = settings(world, "paper" if is_paper else "default", method)
    command = FunctionType(train.__code__, train.__globals__, "train", closure=train.__closure__)
    command.__doc__ = train.__doc__
    command.__annotations__ = {**train.__annotations__, "planner": type(planner)}
    command.__defaults__ = ("", None, None, None, method, planner, training)
    return command


def main() -> None:
    from genplan import __version__

    # Threads that wait must sleep: spinning beside another job makes both many times slower. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = sys.argv[1:]
    if arguments[:1] == ["--version"]:
        print(f"genplan {__version__}")
        return
    for name in COMMANDS:  # a command of two words is one word to tyro
        if " " in name and arguments[:2] == name.split():
            arguments = [name, *arguments[2:]]
    commands: dict[str, Any] = dict(COMMANDS)
    if arguments[:1] == ["train"]:
        commands["train"] = _train(arguments)
    options: dict[str, Any] = {"prog": "genplan", "description": "Plan from demonstrations with discrete flow models."}
    try:
        code = tyro.extras.subcommand_cli_from_dict(commands, args=arguments, **options)
    except UserError as error:
        print(f"genplan: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("genplan: stopped; run the same command again to go on", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `genplan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        print(
            f"genplan: '{error.filename}' cannot be used ({error.strerror}); mend it or choose another", file=sys.stderr
        )
        sys.exit(1)
    sys.exit(code)
