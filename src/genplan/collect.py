"""Collect verified demonstrations, in parallel, with progress; stop at any time and continue later.

Finished chunks of seeds are kept as small files beside the datasets until all are there; then the dataset is written in
one go. Every seed's episode depends on that seed alone, so the content does not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from genplan import tasks
from genplan.data import store
from genplan.data.episodes import episode_from_arrays
from genplan.errors import DataError, ExpertFailure, UserError
from genplan.files import write_atomically
from genplan.jobs import Job, LocalExecutor, Report, file_lock
from genplan.names import load_planner
from genplan.rollout import EnvBatch, rollout
from genplan.tasks.files import short_name, user_code_errors
from genplan.types import TRAIN_SEEDS, Env, Episode, Planner, SubGoal, Task

CHUNK = 25  # seeds per file: at most this much work is lost
HOPELESS = 8  # chunks without any success after which no more are tried


@dataclass(frozen=True)
class CollectConfig:
    """Which demonstrations. The same config gives the same content, on any machine, with any number of workers."""

    task: str
    episodes: int = 1000
    expert: str = "bot"
    seed: int = TRAIN_SEEDS[0]  # the first

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise UserError(f"episodes is {self.episodes}, expected at least 1")
        if reason := store.seed_clash(range(self.seed, self.seed + self.episodes), f"seeds from {self.seed} on"):
            raise DataError(reason)
        if self.seed not in TRAIN_SEEDS or self.seed + self.episodes - 1 not in TRAIN_SEEDS:
            raise UserError(
                f"seeds {self.seed}–{self.seed + self.episodes - 1} are asked for, expected training seeds within "
                f"{TRAIN_SEEDS[0]}–{TRAIN_SEEDS[-1]}"
            )

    @property
    def name(self) -> str:
        """The dataset's name in Minari."""
        task = short_name(self.task)
        own = "expert" if ".py:" in self.task else "bot"  # the tasks of the table have BabyAI's bot
        expert = own if self.expert in ("expert", "bot") else re.sub(r"[\W_]", "-", self.expert.rpartition("/")[2])
        start = "" if self.seed == TRAIN_SEEDS[0] else f"-from-{self.seed}"
        return f"genplan/{task}/{expert}-{self.episodes}{start}-v0"


def collect(config: CollectConfig, workers: int = 2, on_progress: Callable[[int], None] | None = None) -> store.Dataset:
    """The dataset of a config: read if it is there, otherwise collected, continuing where an earlier call stopped.

    `on_progress` gets the number of episodes that were just added.
    """
    task = tasks.get(config.task)
    if store.exists(config.name):
        return store.read(config.name, task)
    shards = store.datasets_root() / ".genplan-collecting" / config.name.replace("/", "--")
    shards.mkdir(parents=True, exist_ok=True)
    start_time = time.time()
    with file_lock(shards / "lock", f"{config.name} is being collected"):
        episodes = _collect_successes(config, shards, workers, on_progress)
        metadata = {
            "expert": config.expert,
            "seeds": [episodes[0].seed, episodes[-1].seed],
            "versions": store.versions(),
            "collected": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_time)),
        }
        store.write(config.name, task, episodes, metadata)
        shutil.rmtree(shards, ignore_errors=True)
        with contextlib.suppress(OSError):
            shards.parent.rmdir()
    return store.read(config.name, task)


def _collect_successes(
    config: CollectConfig, shards: Path, workers: int, on_progress: Callable[[int], None] | None
) -> list[Episode]:
    """The first `episodes` successes, in the order of their seeds."""
    collected: dict[int, list[Episode]] = {}
    starts = iter(range(config.seed, TRAIN_SEEDS[-1] + 1, CHUNK))
    missing, hopeless = config.episodes, False

    def add(start: int) -> None:
        nonlocal missing
        collected[start] = _load_shard(_shard(shards, start))
        added = min(len(collected[start]), missing)
        missing -= added
        if on_progress is not None:
            on_progress(added)

    while missing:
        # As many chunks as would do if all succeeded; failures are made up for in the next round.
        chunks = list(islice(starts, math.ceil(missing / CHUNK)))
        if not chunks:
            raise DataError(
                f"{config.expert} succeeded on {config.episodes - missing} seeds from {config.seed} on, expected "
                f"{config.episodes}; ask for fewer"
            )
        jobs = []
        for start in chunks:
            path = _shard(shards, start)
            if path.exists():
                add(start)
            else:
                jobs.append(Job(str(path), collect_chunk, (config.task, config.expert, start, str(path))))
        for event in LocalExecutor(max(1, min(workers, len(jobs)))).run(jobs):
            if event.type == "failed":
                raise UserError(f"{config.name} is not collected: {event.reason}. Finished parts are kept")
            if event.type == "done":
                add(event.job.arguments[2])
                if hopeless := len(collected) >= HOPELESS and not any(collected.values()):
                    break
        if hopeless:
            shutil.rmtree(shards)  # nothing to keep once expert or task are corrected
            raise DataError(f"{config.expert} succeeded on none of {CHUNK * len(collected)} seeds from {config.seed} "
                            f"on, expected {config.episodes} successes; see where it fails: genplan eval "
                            f"{config.expert} --task {config.task} --episodes {CHUNK}")  # fmt: skip
    ordered = [episode for start in sorted(collected) for episode in collected[start]]
    return ordered[: config.episodes]


