"""CPU-seconds of a training step of every method in tasks of every shape, for `step_seconds` in METHODS.

python benchmarks/steps.py [--steps 40] [--tasks TASK ...]

Methods take turns, step by step, with the same draws, so that they share whatever else the machine does and draw the
same numbers of encoder iterations.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

from genplan import planners, tasks
from genplan.collect import collect_episode
from genplan.data.store import read
from genplan.data.windows import Windows
from genplan.presets import default_config
from genplan.training import Trainer
from genplan.types import Episode, Task

SHOWN = ("GenPlan-M", "BC", "DT", "LEAP")
SHOWN_ROBOTS = ("GenPlan-M", "VQ-BeT", "DP-C", "DP-T", "Regression", "MIP")


def demonstrations(task: Task) -> list[Episode]:
    if task.expert is None:  # recorded, and imported before
        return list(read(task.dataset or "", task).episodes)
    env, expert = task.make_env(), task.expert()
    found = (collect_episode(expert, task, env, seed) for seed in range(10_000, 10_100))
    return [episode for episode in found if episode is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tasks", nargs="*", default=list(planners.METHODS["GenPlan-M"].step_seconds))
    arguments = parser.parse_args()
    steps = arguments.steps
    for name in arguments.tasks:
        task = tasks.get(name)
        episodes = demonstrations(task)
        shown = SHOWN if task.expert is not None else SHOWN_ROBOTS
        with tempfile.TemporaryDirectory() as folder:
            trainers = {}
            for method in shown:
                config, training = default_config(name, method)
                planner = planners.build(method, task.spec, config)
                planner.fit_codec(episodes)
                windows = Windows(task.spec, episodes, planner.needs, training.goal_proximity_exponent)
                training = dataclasses.replace(training, steps=steps + 2)
                (Path(folder) / method).mkdir()
                trainers[method] = Trainer(Path(folder) / method, planner, windows, windows, training, lambda *_: {})
            taken = dict.fromkeys(shown, 0.0)
            for step in range(steps + 2):
                for method, trainer in trainers.items():
                    start_time = time.process_time()
                    trainer.training_step()
                    taken[method] += (time.process_time() - start_time) * (step >= 2)  # the first ones warm up
        found = ", ".join(f'"{method}": {seconds / steps:.3f}' for method, seconds in taken.items())
        print(f'"{name}": {found}', flush=True)


if __name__ == "__main__":
    main()
