"""Speed of training and planning, with the machine's own matrix-product rate beside every figure.

    python benchmarks/planner.py [--threads 1] [--sweep FILE.png] [--memory]

The authors' code on the same kind of machine (one thread, CPU time): 1.5–2.0 s for a training step (batch 64, H = 10),
92–98 ms for a plan (5 iterations, batch 1), 790–930 s for 250 untrained MazeS4G1 episodes.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from genplan.data.demos import collect_episode
from genplan.tasks.batch import EnvBatch

import genplan
from genplan import tasks
from genplan.config import GenPlanConfig, settings
from genplan.data.windows import Windows
from genplan.evaluate import rollout
from genplan.flow import Rng
from genplan.planners.genplan import GenPlan
from genplan.planners.reference import Bot


def product_rate() -> float:
    """GFLOP per CPU-second of float32 matrix products, now."""
    a = torch.randn(768, 768)
    a @ a
    began = time.process_time()
    for _ in range(20):
        a @ a
    return 20 * 2 * 768**3 / (time.process_time() - began) / 1e9


def median(function: Callable[[int], object], repeats: int) -> tuple[float, float]:
    """Wall and CPU seconds of one call, each the median."""
    function(0)
    walls, cpus = [], []
    for number in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        function(number + 1)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return sorted(walls)[repeats // 2], sorted(cpus)[repeats // 2]


def training(per_map: int) -> None:
    task = tasks.get("MazeS4G1")
    env, bot = task.make(), Bot()
    episodes = [collect_episode(bot, task, env, seed) for seed in range(10_000, 10_100)]
    windows = Windows(task.spec, [episode for episode in episodes if episode is not None], 10, 1)
    planner = GenPlan(task.spec, GenPlanConfig()).train()
    optimiser = torch.optim.AdamW(planner.parameters(), fused=True)

    def step(number: int) -> None:
        rng = Rng.of(number)
        loss = planner.loss(windows.draw(64, rng, per_map), rng).total
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(planner.parameters(), 1.0)
        optimiser.step()

    _, cpu = median(step, 15)
    rate = product_rate()
    print(f"training step, batch 64, H 10, {per_map} windows per map: {cpu:.3f} CPU-s (bar 0.15) · {rate:.0f} GFLOP/s")


def untrained(world: str, **options: Any) -> GenPlan:
    """With the settings of its world, as it would be trained."""
    config = settings(world)[0]
    assert isinstance(config, GenPlanConfig)
    return GenPlan(tasks.get(world).spec, replace(config, iterations=5, **options)).eval()


def shipped() -> GenPlan:
    """The planner that users have: a learnt map settles sooner than an unlearnt one."""
    planner = genplan.load("pretrained:MazeS4G1").planner.with_options(iterations=5)
    assert isinstance(planner, GenPlan)
    return planner


def planning(planner: GenPlan, batch: int, world: str = "MazeS4G1", anew: bool = False) -> float:
    """Wall seconds of one batch of plans: the first of their episodes if `anew`, else later ones on the same maps."""
    firsts = range(2000, 2000 + max(64, batch), batch)  # at least 64 different maps, as they differ in what they cost
    seens = [EnvBatch(tasks.get(world), range(first, first + batch)).observations() for first in firsts]
    rows = torch.arange(batch)
    memories = [planner.observe(planner.start(seen), torch.zeros_like(rows), seen, rows) for seen in seens]

    def plan(number: int) -> None:
        place = number % len(seens)
        memory = planner.start(seens[place]) if anew else memories[place]
        planner.plan(seens[place], memory, Rng.of(number, rows), rows)

    repeats = max(3, min(200, 2500 // batch))  # seconds each: the machine's moods last for tenths of a second
    wall, _ = median(plan, repeats)
    return wall


def episodes(number: int = 250) -> None:
    planner = untrained("MazeS4G1", execute=10)
    began, cpu = time.perf_counter(), time.process_time()
    results = rollout(planner, tasks.get("MazeS4G1"), range(2000, 2000 + number), execute=10)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    solved = sum(result.success for result in results)
    print(f"{number} untrained episodes ({solved} solved by chance): {wall:.1f} s, {cpu:.1f} CPU-s (bar 40)")


def sweep(path: Path) -> None:
    """Cost against horizon, grid and batch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    horizons = (10, 20, 30)
    axes[0].plot(horizons, [1e3 * planning(untrained("MazeS4G1", horizon=horizon), 64) for horizon in horizons], "o-")
    axes[0].set(xlabel="horizon", ylabel="ms for 64 plans", title="10×10, 5 iterations", ylim=0)
    worlds = ("KeyCorridorS3R3", "BlockUnlock", "MazeS4G1", "DoorsOrder", "MazeS7G1")
    cells = [tasks.WORLDS[world].size ** 2 for world in worlds]
    axes[1].plot(cells, [1e3 * planning(untrained(world), 64, world) for world in worlds], "o-")
    axes[1].set(xlabel="cells of the grid", title="horizon 10", ylim=0)
    batches = (1, 3, 10, 30, 100, 300, 1000)
    axes[2].loglog(batches, [batch / planning(shipped(), batch) for batch in batches], "o-")
    axes[2].set(xlabel="batch", ylabel="plans per second", title="10×10, horizon 10")
    figure.savefig(path, dpi=100)
    print(f"{path} written")


def memory() -> None:
    """Peak memory after 250 and after 2,000 episodes."""
    task = tasks.get("LocS10N1")
    planner = GenPlan(task.spec, GenPlanConfig(iterations=2, execute=10)).eval()
    peaks = []
    for part in range(8):
        rollout(planner, task, range(2000, 2250), execute=10, seed=part)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print("peak memory, MB, after each 250 episodes:", *(f"{peak:.0f}" for peak in peaks))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sweep", type=Path)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for windows_per_map in (4, 8):
        training(windows_per_map)
    first, later = (1e3 * planning(shipped(), 1, anew=anew) for anew in (True, False))
    print(
        f"one plan, 5 iterations, batch 1: {later:.1f} ms (bar 12), {first:.1f} ms where the map is new "
        f"· {product_rate():.0f} GFLOP/CPU-s"
    )
    for threads in sorted({1, torch.get_num_threads(), os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        first, later = (250 / planning(shipped(), 250, anew=anew) for anew in (True, False))
        print(
            f"batch 250, {threads} threads: {later:.0f} plans/s (bar 800), {first:.0f} where all maps are new "
            f"· {product_rate():.0f} GFLOP/CPU-s"
        )
    torch.set_num_threads(arguments.threads)
    episodes()
    if arguments.sweep:
        sweep(arguments.sweep)
    if arguments.memory:
        memory()
