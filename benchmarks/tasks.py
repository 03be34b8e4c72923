"""Speed of environments, collection and batches, as ratios measured in one run.

python benchmarks/tasks.py [--demos 5000]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import time
from typing import Any

import numpy as np
import torch
from minigrid.envs.babyai.goto import GoTo
from minigrid.wrappers import FullyObsWrapper

from genplan.collect import CollectConfig, collect
from genplan.data.windows import Windows
from genplan.envs import ENVS, make_env
from genplan.flow import Rng
from genplan.types import WindowNeeds


def steps_per_second(env: Any, steps: int) -> float:
    """CPU time of random steps, observations included, resets left out."""
    actions = np.random.default_rng(0).integers(6, size=steps).tolist()
    spent = 0.0
    for seed in range(20):
        with contextlib.redirect_stdout(io.StringIO()):
            env.reset(seed=seed)
        start_time = time.process_time()
        for action in actions[seed::20]:
            env.step(action)
        spent += time.process_time() - start_time
    return steps / spent


def environments() -> None:
    for name, bar in (("MazeS4G1", 3.0), ("MazeS7G1", 1.6)):
        entry = ENVS[name]
        ours, stock = make_env(name), FullyObsWrapper(GoTo(max_steps=entry.max_steps, **entry.arguments))
        rates = [(steps_per_second(ours, 8000), steps_per_second(stock, 4000)) for _ in range(3)]
        ratio = float(np.median([a / b for a, b in rates]))
        mine, theirs = np.median(rates, axis=0)
        print(f"{name}: {mine:.0f} steps/s, stock {theirs:.0f}: {ratio:.1f} × (bar {bar})", flush=True)


def batches() -> None:
    for name, horizon, bar in (("MazeS4G1", 10, 2.0), ("MazeS7G1", 20, 4.0)):
        data = collect(CollectConfig(name, 200), workers=1)
        windows = Windows(data.spec, data.episodes, WindowNeeds(horizon, 2))
        for per_scene in (1, 4):
            windows.sample(64, Rng.of(0), per_scene)
            start_time = time.process_time()
            for step in range(200):
                windows.sample(64, Rng.of(step), per_scene)
            cost = (time.process_time() - start_time) / 200 * 1000
            print(f"{name}: a batch of 64 windows, {per_scene} per scene: {cost:.2f} ms (bar {bar})", flush=True)


def collection(number: int) -> None:
    seconds = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as root:
            os.environ["MINARI_DATASETS_PATH"] = root
            start_time = time.time()
            collect(CollectConfig("MazeS4G1", number), workers)
            seconds[workers] = time.time() - start_time
    took = f"{seconds[1]:.0f} s with one worker, {seconds[2]:.0f} s with two"
    print(f"{number} demonstrations: {took}: {seconds[1] / seconds[2]:.2f} × (bar 1.6)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demos", type=int, default=5000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    environments()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["MINARI_DATASETS_PATH"] = scratch
        batches()
    collection(arguments.demos)
