"""Collect verified demonstrations, in parallel, with progress; stop at any time and go on later.

Finished chunks of seeds are kept as small files beside the datasets until all are there; then the dataset is written in
one go. Every seed's episode depends on that seed alone, so the content does not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from genplan import tasks
from genplan.data import episodes as storage
from genplan.data.recordings import stacked
from genplan.errors import DataError, LostError, UserError
from genplan.flow import Rng
from genplan.planners.names import resolve
from genplan.tasks.table import TRAIN_SEEDS
from genplan.tasks.task import Task
from genplan.types import Episode, Observations, Oracle, Planner, SubGoal
from genplan.workers import only_one, serve

CHUNK = 25  # seeds per file: at most this much work is lost


@dataclass(frozen=True)
class Recipe:
    """Which demonstrations. The same recipe gives the same content, on any machine, with any number of workers."""

    task: str
    episodes: int = 1000
    expert: str = "bot"
    seed: int = TRAIN_SEEDS[0]

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise UserError(f"episodes is {self.episodes}, expected at least 1")
        storage.check_seeds(range(self.seed, self.seed + self.episodes), f"seeds from {self.seed} on")
        if self.seed not in TRAIN_SEEDS or self.seed + self.episodes - 1 not in TRAIN_SEEDS:
            raise UserError(
                f"seeds {self.seed}–{self.seed + self.episodes - 1} are asked for, expected training seeds within "
                f"{TRAIN_SEEDS[0]}–{TRAIN_SEEDS[-1]}"
            )

    @property
    def name(self) -> str:
        """The dataset's name in Minari."""
        task = Path(self.task.rpartition(".py:")[0]).stem if ".py:" in self.task else self.task
        expert = "".join(c if c.isalnum() else "-" for c in self.expert.rpartition("/")[2])
        start = "" if self.seed == TRAIN_SEEDS[0] else f"-from-{self.seed}"
        return f"genplan/{task}/{expert}-{self.episodes}{start}-v0"


def collect_episode(
    planner: Planner, task: Task, env: gymnasium.Env[Any, Any], seed: int, give_up: int | None = None
) -> Episode | None:
    """One episode, or None if it did not succeed (or the expert lost its way)."""
    raw, _ = env.reset(seed=seed)
    seen = [task.observe(env, raw)]
    oracle = Oracle([env], task.goals) if planner.needs_oracle else None
    row = torch.zeros(1, dtype=torch.int64)
    watch = task.watch(env) if task.watch is not None else None
    actions: list[int] = []
    subgoals: list[SubGoal] = []
    success = False
    try:
        memory = planner.start(Observations.stack(seen), oracle)
        while not success:
            rng = Rng.of(0, torch.tensor([seed]), len(actions))
            plan, memory = planner.plan(Observations.stack(seen[-1:]), memory, rng, row, oracle)
            action = plan.actions[:, 0]
            raw, reward, terminated, truncated, info = env.step(int(action))
            actions.append(int(action))
            seen.append(task.observe(env, raw))
            success = task.succeeded(float(reward), terminated, info)
            if watch is not None:
                reached = watch(seen[-2], seen[-1], success)
                subgoals += [SubGoal(len(actions) - 1, token, kind) for token, kind in reached]
            memory = planner.observe(memory, action, Observations.stack(seen[-1:]), row)
            if not success and (terminated or truncated or len(actions) >= (give_up or task.max_steps)):
                return None
    except LostError:
        return None
    return Episode(
        states=np.array([int(view["state"]) for view in seen]),
        actions=np.array(actions),
        maps=stacked(seen, "map"),
        features=stacked(seen, "features"),
        mission=task.spec.decode_mission(seen[0]["mission"]) if "mission" in seen[0] else "",
        subgoals=tuple(subgoals),
        seed=seed,
    )


def collect(recipe: Recipe, workers: int = 2, tick: Callable[[int], None] | None = None) -> storage.Dataset:
    """The dataset of a recipe: loaded if it is there, otherwise collected, going on where an earlier run stopped."""
    task = tasks.get(recipe.task)
    if storage.exists(recipe.name):
        return storage.read(recipe.name, task)
    root = storage.datasets_root()
    shards = root / ".genplan-collecting" / recipe.name.replace("/", "--")
    shards.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with only_one(shards / "lock", f"{recipe.name} is being collected"):
        found = _gather(recipe, shards, workers, tick)
        about = {
            "expert": recipe.expert,
            "seeds": [found[0].seed, found[-1].seed],
            "versions": storage.versions(),
            "collected": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        }
        storage.write(recipe.name, task, found, about)
        shutil.rmtree(shards, ignore_errors=True)
        with contextlib.suppress(OSError):
            shards.parent.rmdir()
    return storage.read(recipe.name, task)


