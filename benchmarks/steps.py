"""CPU-seconds of a training step of every method in every world, for the budgets in `genplan.bench.STEP_SECONDS`.

python benchmarks/steps.py [METHOD ...]
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from genplan import tasks
from genplan.config import METHODS, settings
from genplan.data.demos import collect_episode
from genplan.data.windows import Windows
from genplan.flow import Rng
from genplan.planners.reference import Bot
from genplan.runs import PLANNERS
from genplan.tasks.table import ROWS

torch.set_num_threads(1)
worlds = list(dict.fromkeys(row.trained_on for row in ROWS.values()))
for world in worlds:
    task = tasks.get(world)
    env, bot = task.make(), Bot()
    found = (collect_episode(bot, task, env, seed) for seed in range(10_000, 10_040))
    episodes = [episode for episode in found if episode is not None]
    for method in sys.argv[1:] or METHODS:
        config, training = settings(world, method=method)  # type: ignore[arg-type]
        windows = Windows(task.spec, episodes, config.horizon, config.context, config.goal_kinds, config.trail)
        planner = PLANNERS[type(config)](task.spec, config).train()
        optimiser = torch.optim.AdamW(planner.parameters(), fused=True)
        taken = []
        for number in range(24):
            began = time.process_time()
            rng = Rng.of(number)
            loss = planner.loss(windows.draw(training.batch, rng, training.per_map), rng).total
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            taken.append(time.process_time() - began)
        print(f'"{method}" "{world}": {statistics.mean(taken[4:]):.3f}', flush=True)
