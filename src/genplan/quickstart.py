"""The main job of `make run`: from nothing to a planner that solves mazes it has never seen, in a few minutes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.console import Console

from genplan import film, pilot, runs, tasks
from genplan.checkpoint import write_json
from genplan.config import GenPlanConfig, TrainConfig
from genplan.data.demos import Recipe, collect
from genplan.data.episodes import exists
from genplan.evaluate import evaluate
from genplan.judge import record, table
from genplan.page import run_page
from genplan.planners.names import resolve
from genplan.show import progress, training_progress
from genplan.tasks.table import VALIDATION_SEEDS

TASK = "MazeS4G1"
FILMS = 4


def main_job(console: Console, folder: Path, steps: int, episodes: int, demonstrations: int = 1000) -> int:
    began = time.time()
    console.print(
        f"[bold]genplan[/] learns to find its way in mazes from {demonstrations} demonstrations, then faces {episodes} "
        "mazes that it has never seen. About four minutes on two cores; stop at any time, the same command goes on."
    )
    recipe = Recipe(TASK, demonstrations)
    if not exists(recipe.name):
        with progress(console, "1 of 4  demonstrations", recipe.episodes, "episodes") as tick:
            collect(recipe, workers=2, tick=tick)
    else:
        console.print(f"1 of 4  demonstrations: {recipe.name} is there already")
    if (folder / "config.json").exists():
        run = runs.resume(folder)
    else:
        training = TrainConfig(steps=steps, warmup=100, save_every=100)
        # So short a training gets stuck now and then, unless it is a little curious.
        run = runs.begin(folder, TASK, GenPlanConfig(trail=True, curiosity=0.2), training, recipe.name)
    console.print(f"2 of 4  training, from step {run.step} to {run.config.steps}")
    with training_progress(console, run.step, run.config.steps) as tell:
        run.fit(tell)
    console.print("3 of 4  unseen mazes, beside a blind walk and the bot that gave the demonstrations")
    loaded = pilot.load(folder)
    task, seeds = tasks.get(TASK), VALIDATION_SEEDS[:episodes]
    execute = loaded.planner.config.execute
    with progress(console, "        playing", 3 * len(seeds), "episodes") as tick:
        found = evaluate(loaded.planner, task, seeds, walk=resolve("walk:demos", task), execute=execute, tick=tick)
    console.print(table(str(folder), task, seeds, found))
    write_json(folder / "results.json", record(str(folder), task, seeds, execute, loaded.config, found))
    console.print("4 of 4  report")
    films = []
    for seed in seeds[:FILMS]:
        frames, outcome = film.episode(loaded, seed, limit=60)
        films.append((f"maze {seed}: {outcome}", film.gif(frames)))
    env = task.new_env()
    seen = task.observe(env, env.reset(seed=seeds[0])[0])
    trace = loaded.plan(seen).trace
    assert trace is not None
    films.insert(
        0, ("a plan takes shape", film.gif(film.denoising(task.spec, seen["map"], int(seen["state"]), trace), 600))
    )
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    path = run_page(
        folder / "report.html", f"{TASK}: a planner in minutes", loaded.config, found, log, films, run.seconds
    )
    console.print(
        f"{path} written; {(time.time() - began) / 60:.1f} minutes in all. Look also at: genplan plan {folder}"
    )
    return 0
