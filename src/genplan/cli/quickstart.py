"""`genplan quickstart`: from nothing to a planner that solves mazes it has never seen, in a few minutes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from genplan.cli.data import collect_demos
from genplan.cli.train import fit
from genplan.errors import UserError

if TYPE_CHECKING:  # imported by the commands that need them, so that the command line answers at once
    from genplan.policy import Policy

TASK = "MazeS4G1"
ANIMATIONS, MAX_FRAMES = 4, 60


def quickstart(
    out: Path = Path("runs/quickstart"), steps: int = 1200, episodes: int = 100, demonstrations: int = 1000
) -> int:
    """The main job: demonstrations, a small planner, 100 mazes that it has never seen, and a report.

    Args:
        out: The run folder. Stop at any time; the same command continues.
        steps: Training steps.
        episodes: Unseen mazes to be solved (validation seeds, from 2000 on).
        demonstrations: How many to learn from.
    """
    from genplan import config, names, policy, presets, runs, tasks
    from genplan.collect import CollectConfig
    from genplan.console import evaluation_table, progress
    from genplan.data.transforms.loops import EraseLoops
    from genplan.evaluate import evaluate, to_record
    from genplan.files import write_json
    from genplan.report import run_page
    from genplan.tasks.grid import COLOR_PERMUTATION, SYMMETRY
    from genplan.types import VALIDATION_SEEDS

    if episodes < 1:
        raise UserError(f"episodes is {episodes}, expected at least 1")
    training = presets.TrainConfig(steps=steps, warmup_steps=100, save_every=100)  # refused before anything starts
    console, start_time, data = Console(), time.time(), CollectConfig(TASK, demonstrations)
    console.print(
        f"[bold]genplan[/] learns to find its way in mazes from {demonstrations} demonstrations, then faces {episodes} "
        "mazes that it has never seen. About four minutes on two cores; stop at any time, the same command continues."
    )
    if collect_demos(console, data, label="1 of 4  demonstrations") is None:
        console.print(f"1 of 4  demonstrations: {data.name} exists already")
    if (out / "config.json").exists():
        trainer = runs.resume_run(out)
    else:
        planner = config.override(
            presets.default_config()[0], context_length=2, visit_memory=True, position_embedding=True, order="chain",
            iterations=4, temperature=0.0, action_steps=10,
        )  # fmt: skip
        recipe: list[Any] = [EraseLoops(), SYMMETRY, COLOR_PERMUTATION]
        with console.status("2 of 4  a model of one step (some seconds)"):
            trainer = runs.create_run(out, TASK, "GenPlan-M", planner, training, data.name, recipe)
    fit(console, trainer, "2 of 4  training")
    console.print("3 of 4  unseen mazes, beside a random policy and the bot that gave the demonstrations")
    loaded, task, seeds = policy.load(out), tasks.get(TASK), VALIDATION_SEEDS[:episodes]
    random = names.load_planner("random:demos", task)
    with progress(console, "        playing", 3 * len(seeds), "episodes") as on_progress:
        found = evaluate(loaded.planner, task, seeds, baseline=random, on_progress=on_progress)
    console.print(evaluation_table(str(out), found))
    write_json(out / "results.json", to_record(str(out), task, seeds, loaded.config, found, commit=runs.commit()))
    console.print("4 of 4  report")
    title, pictures = f"{TASK}: a planner in minutes", _animations(loaded, seeds[:ANIMATIONS])
    path = run_page(out, title, loaded.config, found, pictures, trainer.cpu_seconds)
    minutes = (time.time() - start_time) / 60
    console.print(f"{path} written; {minutes:.1f} minutes in all. Look also at: genplan plan {out}")
    return 0


def _animations(policy: Policy, seeds: Sequence[int]) -> list[tuple[str, bytes]]:
    """A plan that takes shape, and the first episodes."""
    from genplan.render import frames

    task, env = policy.task, policy.task.make_env()
    observation = task.observe(env, env.reset(seed=seeds[0])[0])
    animations = []
    if (trace := policy.plan(observation).trace) is not None:
        frame, mask = frames.render_frame(task, env, observation), policy.planner.codec.stream.size
        shaping = frames.plan_frames(task.spec, frame, observation, trace, mask)
        animations.append(("a plan takes shape", frames.gif((), shaping)))
    for seed in seeds:
        pictures, outcome = frames.episode_frames(policy.planner, task, seed, limit=MAX_FRAMES)
        animations.append((f"maze {seed}: {outcome}", frames.gif(pictures)))
    return animations