def collect_chunk(task_name: str, expert: str, start: int, path: str, report: Report) -> None:
    """The job of one chunk of seeds, whose episodes are kept in the file `path`."""
    seeds = range(start, min(start + CHUNK, TRAIN_SEEDS[-1] + 1))
    task = tasks.get(task_name)
    planner = load_planner(expert, task)
    with contextlib.closing(task.make_env()) as env, user_code_errors(expert):
        tried = [collect_episode(planner, task, env, seed) for seed in seeds]
    _save_shard(Path(path), [episode for episode in tried if episode is not None])


def collect_episode(planner: Planner, task: Task, env: Env, seed: int) -> Episode | None:
    """One episode, up to its first success; None if there was none, or the expert could not continue."""
    batch = EnvBatch(task, [seed], envs=[env])
    label = None if task.label_subgoals is None else task.label_subgoals(env)
    observations, actions, results = [batch.current[0]], [], []
    subgoals: list[SubGoal] = []
    try:
        # One action per plan, whatever the planner's own number: a demonstration is the best that an expert can do.
        for steps in rollout(planner, batch, action_steps=1):
            observations.append(batch.current[0])
            actions.append(steps.actions[0].numpy())
            results.append(steps.result)
            succeeded = steps.result.success[0]
            if label is not None:
                reached = label(observations[-2], observations[-1], succeeded)
                subgoals += [SubGoal(len(actions) - 1, token, type_) for token, type_ in reached]
            if succeeded:
                break
    except ExpertFailure:
        return None
    if task.success is not None and not results[-1].success[0]:
        return None
    return episode_from_arrays(
        task.spec,
        {name: np.stack([one[name] for one in observations]) for name in task.spec.fields},
        np.stack(actions),
        [result.rewards[0] for result in results],
        [result.terminations[0] for result in results],
        [result.truncations[0] for result in results],
        infos={key: [result.infos[0][key] for result in results] for key in task.infos},
        seed=seed,
        subgoals=subgoals,
        where=f"task {task.name}, seed {seed}",
    )


# --- shards ----------------------------------------------------------------------------------------------------------


def _shard(folder: Path, start: int) -> Path:
    return folder / f"seeds-{start}-v{store.FORMAT}.npz"


def _save_shard(path: Path, episodes: Sequence[Episode]) -> None:
    arrays: dict[str, Any] = {f"{number}/{name}": one for number, episode in enumerate(episodes)
              for name, one in store.columns(episode).items()}  # fmt: skip
    labels = json.dumps([{"seed": episode.seed, "subgoals": episode.subgoals} for episode in episodes])
    file = io.BytesIO()
    np.savez(file, labels=np.array(labels), **arrays)
    write_atomically(path, file.getvalue())


def _load_shard(path: Path) -> list[Episode]:
    with np.load(path, allow_pickle=False) as data:
        labels = json.loads(str(data["labels"]))
        columns: list[dict[str, Any]] = [{"observations": {}, "infos": {}} for _ in labels]
        for key in data.files:
            if key != "labels":
                number, *group, name = key.split("/", 2)
                (columns[int(number)][group[0]] if group else columns[int(number)])[name] = data[key]
    return [
        Episode(**parts, seed=label["seed"], subgoals=tuple(SubGoal(*goal) for goal in label["subgoals"]))
        for label, parts in zip(labels, columns, strict=True)
    ]
