"""Does the energy of a plan rank plans? Spearman's correlation with what they really cost.

python benchmarks/energy.py PLANNER [--task TASK] [--states 100] [--candidates 16] [--temperature 1]

From validation states (the starts of episodes, and a state half-way on the shortest way), several plans are drawn from
each. What a plan costs: the steps executed up to success, or all of them and the shortest way from where it ends. The
mean over states whose plans differ in cost, with its 95 % interval; and the mean cost of a random plan, of the one of
least energy, and of the best, each divided into that of the shortest way.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from genplan import names
from genplan.envs.shortest import shortest_actions
from genplan.flow import Rng
from genplan.rollout import EnvBatch
from genplan.types import VALIDATION_SEEDS, Planner, Task


def prepared(task: Task, seed: int, first: Sequence[int]) -> Any:
    env = task.make_env()
    env.reset(seed=seed)
    for action in first:
        env.step(action)
    return env


def cost(task: Task, seed: int, first: Sequence[int], actions: Sequence[int]) -> int | None:
    """Of a plan from the state after the actions `first`; None where there is no way any more."""
    env = prepared(task, seed, first)
    for step, action in enumerate(actions, 1):
        if env.step(action)[2]:
            return step
    rest = shortest_actions(env)
    return None if rest is None else len(actions) + len(rest)


def measure(planner: Planner, task: Task, num_states: int, num_candidates: int) -> NDArray[np.float64]:
    """Per state whose plans differ in cost: the correlation, and the efficiency of a random, the chosen, the best."""
    seeds = VALIDATION_SEEDS[: num_states // 2]
    found = []
    for half in (False, True):
        ways = [shortest_actions(prepared(task, seed, [])) or [] for seed in seeds]
        firsts = [way[: len(way) // 2 * half] for way in ways]
        batch, ids = EnvBatch(task, seeds), torch.arange(len(seeds))
        memory = planner.reset(batch.observations())
        for step in range(max(map(len, firsts))):
            rows = torch.tensor([row for row, first in enumerate(firsts) if step < len(first)])
            actions = torch.tensor([firsts[row][step] for row in rows.tolist()])
            batch.step(rows, actions)
            memory = planner.observe(memory, actions, batch.observations(rows), rows)
        drawn = [
            planner.plan(batch.observations(), memory, Rng.of(number, ids), ids)[0] for number in range(num_candidates)
        ]
        for row, seed in enumerate(seeds):
            energies = np.array([float(plan.energy[row]) for plan in drawn if plan.energy is not None])
            costs = [cost(task, seed, firsts[row], plan.actions[row].tolist()) for plan in drawn]
            if None in costs or len(set(costs)) < 2:
                continue
            least, true = len(ways[row]) - len(firsts[row]), np.array(costs, np.float64)
            chosen = true[energies.argmin()]
            found.append((spearman(energies, true), (least / true).mean(), least / chosen, least / true.min()))
    return np.array(found)


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Of ranks, equal values sharing theirs."""
    ranks = [np.unique(one, return_inverse=True, return_counts=True)[1:] for one in (a, b)]
    means = [(counts.cumsum() - (counts - 1) / 2)[index] for index, counts in ranks]
    return 0.0 if min(one.std() for one in means) == 0 else float(np.corrcoef(*means)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planner")
    parser.add_argument("--task")
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--cost-weight", type=float)
    arguments = parser.parse_args()
    options = {"temperature": arguments.temperature}
    options |= {} if arguments.cost_weight is None else {"cost_weight": arguments.cost_weight}
    planner, _, task = names.load_for_eval(arguments.planner, arguments.task, options)
    found = measure(planner, task, arguments.states, arguments.candidates)
    interval = 1.96 * found[:, 0].std() / max(len(found), 1) ** 0.5
    correlation, mean, chosen, best = found.mean(0)
    print(
        f"{arguments.planner} on {task.name}: Spearman {correlation:.3f} ± {interval:.3f} over {len(found)} states; "
        f"efficiency of a plan {mean:.3f}, of the one of least energy {chosen:.3f}, of the best {best:.3f}"
    )


if __name__ == "__main__":
    main()