def _gather(recipe: Recipe, shards: Path, workers: int, tick: Callable[[int], None] | None) -> list[Episode]:
    """The first `episodes` successes, in the order of their seeds."""
    found: dict[int, list[Episode]] = {}
    chunks = iter(range(recipe.seed, TRAIN_SEEDS[-1] + 1, CHUNK))
    told = 0
    while (lacking := recipe.episodes - sum(map(len, found.values()))) > 0:
        # As many chunks as would do if all succeeded; what fails is made up for in the next round.
        starts = list(islice(chunks, math.ceil(lacking / CHUNK)))
        if not starts:
            raise DataError(
                f"{recipe.expert} succeeded on {recipe.episodes - lacking} seeds from {recipe.seed} on, expected "
                f"{recipe.episodes}; ask for fewer"
            )
        there = [start for start in starts if _shard(shards, start).exists()]
        jobs = [(recipe.task, recipe.expert, start, str(_shard(shards, start))) for start in starts]
        jobs = [job for job in jobs if job[2] not in there]
        kept = ((start, _load_shard(_shard(shards, start))) for start in there)
        for start, episodes in chain(kept, _run(jobs, workers)):
            found[start] = episodes
            if tick is not None:
                now = min(sum(map(len, found.values())), recipe.episodes)
                tick(now - told)
                told = now
    ordered = [episode for start in sorted(found) for episode in found[start]]
    return ordered[: recipe.episodes]


def _run(jobs: Sequence[Any], workers: int) -> Iterator[tuple[int, list[Episode]]]:
    if workers < 1:
        raise UserError(f"workers is {workers}, expected at least 1")
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            yield _work(job)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, serve, (os.getpid(),)) as pool:
        try:
            for done in as_completed([pool.submit(_work, job) for job in jobs]):
                yield done.result()
        except BrokenProcessPool as error:
            raise UserError(
                "a process that collects demonstrations ended; what it had collected is kept. A script that calls this "
                "needs 'if __name__ == \"__main__\":' around its calls, or workers=1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _work(job: tuple[str, str, int, str]) -> tuple[int, list[Episode]]:
    """Collect a chunk of seeds and keep it."""
    task_name, expert, start, path = job
    seeds = range(start, min(start + CHUNK, TRAIN_SEEDS[-1] + 1))
    task = tasks.get(task_name)
    planner = resolve(expert, task)
    env = task.new_env()
    tried = (collect_episode(planner, task, env, seed) for seed in seeds)
    episodes = [episode for episode in tried if episode is not None]
    _save_shard(Path(path), episodes)
    return start, episodes


def _shard(folder: Path, start: int) -> Path:
    return folder / f"seeds-{start}.npz"


def _save_shard(path: Path, episodes: Sequence[Episode]) -> None:
    arrays: dict[str, Any] = {}
    labels = []
    for number, episode in enumerate(episodes):
        for name in ("states", "actions", "maps", "features"):
            if (value := getattr(episode, name)) is not None:
                arrays[f"{number}/{name}"] = value
        labels.append(
            {"mission": episode.mission, "seed": episode.seed, "subgoals": [list(g) for g in episode.subgoals]}
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}.npz")
    np.savez(partial, labels=np.array(json.dumps(labels)), **arrays)
    os.replace(partial, path)


def _load_shard(path: Path) -> list[Episode]:
    with np.load(path, allow_pickle=False) as data:
        labels = json.loads(str(data["labels"]))
        return [
            Episode(
                states=data[f"{number}/states"],
                actions=data[f"{number}/actions"],
                maps=data.get(f"{number}/maps"),
                features=data.get(f"{number}/features"),
                mission=label["mission"],
                subgoals=tuple(SubGoal(*goal) for goal in label["subgoals"]),
                seed=label["seed"],
            )
            for number, label in enumerate(labels)
        ]
