"""CPU-seconds of a training step of every method in tasks of every shape, for `step_seconds` in METHODS.

python benchmarks/steps.py [--steps 40]

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
from genplan.data.windows import Windows
from genplan.presets import default_config
from genplan.training import Trainer

SHOWN = ("GenPlan-M", "BC", "DT", "LEAP")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    for name in planners.METHODS["GenPlan-M"].step_seconds:
        task = tasks.get(name)
        assert task.expert is not None
        env, expert = task.make_env(), task.expert()
        found = (collect_episode(expert, task, env, seed) for seed in range(10_000, 10_100))
        episodes = [episode for episode in found if episode is not None]
        with tempfile.TemporaryDirectory() as folder:
            trainers = {}
            for method in SHOWN:
                config, training = default_config(name, method)
                planner = planners.build(method, task.spec, config)
                windows = Windows(task.spec, episodes, planner.needs, training.goal_proximity_exponent)
                training = dataclasses.replace(training, steps=steps + 2)
                (Path(folder) / method).mkdir()
                trainers[method] = Trainer(Path(folder) / method, planner, windows, windows, training, lambda *_: {})
            taken = dict.fromkeys(SHOWN, 0.0)
            for step in range(steps + 2):
                for method, trainer in trainers.items():
                    start_time = time.process_time()
                    trainer.training_step()
                    taken[method] += (time.process_time() - start_time) * (step >= 2)  # the first ones warm up
        shown = ", ".join(f'"{method}": {seconds / steps:.3f}' for method, seconds in taken.items())
        print(f'"{name}": {shown}', flush=True)


if __name__ == "__main__":
    main()
