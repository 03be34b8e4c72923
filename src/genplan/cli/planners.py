"""Commands on planners: evaluate, plan, export, reproduce."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from genplan.errors import UserError

Order = Literal["random", "confidence", "margin", "near-to-far", "chain"]


@dataclass(frozen=True)
class Sampling:
    """How a plan is made; what is not named stays as it was trained."""

    iterations: int | None = None  # denoising iterations
    temperature: float | None = None  # of the denoising
    order: Order | None = None  # which positions settle first
    candidates: int | None = None  # plans per decision, of which the one of least energy is taken

    @property
    def settings(self) -> dict[str, Any]:
        """What was named, by the names of settings."""
        names = {"candidates": "num_candidates", "execute": "action_steps"}
        return {names.get(name, name): value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Planning(Sampling):
    """How a planner acts in an episode; what is not named stays as it was trained."""

    execute: int | None = None  # actions executed of each plan
    exploration: float | None = None  # how readily another action is tried where nothing new happens (0: never)
    outcome_memory: bool | None = None  # with exploration, GenPlan: learn within an episode from unplanned outcomes


def _require_least(**numbers: tuple[int | None, int]) -> None:
    for name, (value, least) in numbers.items():
        if value is not None and value < least:
            raise UserError(f"{name} is {value}, expected at least {least}")


def evaluate(
    planner: Positional[str],
    task: str | None = None,
    method: str | None = None,
    episodes: int = 250,
    seed: int = 1234,
    planning: OmitArgPrefixes[Planning] = Planning(),
    slip: float = 0.0,
    untrained: bool = False,
    baseline: str | None = None,
    workers: int = 1,
    threads: int | None = None,
    json: Path | None = None,
) -> int:
    """Evaluate a planner beside a random policy and the expert, on the same seeds.

    Args:
        planner: A run folder, pretrained:TASK, expert, random:forward, file.py:Class, …
        task: The task (by default the one the planner was trained on; needed if that is a file.py:task).
        method: The file.py:Class that the run was trained with, if its method is a file: only files you name are run.
        episodes: How many episodes.
        seed: The first seed; seeds are seed to seed + episodes − 1. Test seeds are 1234 to 1483.
        slip: Probability that another action happens than the one chosen.
        untrained: Evaluate the same planner with an untrained network, as a control.
        baseline: The random policy to show beside (by default with the frequencies of the demonstrations, if known).
        workers: Processes that share the seeds, one thread each: for slow simulators. The results are the same.
        threads: Of the network (by default one per core).
        json: Write everything measured to this file.
    """
    import torch

    from genplan import evaluate as evaluation
    from genplan import runs
    from genplan.console import evaluation_table, progress
    from genplan.files import write_json
    from genplan.jobs import LocalExecutor
    from genplan.tasks.files import user_code_errors

    if threads is not None and workers > 1:
        raise UserError(f"workers is {workers}, and each has one thread; leave out --threads, or --workers")
    if threads is not None:
        torch.set_num_threads(max(threads, 1))
    _require_least(episodes=(episodes, 1), seed=(seed, 0), execute=(planning.execute, 1), workers=(workers, 1))
    console, name = Console(), f"{planner}, untrained" if untrained else planner
    setup = evaluation.EvalConfig(planner, task, method, planning.settings, untrained, baseline, slip)
    arguments, config = setup.load()  # mistakes are found before any process is started
    chosen, seeds = arguments["task"], range(seed, seed + episodes)
    total = episodes * (3 if chosen.expert else 2)
    with user_code_errors(name), progress(console, f"{name} on {chosen.name}", total, "episodes") as on_progress:
        if workers == 1:
            found = evaluation.evaluate(seeds=seeds, on_progress=on_progress, **arguments)
        else:
            found = evaluation.evaluate_parts(setup, chosen, seeds, LocalExecutor(workers), workers, on_progress)
    console.print(evaluation_table(name, found))
    if json is not None:
        write_json(json, evaluation.to_record(name, chosen, seeds, config, found, commit=runs.commit(),
                                              action_steps=planning.execute))  # fmt: skip
        console.print(f"written to {json}")
    return 0


def plan(
    planner: Positional[str],
    task: str | None = None,
    method: str | None = None,
    seed: int = 1234,
    planning: OmitArgPrefixes[Sampling] = Sampling(),
    gif: Path | None = None,
) -> int:
    """Draw a situation with a plan over it, and print how the plan took shape.

    Args:
        planner: A run folder, or pretrained:TASK.
        task: The task (by default the one the planner was trained on; needed if that is a file.py:task).
        method: The file.py:Class that the run was trained with, if its method is a file: only files you name are run.
        seed: Which episode.
        gif: Write an animation to this file: the plan taking shape, if it does, and then the episode.
    """
    from genplan import config, console, policy
    from genplan.files import write_atomically
    from genplan.render import frames, terminal
    from genplan.rollout import EnvBatch

    if gif is not None and gif.name in ("", ".."):
        raise UserError(f"gif is {gif}, expected a file, such as {gif / 'maze.gif'}")
    screen, loaded = Console(), policy.load(planner, task, method)
    chosen, spec = loaded.task, loaded.task.spec
    env = chosen.make_env()
    observation = EnvBatch(chosen, [seed], envs=[env]).current[0]
    loaded.reset(seed)  # the plan that the episode begins with
    made = loaded.plan(observation, **planning.settings)
    executed = made.execute(EnvBatch(chosen, [seed]))
    if mission := spec.mission(observation):
        screen.print(mission, style="bold", markup=False)
    if spec.geometry is not None and spec.geometry.directions == 4:
        states = () if made.states is None else made.states.tolist()
        lines = terminal.grid_lines(spec, observation, states, made.goals, executed)
        screen.print(console.segments([*lines, *(() if executed is None else terminal.legend(executed))]))
    if spec.geometry is None or made.trace is None:
        screen.print(f"actions: {' '.join(frames.action_labels(spec, made.actions))}", markup=False)
    masked = config.get(loaded.planner.config, "source") == "mask"
    mask = loaded.planner.codec.stream.size if masked else None
    if made.trace is not None:
        title = "codes of actions" if spec.actions.n is None else "actions"
        rows = terminal.denoising_rows(spec, made.trace, mask, executed and executed.arrival)
        screen.print(console.denoising(rows, title))
    if made.energy is not None and made.confidence is not None:
        confidence = " ".join(f"{number:.2f}" for number in made.confidence)
        screen.print(f"energy {made.energy:.2f} nats; confidence of each action: {confidence}")
    if gif is not None:
        shaping, frame = [], frames.render_frame(chosen, env, observation)
        if made.trace is not None:
            shaping = frames.plan_frames(spec, frame, observation, made.trace, mask, executed)
        shaping += frames.first_plan(chosen, frame, made.actions)
        env.close()
        acting = loaded.planner.with_options(**planning.settings)
        pictures, outcome = frames.episode_frames(acting, chosen, seed)
        write_atomically(gif := gif.with_suffix(".gif"), frames.gif(pictures, shaping))
        screen.print(f"{gif} written: {outcome}")
    return 0


def export(
    run: Positional[Path],
    out: Path,
    task: str | None = None,
    method: str | None = None,
    planning: OmitArgPrefixes[Planning] = Planning(),
) -> int:
    """Make a finished run small enough to share: half precision, with a card of its origin and results.

    Args:
        run: The run folder.
        out: Where to put the planner; load it by this path.
        task: The file.py:task that the run was trained on, if it is a file: only files you name are run.
        method: The same of its method, file.py:Class.
        planning: How it plans from now on; what is not named stays as it was trained.
    """
    from genplan import checkpoint, tasks
    from genplan import export as exporting
    from genplan.console import progress
    from genplan.types import TEST_SEEDS

    console, num_tasks = Console(), len(tasks.task_names(checkpoint.read_config(run)["task"]))
    with progress(console, f"evaluating {run}", 3 * num_tasks * len(TEST_SEEDS), "episodes") as on_progress:
        exporting.export(run, out, planning.settings, on_progress, task, method)
    console.print(f"{out}: {(out / 'model.safetensors').stat().st_size / 1e6:.1f} MB")
    return 0


def reproduce(
    planner: Positional[str], out: Path | None = None, task: str | None = None, method: str | None = None
) -> int:
    """Train an exported planner again from nothing, by its card, and compare the results.

    Args:
        planner: pretrained:TASK, or the folder of an exported planner.
        out: The run folder (by default runs/reproduce-NAME). Stop at any time; the same command continues.
        task: The file.py:task that the planner was trained on, if it is a file: only files you name are run.
        method: The same of its method, file.py:Class.
    """
    from genplan import checkpoint
    from genplan import export as exporting
    from genplan.console import records_table, training_progress

    console, name = Console(), planner.removeprefix("pretrained:").replace("/", "-")
    folder = out or Path("runs") / f"reproduce-{name}"
    steps = checkpoint.read_card(checkpoint.run_dir(planner))["steps"]
    console.print(f"training {planner} again in {folder}: {steps} steps")
    with training_progress(console, 0, steps) as on_training:
        result = exporting.reproduce(planner, folder, on_training, task, method)
    if not result.same_dataset:
        console.print("[yellow]the demonstrations differ from those of the card[/]")
    console.print(records_table(f"{planner}, test seeds", {"card": result.card["results"], "now": result.results}))
    console.print("[green]as good as its card, within chance" if result.as_good else "[red]below its card's interval")
    return 0 if result.as_good else 1
