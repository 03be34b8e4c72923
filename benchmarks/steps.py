"""CPU-seconds of a step of every kind of method in worlds of every shape, for `genplan.bench.cell.STEP_SECONDS`.

python benchmarks/steps.py [--steps 40]

Methods take turns, step by step, with the same chance, so that they share whatever else the machine does and draw the
same numbers of passes over maps.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

from genplan.data.demos import collect_episode
from genplan.train import Run

from genplan import tasks
from genplan.bench.cell import STEP_SECONDS
from genplan.config import MethodName, settings
from genplan.data.windows import Windows
from genplan.planners.reference import Bot
from genplan.runs import PLANNERS

KINDS: dict[str, MethodName] = {"GenPlan": "GenPlan-M", "BC": "BC", "DT": "DT", "LEAP": "LEAP"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    for world in STEP_SECONDS["GenPlan"]:
        task = tasks.get(world)
        env, bot = task.new_env(), Bot()
        found = (collect_episode(bot, task, env, seed) for seed in range(10_000, 10_100))
        episodes = [episode for episode in found if episode is not None]
        with tempfile.TemporaryDirectory() as folder:
            trainings = {}
            for kind, method in KINDS.items():
                config, training = settings(world, method=method)
                windows = Windows(
                    task.spec, episodes, config.horizon, config.context, config.goal_kinds, config.trail, training.haste
                )
                planner = PLANNERS[type(config)](task.spec, config)
                training = dataclasses.replace(training, steps=steps + 2)
                trainings[kind] = Run(Path(folder) / kind, planner, windows, windows, training)
            taken = dict.fromkeys(KINDS, 0.0)
            for step in range(steps + 2):
                for kind, run in trainings.items():
                    began = time.process_time()
                    run.advance()
                    taken[kind] += (time.process_time() - began) * (step >= 2)  # the first ones warm up
        print(
            f'"{world}": ' + ", ".join(f'"{kind}": {seconds / steps:.3f}' for kind, seconds in taken.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
