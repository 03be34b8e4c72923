"""Planning: the time of a plan by horizon, grid and batch, whether its scene is new or encoded already; peak memory.

python benchmarks/planner.py [--threads 1] [--memory]

The authors' code on the same kind of machine (one thread, CPU time): 92–98 ms for a plan (5 iterations, batch 1),
790–930 s for 250 untrained MazeS4G1 episodes. Two checkouts are compared by benchmarks/speed.py.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import Any

import torch

import genplan
from genplan import planners, tasks
from genplan.config import override
from genplan.flow import Rng
from genplan.planners.base import LearnedPlanner
from genplan.presets import default_config
from genplan.rollout import EnvBatch, play


def untrained(task: str, **options: Any) -> LearnedPlanner:
    config = override(default_config(task)[0], iterations=5, **options)
    return planners.build("GenPlan-M", tasks.get(task).spec, config).eval()


def pretrained() -> LearnedPlanner:
    """The planner that users have: a trained grid encoder converges sooner than an untrained one."""
    planner = genplan.load("pretrained:MazeS4G1").planner.with_options(iterations=5)
    assert isinstance(planner, LearnedPlanner)
    return planner


def plan_seconds(planner: LearnedPlanner, batch: int, task: str = "MazeS4G1", new_scenes: bool = False) -> float:
    """Wall seconds of one batch of plans: the first of their episodes, or later ones in the same scenes."""
    first_seeds = range(2000, 2000 + max(64, batch), batch)  # at least 64 different grids: they differ in cost
    seen = [EnvBatch(tasks.get(task), range(first, first + batch)).observations() for first in first_seeds]
    rows = torch.arange(batch)
    memories = [planner.observe(planner.reset(one), torch.zeros_like(rows), one, rows) for one in seen]
    taken = []
    for number in range(1 + max(3, min(200, 2500 // batch))):
        index = number % len(seen)
        memory = planner.reset(seen[index]) if new_scenes else memories[index]
        start_time = time.perf_counter()
        planner.plan(seen[index], memory, Rng.of(number, rows), rows)
        taken.append(time.perf_counter() - start_time)
    return statistics.median(taken[1:])


def costs() -> None:
    for horizon in (10, 20, 30):
        seconds = plan_seconds(untrained("MazeS4G1", horizon=horizon), 64)
        print(f"64 plans, 10×10, horizon {horizon}: {1e3 * seconds:.0f} ms")
    for task in ("KeyCorridorS3R3", "BlockUnlock", "MazeS4G1", "DoorsOrder", "MazeS7G1"):
        size = tasks.get(task).spec.fields["grid"].shape[0]
        print(f"64 plans, {size}×{size}, horizon 10: {1e3 * plan_seconds(untrained(task), 64, task):.0f} ms")
    for batch in (1, 10, 100, 250, 1000):
        again, new = (batch / plan_seconds(pretrained(), batch, new_scenes=new) for new in (False, True))
        print(f"batch {batch}, 10×10: {again:.0f} plans/s, {new:.0f} where all scenes are new")


def memory() -> None:
    """Peak memory after each 250 episodes: it must not grow."""
    task = tasks.get("LocS10N1")
    planner = untrained("LocS10N1", action_steps=10)
    peaks = []
    for part in range(8):
        play(planner, task, range(2000, 2250), seed=part)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print("peak memory, MB, after each 250 episodes:", *(f"{peak:.0f}" for peak in peaks))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    costs()
    if arguments.memory:
        memory()
